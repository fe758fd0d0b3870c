"""Where lines of the kernel come from: `/dev/kmsg`, or a file that somebody else writes.

Both give lines in chunks and a *place* to go on from, which outlives the agent (`Place`, a file beside its journal).
What a new agent does with it:

- same boot of this host: reads again from where this boot began, without telling what was told (`health_news`), so
  that what comes again is still seen to come again;
- a new boot of this host under the same kernel (a local host, a container): goes on behind the last line;
- a new boot of the kernel: reads from its start;
- no place at all, which is the first time on this disk: from the start if the kernel booted just now, else from the
  end. What an old log says was dealt with by somebody, or a state that a probe finds still holds.

Lines that the kernel overwrote before they were read are counted, and the count is a finding: it is not known what they
said.
"""

import asyncio
import logging
import os
import time
from pathlib import Path
from typing import Final, NamedTuple, Protocol

from trainmaster.core.base.ids import BootId
from trainmaster.core.base.value import Value, decode, encode
from trainmaster.core.health import kmsg
from trainmaster.live.agent.files import read_or_none, write_whole

_log = logging.getLogger(__name__)
_RECORD_BYTES: Final = 8_192 * 2
"""More than the longest record with its properties; a shorter buffer gets EINVAL."""
CHUNK: Final = 2_000
"""Lines in one go; the agent's loop runs between."""
_CHUNK_BYTES: Final = 262_144
FOLLOW_EVERY_S: Final = 0.1
"""How late a line of a file is seen at most; a look is one `stat`."""
_YOUNG_US: Final = 600_000_000
"""So long after its boot, a host without a place has just been booted from a fresh disk."""
_AGAIN_BYTES: Final = 4 * 1024 * 1024
"""As much of a file is read again at most."""


class Place(Value):
    """How far a log was read."""

    source: str
    """Path."""
    agent_boot: BootId
    kernel_boot: str
    began: int
    """Where this boot of the host began: sequence number, or offset."""
    read: int
    """What comes next."""
    inode: int = 0


class Chunk(NamedTuple):
    lines: list[str]
    lost: int = 0
    """Lines that were overwritten before they could be read."""


class LogSource(Protocol):
    def open(self, place: Place | None) -> None:
        """Raises `OSError`."""

    async def wait(self) -> None:
        """Until there may be lines."""

    def take(self) -> Chunk:
        """What is there now, at most about `CHUNK` lines. Raises `OSError`."""

    def place(self) -> Place: ...

    def close(self) -> None: ...


def kernel_boot() -> str:
    """The kernel's name for its boot; empty if it tells none."""
    data = read_or_none(Path("/proc/sys/kernel/random/boot_id")) or b""
    return data.decode(errors="replace").strip()


def up_us() -> int:
    """Since the boot, on the clock of the kernel's log."""
    return time.monotonic_ns() // 1000


def stored(path: Path) -> Place | None:
    """The place that an earlier agent left; None if there is none that can be read."""
    data = read_or_none(path)
    try:
        return None if data is None else decode(data, Place)
    except ValueError:
        _log.warning("%s is damaged; the log is read as if for the first time", path)
        return None


def store(path: Path, place: Place) -> None:
    """Trouble is logged: it only costs that lines are read twice."""
    try:
        write_whole(path, encode(place))
    except OSError as error:
        _log.error("%s can't be written: %s", path, error.strerror)


