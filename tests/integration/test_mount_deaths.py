"""Processes of a mount that are killed, and what is there afterwards."""

import errno
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.integration import mount_writer
from tests.integration.mounts import Mount, mounted, until, why_not

from trainmaster.storage.fuse import mounting

pytestmark = [pytest.mark.real, pytest.mark.skipif(bool(why_not()), reason=why_not() or "it can")]

MODES = ("passthrough", "copying")


class Writer:
    """`mount_writer.py` at work."""

    def __init__(self, here: Path, report: Path, count: int) -> None:
        self.here, self.report, self.count = here, report, count
        here.mkdir()
        report.touch()
        command = [sys.executable, "-W", "ignore", mount_writer.__file__, str(here), str(report), str(count)]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE)

    def lines(self) -> list[str]:
        return self.report.read_text().splitlines()

    def done(self) -> int:
        """Rounds that were answered."""
        return sum(line.startswith("+") for line in self.lines())

    def wait_for(self, rounds: int) -> None:
        until(lambda: self.done() >= rounds or self.process.poll() is not None, f"{rounds} rounds")

    def finish(self) -> str:
        _, errors = self.process.communicate(timeout=60)
        return errors.decode()


@contextmanager
def writers(mount: Mount, base: Path, count: int, many: int = 3) -> Iterator[list[Writer]]:
    made = [Writer(mount.path / f"w{number}", base / f"report-{number}", count) for number in range(many)]
    try:
        yield made
    finally:
        for writer in made:
            writer.process.kill()
            writer.process.communicate()


def check(here: Path, done: int, last: int) -> None:
    """What must be there after `done` answered rounds; the round `last` may be there in part."""
    for number in range(max(0, done - mount_writer.KEPT), done):
        for path in (here / f"link-{number}", here / f"d-{number}" / "data"):
            if number != last - mount_writer.KEPT:
                assert path.read_bytes() == mount_writer.content(number), path
                assert os.getxattr(path, "user.number") == b"%d" % number
                assert os.getxattr(path, "user.trainmaster.state") == b"accepted"
                assert path.stat().st_nlink == 2
    for number in range(done - mount_writer.KEPT):
        assert not (here / f"link-{number}").exists()
        assert not (here / f"d-{number}").exists()


@pytest.mark.parametrize("mode", MODES)
def test_programs_go_on_when_the_server_dies(mode: str, tmp_path: Path) -> None:
    """1. Three programs write, sync, rename, link, remove. 2. The server is killed in the middle, four times. 3. Nobody
    was told of an error. 4. All is right. 5. A file that was open all the while is still the same."""
    with mounted(tmp_path, mode) as mount, writers(mount, tmp_path, 300) as made:
        with (mount.path / "open").open("w+b") as stream:
            stream.write(b"before ")
            stream.flush()
            (mount.path / "open").unlink()
            for killed in range(4):
                for writer in made:
                    writer.wait_for(40 * (killed + 1))
                mount.kill_server()
            stream.write(b"after")
            stream.seek(0)
            assert stream.read() == b"before after"
        for writer in made:
            assert writer.finish() == ""
            assert writer.done() == 300
            check(writer.here, 300, 300)
        log = mount.log()
        assert log.count("died (signal 9)") == 4
        assert "defect" not in log
        mount.end()


@pytest.mark.parametrize("mode", MODES)
def test_what_was_answered_is_there_after_the_death_of_a_mount(mode: str, tmp_path: Path) -> None:
    """1. Three programs write. 2. All of the mount is killed: they are told. 3. It is mounted again where the dead one
    is. 4. What was answered is there; metadata and bytes agree; nothing is left of files without a name."""
    with mounted(tmp_path, mode) as mount:
        lost = os.open(mount.path / "lost", os.O_WRONLY | os.O_CREAT)
        os.write(lost, b"x" * 100_000)
        (mount.path / "lost").unlink()
        number = os.fstat(lost).st_ino
        with writers(mount, tmp_path, 100_000) as made:
            for writer in made:
                writer.wait_for(60)
            mount.kill()
            for writer in made:
                assert f"Errno {errno.ENOTCONN}" in writer.finish() or "Errno 103" in writer.lines()[-1]
            with pytest.raises(OSError, match="not connected"):
                (mount.path / "never asked for").stat()
            mount.start()
            for writer in made:
                check(writer.here, writer.done(), writer.done())
        assert "the last mount did not end well" in mount.log()
        assert "DAMAGE" not in mount.log()
        os.close(lost)
        assert not (mount.store / "contents" / f"{number % 256:02x}" / f"{number:x}").exists()
        in_tree = {path.stat().st_ino for path in mount.path.rglob("*") if path.is_file()}
        kept = {int(path.name, 16) for path in (mount.store / "contents").glob("*/*")}
        assert kept == in_tree
        mount.end()


def test_a_server_that_dies_again_and_again_is_given_up(tmp_path: Path) -> None:
    """1. Five deaths in a row. 2. The mount is gone, and the log says why. 3. It can be mounted again."""
    with mounted(tmp_path) as mount:
        (mount.path / "f").write_text("x")
        for _ in range(4):
            mount.kill_server()
        os.kill(mount.server, signal.SIGKILL)
        until(lambda: mounting.mounted_at(mount.path) is None, "the end of the mount")
        assert "its server dies again and again" in mount.log()
        mount.clean()
        mount.start()
        assert (mount.path / "f").read_text() == "x"
        mount.end()


def test_bytes_that_are_missing_are_told_and_never_made_up(tmp_path: Path) -> None:
    """1. One file was synced, one was not; a stray file lies beside their bytes. 2. The mount dies, and the bytes of
    both are gone. 3. What was synced is an error of the disk; the other is empty; the stray is gone. 4. The log says
    so."""
    with mounted(tmp_path) as mount:
        numbers = {}
        for name in ("synced", "loose"):
            with (mount.path / name).open("wb") as stream:
                stream.write(b"x" * 5000)
                stream.flush()
                if name == "synced":
                    os.fsync(stream.fileno())
            numbers[name] = (mount.path / name).stat().st_ino
        mount.kill()
        kept = {name: mount.store / "contents" / f"{id % 256:02x}" / f"{id:x}" for name, id in numbers.items()}
        for path in kept.values():
            path.unlink()
        stray = mount.store / "contents" / "00" / "100"
        stray.write_text("stray")
        mount.start()
        assert f"DAMAGE: file {numbers['synced']} has lost its bytes" in mount.log()
        assert "1 files without a name removed, 1 that were never synced are empty" in mount.log()
        for act in (lambda: (mount.path / "synced").stat(), lambda: (mount.path / "synced").read_bytes()):
            with pytest.raises(OSError, check=lambda error: error.errno == errno.EIO):
                act()
        assert (mount.path / "loose").read_bytes() == b""
        assert not stray.exists()
        mount.end()


def test_signals_to_the_holder_end_the_mount(tmp_path: Path) -> None:
    with mounted(tmp_path) as mount:
        (mount.path / "f").write_text("x")
        os.kill(mount.holder, signal.SIGTERM)
        until(lambda: mounting.mounted_at(mount.path) is None, "the end of the mount")
        mount.clean()
        mount.start()
        assert "did not end well" not in mount.log()
        assert (mount.path / "f").read_text() == "x"
        mount.end()
