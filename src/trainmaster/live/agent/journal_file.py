"""The journal on disk: JSON lines, synced before an outcome is told.

A line that was torn by a crash or by a full disk is skipped and counted. A disk that takes no more does not stop the
agent: lines wait in memory and are written when the disk takes them again; until then a crash of the agent may repeat
an effect, which the handlers bear, and losing the host for that would be worse.
"""

import asyncio
import logging
import os
from pathlib import Path

import msgspec

from trainmaster.core.agent.journal import Journal, Line
from trainmaster.core.base.ids import BootId
from trainmaster.core.base.value import encode
from trainmaster.live.agent.files import read_or_none, write_whole

_log = logging.getLogger(__name__)
_decoder = msgspec.json.Decoder(Line)


class _Batch:
    """Lines that are written together."""

    def __init__(self) -> None:
        self.lines: list[Line] = []
        self.sync = False


class JournalFile:
    def __init__(self, path: Path, boot: BootId) -> None:
        """Reads and compacts. Raises `OSError` only if the file can't be read."""
        self._path = path
        lines, torn = _read(path)
        if torn:
            _log.warning("%s: %d torn lines skipped", path, torn)
        self.journal = Journal(boot, lines)
        self._handle: int | None = None
        self._waiting = bytearray()
        self._trouble = ""
        self._batch = _Batch()
        self._storing = asyncio.Lock()
        try:
            write_whole(path, b"".join(encode(line) + b"\n" for line in self.journal.lines()), durable=True)
        except OSError as error:
            self._complain(error)

    async def store(self, lines: tuple[Line, ...], sync: bool) -> None:
        """`append`, in order and beside the loop: a sync may take as long as the disk wants. What comes while one is
        written waits and is written together, so that many effects of one moment share one sync."""
        if not lines:
            return
        batch = self._batch
        batch.lines += lines
        batch.sync |= sync
        async with self._storing:
            if batch is self._batch:  # else another caller of this batch wrote it
                self._batch = _Batch()
                await asyncio.to_thread(self.append, tuple(batch.lines), batch.sync)

    def append(self, lines: tuple[Line, ...], sync: bool) -> None:
        """Writes, and with `sync` makes it last. Blocks; trouble with the disk is logged, never raised."""
        for line in lines:
            self._waiting += encode(line) + b"\n"
        if not self._waiting:
            return
        try:
            if self._handle is None:
                self._handle = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
            written = os.write(self._handle, self._waiting)
            if written < len(self._waiting):
                # the rest of a torn line is written again in full, after a line end that closes the torn one
                start = self._waiting.rfind(b"\n", 0, written) + 1
                self._waiting[:] = b"\n" + self._waiting[start:]
                raise OSError(f"only {written} bytes were taken")
            self._waiting.clear()
            if sync:
                os.fsync(self._handle)
        except OSError as error:
            self._complain(error)
            return
        if self._trouble:
            _log.warning("%s can be written again", self._path)
            self._trouble = ""

    def _complain(self, error: OSError) -> None:
        trouble = error.strerror or str(error)
        if trouble != self._trouble:
            _log.error("%s can't be written (%s); going on, its lines wait in memory", self._path, trouble)
            self._trouble = trouble

    def close(self) -> None:
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None


def _read(path: Path) -> tuple[list[Line], int]:
    lines: list[Line] = []
    torn = 0
    for text in (read_or_none(path) or b"").splitlines():
        if not text:
            continue
        try:
            lines.append(_decoder.decode(text))
        except msgspec.DecodeError:
            torn += 1
    return lines, torn
