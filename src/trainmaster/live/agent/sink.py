"""A worker's output on its way from the pipe to the log file, with its end kept in memory.

A log that can't be written (a full disk, a directory that was removed) loses output, never a worker: what could not be
written is counted, and the log says so once it can be written again.
"""

import os
from pathlib import Path
from typing import Final

TAIL_BYTES: Final = 16_384
"""Enough for the longest traceback that people read; it travels in exit records."""
_CHUNK: Final = 65_536
_CHUNKS_A_TURN: Final = 16
"""A worker that floods its output must not keep the keeper from noticing exits."""


class OutputSink:
    def __init__(self, descriptor: int, path: Path) -> None:
        self.descriptor: int | None = descriptor
        self.log: int | None = None
        self._path = path
        self._tail = bytearray()
        self._lost = 0
        self._lost_to = ""

    def copy(self) -> bool:
        """Copies what is there now, without waiting. False at the end of the output."""
        assert self.descriptor is not None
        for _ in range(_CHUNKS_A_TURN):
            try:
                data = os.read(self.descriptor, _CHUNK)
            except BlockingIOError:
                return True
            if not data:
                return False
            self._tail = (self._tail + data)[-TAIL_BYTES:]
            self._write(data)
        return True

    def _write(self, data: bytes) -> None:
        try:
            if self.log is None:
                flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
                self.log = os.open(self._path, flags, 0o644)
            if self._lost:
                notice = f"[trainmaster: {self._lost} bytes of output lost: {self._lost_to}]\n".encode()
                os.write(self.log, notice)
                self._lost = 0
            written = os.write(self.log, data)
            self._lost += len(data) - written
        except OSError as error:
            self._lost += len(data)
            self._lost_to = error.strerror or str(error)

    def turn_to(self, path: Path) -> None:
        """What comes from now on goes to another file; what is there now goes to the present one first."""
        if self.descriptor is not None:
            self.copy()
        if self.log is not None:
            os.close(self.log)
        self.log, self._path = None, path
        self._tail.clear()

    def tail(self) -> str:
        return self._tail.decode(errors="replace")

    def close(self) -> None:
        for descriptor in (self.descriptor, self.log):
            if descriptor is not None:
                os.close(descriptor)
        self.descriptor = self.log = None
