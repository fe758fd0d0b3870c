"""What others wrote, and random work, on a mount: everything must be as on a disk.

Random trees of names against a plain directory; random work on one file against memory; fio's verification; stress-ng's
file tests; SQLite; git.
"""

import os
import shutil
import sqlite3
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.integration import mount_model
from tests.integration.mounts import Mount, mounted, why_not

pytestmark = [pytest.mark.real, pytest.mark.skipif(bool(why_not()), reason=why_not() or "it can")]

MODES = ("passthrough", "copying")


@pytest.fixture(scope="module", params=MODES)
def mount(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mount]:
    with mounted(tmp_path_factory.mktemp(request.param), request.param) as made:
        yield made
        assert "defect" not in made.log()
        assert "failed" not in made.log()
        made.end()


@pytest.fixture
def here(mount: Mount, request: pytest.FixtureRequest) -> Path:
    path = mount.path / request.node.name.replace("[", "-").replace("]", "")
    path.mkdir()
    return path


def program(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not installed; scripts/test-packages.sh installs it")
    return found


def run(*command: str, cwd: Path, timeout_s: float = 120) -> str:
    environment = {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
    ran = subprocess.run(
        command, cwd=cwd, capture_output=True, text=True, timeout=timeout_s, check=False, env=environment
    )
    assert ran.returncode == 0, f"{command}: {ran.stdout}\n{ran.stderr}"
    return ran.stdout


@pytest.mark.parametrize("seed", range(6))
def test_names_are_as_in_a_plain_directory(seed: int, here: Path, tmp_path: Path) -> None:
    """1. 600 random steps, with their errors. 2. The same on a plain directory. 3. The same was seen."""
    assert mount_model.names(here, seed, 600) == mount_model.names(tmp_path, seed, 600)


@pytest.mark.parametrize("seed", range(4))
def test_bytes_are_as_in_memory(seed: int, here: Path) -> None:
    """Reads, writes, appends, cuts, reservations and mappings, by four descriptors of one file."""
    mount_model.bytes_of_a_file(here / "f", seed, 150)


def test_the_model_finds_a_wrong_byte(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file system that loses one write in a hundred."""
    written = os.pwrite
    count = 0

    def forgetful(file: int, data: bytes, at: int) -> int:
        nonlocal count
        count += 1
        return len(data) if count % 20 == 0 else written(file, data, at)

    monkeypatch.setattr(os, "pwrite", forgetful)
    with pytest.raises(AssertionError):
        mount_model.bytes_of_a_file(tmp_path / "f", 0, 150)


@pytest.mark.parametrize("engine", ["psync", "mmap", "io_uring", "libaio"])
def test_fio_finds_what_it_wrote(engine: str, here: Path) -> None:
    """Random writes with checksums in every block, by two jobs, read back; direct where the engine is asynchronous."""
    direct = engine in ("io_uring", "libaio")
    job = [
        program("fio"), "--name=job", f"--directory={here}", "--size=32m", "--rw=randrw", "--bsrange=4k-256k",
        "--bs_unaligned=0", f"--ioengine={engine}", f"--direct={int(direct)}", "--iodepth=8", "--numjobs=2",
        "--verify=crc32c", "--verify_fatal=1", "--do_verify=1", "--fsync=64", "--randseed=7", "--minimal",
    ]  # fmt: skip
    run(*job, cwd=here.parent)


def test_stress_ng(here: Path) -> None:
    """Its tests of files, each for a number of operations, with what it verifies."""
    tests = {
        "access": 200, "chmod": 100, "chown": 100, "copy-file": 2, "dentry": 200, "dir": 200, "dirdeep": 20,
        "fallocate": 20, "filename": 50, "flock": 200, "fpunch": 10, "fsize": 20, "fstat": 200, "hdd": 100,
        "io": 20, "link": 20, "lockf": 100, "locka": 100, "mmap": 10, "open": 200, "readahead": 20, "rename": 500,
        "seek": 200, "sendfile": 20, "symlink": 20, "sync-file": 20, "touch": 200, "utime": 200,
        "xattr": 20,
    }  # fmt: skip
    arguments = [word for name, count in tests.items() for word in (f"--{name}", "1", f"--{name}-ops", str(count))]
    sizes = {"hdd": "16m", "mmap": "4m", "fallocate": "16m", "copy-file": "128m", "readahead": "8m", "sync-file": "8m"}
    limits = [word for name, size in sizes.items() for word in (f"--{name}-bytes", size)]
    common = ("--temp-path", str(here), "--verify", "--timeout", "20", "--mmap-file", "--seek-size", "8m")
    out = run(program("stress-ng"), *common, *limits, *arguments, cwd=here.parent)
    assert "fail" not in out
    assert list(here.iterdir()) == []


def test_sqlite(here: Path) -> None:
    """1. With a rollback journal and with a write-ahead log. 2. Two connections. 3. It is whole."""
    for mode in ("DELETE", "WAL"):
        path = here / f"{mode}.db"
        one, two = (sqlite3.connect(path, isolation_level=None) for _ in range(2))
        one.execute(f"PRAGMA journal_mode = {mode}")
        one.execute("CREATE TABLE t(a INTEGER PRIMARY KEY, b TEXT)")
        for number in range(200):
            (one if number % 2 else two).execute("INSERT INTO t VALUES (?, ?)", (number, "x" * number))
        one.execute("BEGIN")
        one.execute("DELETE FROM t")
        one.execute("ROLLBACK")
        one.execute("DELETE FROM t WHERE a % 3 = 0")
        one.execute("VACUUM")
        assert two.execute("SELECT count(*), sum(length(b)) FROM t").fetchone() == (
            133,
            sum(a for a in range(200) if a % 3),
        )
        assert two.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        one.close()
        two.close()


def test_git(here: Path, tmp_path: Path) -> None:
    """1. A repository outside, with links and modes. 2. Cloned into the mount. 3. Nothing differs there, and its
    objects are whole. 4. A commit in the mount, packed, fetched back."""
    git = program("git")
    outside, inside = tmp_path / "outside", here / "inside"
    outside.mkdir()
    who = ("-c", "user.name=t", "-c", "user.email=t@example.org")
    run(git, "init", "-q", "-b", "main", str(outside), cwd=tmp_path)
    for number in range(300):
        path = outside / f"d{number % 17}" / f"f{number}"
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"{number}\n" * number)
        path.chmod(0o755 if number % 2 else 0o644)
    (outside / "l").symlink_to("d1")
    run(git, "add", "-A", cwd=outside)
    run(git, *who, "commit", "-q", "-m", "one", cwd=outside)
    run(git, "clone", "-q", "--no-hardlinks", str(outside), str(inside), cwd=here)
    assert run(git, "status", "--porcelain", cwd=inside) == ""
    run(git, "fsck", "--full", "--strict", cwd=inside)
    (inside / "new").write_text("new")
    run(git, "add", "new", cwd=inside)
    run(git, *who, "commit", "-q", "-m", "two", cwd=inside)
    run(git, "gc", "-q", "--prune=now", cwd=inside)
    run(git, "fsck", "--full", "--strict", cwd=inside)
    run(git, "pull", "-q", str(inside), "main", cwd=outside)
    assert (outside / "new").read_text() == "new"
