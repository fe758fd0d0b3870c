"""A real mount: what programs do with files, by passthrough and by copying."""

import contextlib
import ctypes
import errno
import fcntl
import mmap
import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.integration.mounts import Mount, mounted, until, why_not

pytestmark = [pytest.mark.real, pytest.mark.skipif(bool(why_not()), reason=why_not() or "it can")]

MODES = ("passthrough", "copying")
libc = ctypes.CDLL(None, use_errno=True)
AT_FDCWD, NOREPLACE, EXCHANGE = -100, 1, 2


@pytest.fixture(scope="module", params=MODES)
def mount(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mount]:
    with mounted(tmp_path_factory.mktemp(request.param), request.param) as made:
        assert made.mode == request.param
        yield made


@pytest.fixture
def here(mount: Mount, request: pytest.FixtureRequest) -> Path:
    """An empty directory of the test in the mount."""
    path = mount.path / request.node.originalname
    path.mkdir()
    return path


@contextlib.contextmanager
def refused(number: int) -> Iterator[None]:
    with pytest.raises(OSError, check=lambda error: error.errno == number):
        yield


def rename2(old: Path, new: Path, flags: int) -> None:
    if libc.renameat2(AT_FDCWD, os.fsencode(old), AT_FDCWD, os.fsencode(new), flags) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def test_bytes(here: Path) -> None:
    """1. Written and read. 2. At an offset, behind a hole. 3. Appended by two descriptors. 4. Cut, and made longer."""
    file = here / "f"
    file.write_bytes(b"abc")
    assert file.read_bytes() == b"abc"
    with file.open("r+b") as stream:
        stream.seek(5_000_000)
        stream.write(b"end")
    assert file.stat().st_size == 5_000_003
    assert file.read_bytes() == b"abc" + bytes(4_999_997) + b"end"
    one, two = (os.open(file, os.O_WRONLY | os.O_APPEND) for _ in range(2))
    for number in range(10):
        os.write(one if number % 2 else two, b"%d" % number)
    os.close(one)
    os.close(two)
    assert file.read_bytes()[-13:] == b"end0123456789"
    os.truncate(file, 2)
    assert file.read_bytes() == b"ab"
    os.truncate(file, 5)
    assert file.read_bytes() == b"ab\0\0\0"
    with file.open("wb"):
        pass
    assert file.read_bytes() == b""


def test_large_blocks(here: Path) -> None:
    """Requests of a mebibyte, and what does not fit in one."""
    data = os.urandom((3 << 20) + 77)
    (here / "f").write_bytes(data)
    assert (here / "f").read_bytes() == data
    file = os.open(here / "f", os.O_RDONLY)
    assert os.pread(file, 2 << 20, 4097) == data[4097 : 4097 + (2 << 20)]
    os.close(file)


def test_names(here: Path) -> None:
    """1. Links: two names of one file. 2. Symbolic ones. 3. A file that is open goes on without a name. 4. Names of 255
    bytes, and of 256. 5. Names that are no text."""
    (here / "a").write_text("x")
    os.link(here / "a", here / "b")
    assert (here / "a").stat().st_nlink == 2
    assert (here / "a").stat().st_ino == (here / "b").stat().st_ino
    (here / "s").symlink_to("a" * 1000)
    assert os.readlink(here / "s") == "a" * 1000
    assert (here / "s").lstat().st_size == 1000
    with (here / "a").open("r+b") as stream:
        (here / "a").unlink()
        (here / "b").unlink()
        stream.seek(0, os.SEEK_END)
        stream.write(b"yz")
        stream.flush()
        assert (os.fstat(stream.fileno()).st_nlink, os.fstat(stream.fileno()).st_size) == (0, 3)
        stream.seek(0)
        assert stream.read() == b"xyz"
    with refused(errno.ENOENT):
        (here / "a").stat()
    (here / ("n" * 255)).touch()
    with refused(errno.ENAMETOOLONG):
        (here / ("n" * 256)).touch()
    strange = os.fsencode(here) + b"/\xff\xfe \n"
    os.close(os.open(strange, os.O_CREAT | os.O_WRONLY))
    assert sorted(os.listdir(os.fsencode(here))) == sorted([b"n" * 255, b"s", b"\xff\xfe \n"])


