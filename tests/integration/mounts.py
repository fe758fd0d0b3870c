"""Mounts of a test: started as the command line does it, ended in any case, and nothing of them left."""

import errno
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from trainmaster.storage.fuse import mounting
from trainmaster.storage.fuse.daemon import Mode, Options
from trainmaster.storage.fuse.launch import start, stop
from trainmaster.storage.fuse.refused import Refused
from trainmaster.storage.fuse.store import LOG, is_claimed

DEADLINE_S = 30.0


def why_not() -> str:
    """Why nothing can be mounted here; empty if it can."""
    try:
        mounting.refuse_machine()
    except Refused as error:
        return str(error)
    if os.geteuid() != 0:
        return "these tests mount as root"
    try:
        os.close(os.open(mounting.DEVICE, os.O_RDWR | os.O_CLOEXEC))
    except OSError as error:
        return f"{mounting.DEVICE}: {error.strerror}"
    return ""


def until(holds: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not holds():
        assert time.monotonic() < deadline, f"not within {DEADLINE_S:g} s: {what}"
        time.sleep(0.01)


class Mount:
    """A store mounted at `path`."""

    def __init__(
        self, store: Path, path: Path, mode: Mode = "auto", cache_ms: int = 1000, files_max: int = 4096
    ) -> None:
        self.store, self.path = store, path
        self.options = Options(store=str(store), directory=str(path), mode=mode, cache_ms=cache_ms, files_max=files_max)
        path.mkdir(exist_ok=True)
        self.holder = 0
        self.start()

    def start(self) -> None:
        outcome = start(self.options)
        self.holder, self.mode = outcome.pid, outcome.mode

    @property
    def server(self) -> int:
        """The process that answers."""
        words = Path(f"/proc/{self.holder}/task/{self.holder}/children").read_text().split()
        return int(words[0]) if words else 0

    def log(self) -> str:
        return (self.store / LOG).read_text()

    def kill_server(self) -> int:
        """SIGKILL; who takes its place."""
        before = self.server
        assert before, "nobody serves"
        os.kill(before, signal.SIGKILL)
        until(lambda: self.server not in (0, before), "another server")
        return self.server

    def kill(self) -> None:
        """SIGKILL for all of it: the mount is dead then."""
        processes = (self.holder, self.server)
        assert all(processes), processes
        for process in processes:
            os.kill(process, signal.SIGKILL)
        until(lambda: not is_claimed(self.store), "the end of the mount")
        until(lambda: not mounting.answers(self.path), "a dead mount")

    def end(self) -> None:
        """As users do."""
        stop(self.path, lazily=False)
        until(lambda: not runs(self.holder), "the end of the holder")

    def clean(self) -> None:
        """Whatever state it is in."""
        processes = [self.holder, self.server] if runs(self.holder) else []
        while mounting.mounted_at(self.path) is not None:
            mounting.unmount(self.path, lazily=True)
        deadline = time.monotonic() + DEADLINE_S / 3
        while any(runs(process) for process in processes) and time.monotonic() < deadline:
            time.sleep(0.01)
        for process in processes:
            if runs(process):
                os.kill(process, signal.SIGKILL)
        until(lambda: not any(runs(process) for process in processes), "the end of the processes")
        with suppress(ChildProcessError):
            os.waitpid(self.holder, os.WNOHANG)


def runs(process: int) -> bool:
    """Whether a process lives; one that has ended and is not yet waited for does not."""
    if process == 0:
        return False
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ESRCH):
            return False
        raise


@contextmanager
def mounted(base: Path, mode: Mode = "auto", **more: int) -> Iterator[Mount]:
    mount = Mount(base / "store", base / "mount", mode, **more)
    try:
        yield mount
    finally:
        mount.clean()