class KmsgSource:
    """The kernel's ring of records."""

    def __init__(self, path: str, boot: BootId, facilities: frozenset[int]) -> None:
        self._path, self._boot, self._facilities = path, boot, facilities
        self._kernel = kernel_boot()
        self._file = -1
        self._began: int | None = None
        self._next = 0
        self._skip_to = 0

    def open(self, place: Place | None) -> None:
        self.open_from_start()
        if place is None or place.source != self._path:
            if up_us() > _YOUNG_US:
                self._pass_over()
            return
        if place.kernel_boot != self._kernel:
            return
        self._next = place.read
        self._began = place.began if place.agent_boot == self._boot else None
        self._skip_to = place.read if self._began is None else self._began

    def open_from_start(self) -> None:
        """Reads all that the ring still has. Raises `OSError`."""
        self._file = os.open(self._path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)

    def _pass_over(self) -> None:
        """To the end, so that the number of what comes next is known."""
        while (record := self._record()) is not None:
            self._began = self._next = record.sequence + 1

    def _read(self) -> bytes:
        """One record. Raises `BlockingIOError` if there is none, `BrokenPipeError` if some were overwritten."""
        return os.read(self._file, _RECORD_BYTES)

    def _record(self) -> kmsg.Record | None:
        """The next record; None if there is none now. What was overwritten is passed over: numbers tell of it."""
        while True:
            try:
                record = kmsg.parse(self._read())
            except BlockingIOError:
                return None
            except BrokenPipeError:
                continue
            if record is not None:
                return record

    async def wait(self) -> None:
        loop = asyncio.get_running_loop()
        ready = asyncio.Event()
        loop.add_reader(self._file, ready.set)
        try:
            await ready.wait()
        finally:
            loop.remove_reader(self._file)

    def take(self) -> Chunk:
        lines: list[str] = []
        lost = 0
        while len(lines) < CHUNK and (record := self._record()) is not None:
            if record.sequence < self._skip_to:
                continue
            lost += max(0, record.sequence - self._next)
            self._began = record.sequence if self._began is None else self._began
            self._next = max(self._next, record.sequence + 1)
            if record.facility in self._facilities:
                lines += record.lines()
        return Chunk(lines, lost)

    def place(self) -> Place:
        began = self._next if self._began is None else self._began
        return Place(source=self._path, agent_boot=self._boot, kernel_boot=self._kernel, began=began, read=self._next)

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


class FileSource:
    """A file that is appended to, and rotated or emptied now and then. It may come later than we do."""

    def __init__(self, path: str, boot: BootId) -> None:
        self._path, self._boot = Path(path), boot
        self._kernel = kernel_boot()
        self._file = -1
        self._inode = 0
        self._began = self._next = self._seen = 0

    def open(self, place: Place | None) -> None:
        known = place is not None and place.source == str(self._path)
        if not self._reopen():
            return
        size = os.fstat(self._file).st_size
        if not known:
            self._next = self._began = size
        elif place is not None and place.inode == self._inode and place.read <= size:
            self._next = place.read
            same = place.agent_boot == self._boot
            self._began = max(place.began, place.read - _AGAIN_BYTES) if same else place.read
            self._next = self._began
        elif place is not None:
            self._go_on_in_rotated(place)

    def _reopen(self) -> bool:
        """Opens the file from its beginning. False if there is none now."""
        try:
            file = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        self.close()
        self._file, self._inode = file, os.fstat(file).st_ino
        self._began = self._next = self._seen = 0
        return True

    def _go_on_in_rotated(self, place: Place) -> None:
        """The file was rotated while no agent ran: what is left of the old one first."""
        for other in sorted(self._path.parent.glob(f"{self._path.name}*")):
            if other != self._path and other.stat().st_ino == place.inode:
                self.close()
                self._file = os.open(other, os.O_RDONLY | os.O_CLOEXEC)
                self._inode, self._began, self._next = place.inode, place.read, place.read

    async def wait(self) -> None:
        while not self._has_more():
            await asyncio.sleep(FOLLOW_EVERY_S)

    def _has_more(self) -> bool:
        """Whether there is something to read; goes on to the new file where this one was rotated or emptied."""
        if self._file >= 0:
            size = os.fstat(self._file).st_size
            if size < self._next:
                self._began = self._next = self._seen = 0  # emptied
            if size > self._seen:
                return True
        try:
            there = self._path.stat()
        except FileNotFoundError:
            return False
        if self._file >= 0 and there.st_ino == self._inode:
            return False
        return self._reopen() and os.fstat(self._file).st_size > 0

    def take(self) -> Chunk:
        if self._file < 0:
            return Chunk([])
        data = os.pread(self._file, _CHUNK_BYTES, self._next)
        whole = data.rfind(b"\n") + 1
        if not whole and len(data) == _CHUNK_BYTES:
            whole = len(data)  # no line is as long as this
        self._seen = self._next + max(whole, len(data) if len(data) < _CHUNK_BYTES else 0)
        self._next += whole
        return Chunk([line for line in data[:whole].decode("utf-8", "replace").split("\n") if line.strip()])

    def place(self) -> Place:
        return Place(
            source=str(self._path), agent_boot=self._boot, kernel_boot=self._kernel, began=self._began,
            read=self._next, inode=self._inode,
        )  # fmt: skip

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