def test_a_file_without_a_name_gives_its_room_back(mount: Mount, here: Path) -> None:
    contents = mount.store / "contents"
    (here / "f").write_bytes(bytes(1000))
    number = (here / "f").stat().st_ino
    kept = contents / f"{number % 256:02x}" / f"{number:x}"
    assert kept.stat().st_size == 1000
    with (here / "f").open("rb"):
        (here / "f").unlink()
        assert kept.exists()
    until(lambda: not kept.exists(), "the end of the bytes")


def test_renaming(here: Path) -> None:
    """1. Over a file that is open. 2. A directory with files. 3. Not over one that exists. 4. Two change places. 5. A
    directory into itself."""
    (here / "old").write_text("old")
    (here / "new").write_text("new")
    with (here / "old").open() as stream:
        (here / "new").rename(here / "old")
        assert stream.read() == "old"
    assert (here / "old").read_text() == "new"
    (here / "d" / "e").mkdir(parents=True)
    (here / "d" / "e" / "f").write_text("f")
    (here / "d").rename(here / "g")
    assert (here / "g" / "e" / "f").read_text() == "f"
    with refused(errno.EEXIST):
        rename2(here / "old", here / "g", NOREPLACE)
    rename2(here / "old", here / "free", NOREPLACE)
    rename2(here / "free", here / "g", EXCHANGE)
    assert (here / "g").read_text() == "new"
    assert (here / "free" / "e" / "f").read_text() == "f"
    with refused(errno.EINVAL):
        (here / "free").rename(here / "free" / "e" / "x")
    with refused(errno.ENOTEMPTY):
        (here / "free").rmdir()


def test_directories(here: Path) -> None:
    """1. Thousands of names, each once. 2. With what `scandir` knows of each. 3. Links of directories."""
    for number in range(3000):
        (here / f"name-{number}").touch()
    for number in range(5):
        (here / f"d{number}").mkdir()
    found = sorted(os.listdir(here))
    assert found == sorted([f"name-{number}" for number in range(3000)] + [f"d{number}" for number in range(5)])
    with os.scandir(here) as entries:
        assert sum(entry.is_dir(follow_symlinks=False) for entry in entries) == 5
    assert here.stat().st_nlink == 7
    assert (here / "d0" / "..").stat().st_ino == here.stat().st_ino


def test_attributes(here: Path) -> None:
    """1. Mode, owner, times, to the nanosecond. 2. Extended ones. 3. Those of others are refused."""
    file = here / "f"
    file.write_text("x")
    for path in (file, here):
        path.chmod(0o2750)
        os.chown(path, 12, 13)
        os.utime(path, ns=(1_000_000_007, 2_000_000_009))
        found = path.stat()
        assert (found.st_uid, found.st_gid, found.st_atime_ns, found.st_mtime_ns) == (12, 13, 10**9 + 7, 2 * 10**9 + 9)
        os.setxattr(path, "user.a", b"1" * 1000)
        os.setxattr(path, "user.b", b"")
        assert sorted(os.listxattr(path)) == ["user.a", "user.b"]
        assert os.getxattr(path, "user.a") == b"1" * 1000
        with refused(errno.EEXIST):
            os.setxattr(path, "user.a", b"2", os.XATTR_CREATE)
        os.removexattr(path, "user.b")
        with refused(errno.ENODATA):
            os.getxattr(path, "user.b")
    assert stat.S_IMODE(here.stat().st_mode) == 0o2750
    with refused(errno.EOPNOTSUPP):
        os.setxattr(file, "system.other", b"1")
    before = file.stat().st_mtime_ns
    os.truncate(file, 0)
    assert file.stat().st_mtime_ns > before


def test_states(here: Path) -> None:
    """1. Written. 2. Synced: accepted. 3. Written again. 4. It can't be set, and is not listed."""
    file = here / "f"
    with file.open("wb") as stream:
        stream.write(b"x")
        stream.flush()
        assert os.getxattr(file, "user.trainmaster.state") == b"written"
        os.fsync(stream.fileno())
        assert os.getxattr(file, "user.trainmaster.state") == b"accepted"
        stream.write(b"y")
    assert os.getxattr(file, "user.trainmaster.state") == b"written"
    with refused(errno.EPERM):
        os.setxattr(file, "user.trainmaster.state", b"durable")
    assert os.listxattr(file) == []
    with refused(errno.ENODATA):
        os.getxattr(here, "user.trainmaster.state")


