"""Random work on a directory: the same seed does the same on a mount and on a plain directory, and what was seen must
be the same, errors and all.

`names` works on a tree of names; `bytes_of_a_file` on one file, through reads, writes, cuts, reservations and mappings,
as `fsx` does. Both give a list of what was seen.
"""

import ctypes
import errno
import mmap
import os
import random
import stat
from collections.abc import Callable
from pathlib import Path

_libc = ctypes.CDLL(None, use_errno=True)
_CWD = -100
_SIZE_MAX = 3 << 20
_CALLED = ("a", "b", "c", "d/a", "d/b", "d/e", "d/e/a", "f", "f/a", "f/b")


def names(root: Path, seed: int, steps: int) -> list[str]:
    chance = random.Random(seed)
    seen = []
    for _ in range(steps):
        act = chance.choice(_ACTS)
        one, two = (root / chance.choice(_CALLED) for _ in range(2))
        seen.append(f"{act.__name__} {one.name} {two.name}: {_told(act, one, two, chance.randrange(1 << 30))}")
    return [*seen, *tree(root)]


def _told(act: Callable[[Path, Path, int], object], one: Path, two: Path, number: int) -> str:
    try:
        return repr(act(one, two, number))
    except OSError as error:
        return errno.errorcode[error.errno or 0]


def tree(root: Path) -> list[str]:
    """All that can be seen of a directory, but numbers of files and times."""
    found = []
    for above, directories, files in sorted(os.walk(root)):
        for name in sorted(directories + files):
            path = Path(above) / name
            status = path.lstat()
            what = status.st_size if stat.S_ISREG(status.st_mode) else 0
            links = status.st_nlink
            content = os.readlink(path) if path.is_symlink() else ""
            if stat.S_ISREG(status.st_mode):
                content = str(hash(path.read_bytes()))
            extended = sorted((key, os.getxattr(path, key, follow_symlinks=False)) for key in _extended(path))
            found.append(f"{path.relative_to(root)} {status.st_mode:o} {what} {links} {content} {extended}")
    return found


def _extended(path: Path) -> list[str]:
    return [key for key in os.listxattr(path, follow_symlinks=False) if key.startswith("user.")]


def _touch(one: Path, two: Path, number: int) -> object:
    os.close(os.open(one, os.O_CREAT | (os.O_EXCL if number % 2 else 0) | os.O_WRONLY, 0o640))
    return None


def _write(one: Path, two: Path, number: int) -> object:
    file = os.open(one, os.O_WRONLY | (os.O_APPEND if number % 2 else os.O_TRUNC) | (os.O_CREAT if number % 3 else 0))
    try:
        return os.write(file, b"%d" % number * (number % 1000))
    finally:
        os.close(file)


def _mkdir(one: Path, two: Path, number: int) -> object:
    return os.mkdir(one, 0o750)


def _rmdir(one: Path, two: Path, number: int) -> object:
    return os.rmdir(one)


def _unlink(one: Path, two: Path, number: int) -> object:
    return os.unlink(one)


def _rename(one: Path, two: Path, number: int) -> object:
    return os.rename(one, two)


def _rename_with_flag(one: Path, two: Path, number: int) -> object:
    if _libc.renameat2(_CWD, os.fsencode(one), _CWD, os.fsencode(two), 1 + number % 2) != 0:
        raise OSError(ctypes.get_errno(), "renameat2")
    return None


def _link(one: Path, two: Path, number: int) -> object:
    return os.link(one, two, follow_symlinks=False)


def _symlink(one: Path, two: Path, number: int) -> object:
    return os.symlink(two.name, one)


def _read(one: Path, two: Path, number: int) -> object:
    return one.read_bytes()[:50]


def _list(one: Path, two: Path, number: int) -> object:
    return sorted(os.listdir(one))


def _status(one: Path, two: Path, number: int) -> object:
    status = os.lstat(one)
    return oct(status.st_mode), status.st_nlink, status.st_size if stat.S_ISREG(status.st_mode) else 0


def _chmod(one: Path, two: Path, number: int) -> object:
    return os.chmod(one, number & 0o777 | 0o700)


def _truncate(one: Path, two: Path, number: int) -> object:
    return os.truncate(one, number % 5000)


def _set_attribute(one: Path, two: Path, number: int) -> object:
    return os.setxattr(one, f"user.{number % 3}", b"%d" % number, number % 3)