def test_mapping(here: Path) -> None:
    """1. What is written through a mapping is in the file. 2. What is written to the file is in the mapping."""
    file = here / "f"
    file.write_bytes(bytes(100_000))
    with file.open("r+b") as stream, mmap.mmap(stream.fileno(), 0) as view:
        view[50_000:50_003] = b"abc"
        view.flush()
        assert os.pread(stream.fileno(), 3, 50_000) == b"abc"
        os.pwrite(stream.fileno(), b"xyz", 70_000)
        assert view[70_000:70_003] == b"xyz"
    assert file.read_bytes()[50_000:50_003] == b"abc"
    with file.open("rb") as stream, mmap.mmap(stream.fileno(), 0, prot=mmap.PROT_READ) as view:
        with file.open("r+b") as other:
            os.pwrite(other.fileno(), b"new", 0)
        assert view[:3] == b"new"
        out = os.open(file, os.O_WRONLY)
        os.pwrite(out, b"old", 0)
        os.close(out)
        assert view[:3] == b"old"


def test_locks(here: Path) -> None:
    """1. flock excludes another open. 2. POSIX locks exclude another process."""
    (here / "f").touch()
    with (here / "f").open("r+b") as one, (here / "f").open("r+b") as two:
        fcntl.flock(one, fcntl.LOCK_EX | fcntl.LOCK_NB)
        with refused(errno.EAGAIN):
            fcntl.flock(two, fcntl.LOCK_EX | fcntl.LOCK_NB)
        fcntl.flock(one, fcntl.LOCK_UN)
        fcntl.lockf(one, fcntl.LOCK_EX | fcntl.LOCK_NB)
        script = "import fcntl, sys\ntry: fcntl.lockf(open(sys.argv[1], 'r+b'), fcntl.LOCK_EX | fcntl.LOCK_NB)\n"
        script += "except OSError: print('held')"
        ran = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", script, str(here / "f")], capture_output=True, text=True, check=True
        )
        assert ran.stdout == "held\n"


def test_room(mount: Mount, here: Path) -> None:
    """1. The room of the disk. 2. Reserved. 3. A hole, and where data begins. 4. A copy within the kernel."""
    ours, below = os.statvfs(here), os.statvfs(mount.store)
    assert (ours.f_frsize, ours.f_blocks, ours.f_namemax) == (below.f_frsize, below.f_blocks, 255)
    file = os.open(here / "f", os.O_RDWR | os.O_CREAT)
    os.posix_fallocate(file, 0, 1 << 20)
    assert (os.fstat(file).st_size, os.fstat(file).st_blocks) == (1 << 20, 2048)
    os.pwrite(file, b"data", 8 << 20)
    assert os.lseek(file, 1 << 20, os.SEEK_DATA) == 8 << 20
    other = os.open(here / "g", os.O_RDWR | os.O_CREAT)
    assert os.copy_file_range(file, other, 4, 8 << 20, 0) == 4
    assert os.pread(other, 10, 0) == b"data"
    os.close(file)
    os.close(other)


def test_special_files(here: Path) -> None:
    os.mkfifo(here / "p")
    os.mknod(here / "s", stat.S_IFSOCK | 0o600)
    os.mknod(here / "r", stat.S_IFREG | 0o600)
    kinds = [stat.S_IFMT((here / name).lstat().st_mode) for name in "psr"]
    assert kinds == [stat.S_IFIFO, stat.S_IFSOCK, stat.S_IFREG]
    (here / "r").write_text("x")
    assert (here / "r").read_text() == "x"


def test_rights_are_those_of_the_files(here: Path) -> None:
    """1. Another user may not read what is closed to others. 2. Nor remove it from a directory of ours. 3. What is open
    to all may be read, and a file written that is the user's."""
    (here / "closed").write_text("x")
    (here / "closed").chmod(0o600)
    (here / "open").write_text("x")
    (here / "open").chmod(0o644)
    (here / "own").touch()
    os.chown(here / "own", 65534, 65534)
    script = (
        "import os\nos.setgroups([]); os.setgid(65534); os.setuid(65534)\n"
        "def tried(act, *a):\n try: act(*a); return 'may'\n except PermissionError: return 'may not'\n"
        "print(tried(open, 'closed'), tried(os.unlink, 'open'), tried(open, 'open'), tried(open, 'own', 'w'))"
    )
    command = [sys.executable, "-W", "ignore", "-c", script]
    ran = subprocess.run(command, cwd=here, capture_output=True, text=True, check=True)
    assert ran.stdout == "may not may not may may\n"