def _remove_attribute(one: Path, two: Path, number: int) -> object:
    return os.removexattr(one, f"user.{number % 3}")


def _unlink_open(one: Path, two: Path, number: int) -> object:
    """A file that loses its name, or is renamed over, while it is open."""
    file = os.open(one, os.O_RDWR)
    try:
        if number % 2:
            os.unlink(one)
        else:
            os.rename(two, one)
        os.pwrite(file, b"still", 3)
        return os.fstat(file).st_nlink, os.fstat(file).st_size, os.pread(file, 20, 0)
    finally:
        os.close(file)


_ACTS = (
    _touch, _touch, _write, _write, _write, _mkdir, _mkdir, _rmdir, _unlink, _rename, _rename, _rename_with_flag, _link,
    _symlink, _read, _list, _status, _chmod, _truncate, _set_attribute, _remove_attribute, _unlink_open,
)  # fmt: skip


class OneFile:
    """A file, what it must contain, and several descriptors of it."""

    def __init__(self, path: Path, seed: int) -> None:
        self.path, self.chance, self.model = path, random.Random(seed), bytearray()
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
        self.noise = random.Random(seed + 1).randbytes(_SIZE_MAX)
        self.files = [os.open(path, flags) for flags in (os.O_RDWR, os.O_RDWR | os.O_APPEND, os.O_RDONLY)]
        self.writer = os.open(path, os.O_WRONLY)

    def close(self) -> None:
        for file in (*self.files, self.writer):
            os.close(file)

    def span(self, whole: int) -> tuple[int, int]:
        """Somewhere in `whole` bytes; often at a page, often small."""
        at = self.chance.randrange(whole + 1)
        at = at // 4096 * 4096 if self.chance.random() < 0.3 else at
        size = self.chance.choice((1, 100, 4096, 70_000, 1 << 20, 1_500_000))
        return at, min(size, whole - at)

    def put(self, at: int, data: bytes) -> None:
        if len(data):
            self.model.extend(bytes(max(0, at + len(data) - len(self.model))))
            self.model[at : at + len(data)] = data

    def step(self) -> None:
        self.chance.choice((self.write, self.write, self.read, self.read, self.append, self.cut, self.map, self.sync))()
        assert os.fstat(self.files[0]).st_size == len(self.model)

    def write(self) -> None:
        at, size = self.span(_SIZE_MAX)
        file = self.writer if self.chance.random() < 0.5 else self.files[0]
        if self.chance.random() < 0.05:
            os.close(self.writer)
            self.writer = file = os.open(self.path, os.O_WRONLY | os.O_TRUNC)
            self.model.clear()
        assert os.pwrite(file, self.noise[:size], at) == size
        self.put(at, self.noise[:size])

    def append(self) -> None:
        _, size = self.span(_SIZE_MAX - len(self.model))
        assert os.write(self.files[1], self.noise[-size:] if size else b"") == size
        self.put(len(self.model), self.noise[-size:] if size else b"")

    def read(self) -> None:
        at, size = self.span(_SIZE_MAX)
        file = self.chance.choice(self.files)
        assert os.pread(file, size, at) == self.model[at : at + size], (at, size)

    def cut(self) -> None:
        size = self.chance.randrange(_SIZE_MAX)
        if self.chance.random() < 0.3 and size:
            at = self.chance.randrange(size)
            os.posix_fallocate(self.files[0], at, size - at)
            self.model.extend(bytes(max(0, size - len(self.model))))
            return
        os.ftruncate(self.files[0], size)
        del self.model[size:]
        self.model.extend(bytes(size - len(self.model)))

    def map(self) -> None:
        if not self.model:
            return
        at, size = self.span(len(self.model))
        with mmap.mmap(self.files[0], 0) as view:
            assert view[at : at + size] == self.model[at : at + size], (at, size)
            if self.chance.random() < 0.7:
                view[at : at + size] = self.noise[:size]
                view.flush()
                self.put(at, self.noise[:size])

    def sync(self) -> None:
        os.fsync(self.writer)
        assert self.path.read_bytes() == self.model


def bytes_of_a_file(path: Path, seed: int, steps: int) -> bytes:
    """Raises `AssertionError` where the file is not what it must be. What is in it in the end."""
    work = OneFile(path, seed)
    try:
        for _ in range(steps):
            work.step()
    finally:
        work.close()
    assert path.read_bytes() == work.model
    return bytes(work.model)
