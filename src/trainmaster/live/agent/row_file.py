"""The markers of a row of steps: one file of JSON lines for each row, in the host's directory.

Before a step starts, `begun` is written and synced, so that whoever comes after a crash knows that it may have run. The
process follows unsynced (it means nothing after a loss of power), and the `end` is synced before anything is built on
it. A line is written whole or taken back, and a torn one (a crash in the middle) was never there. Unlike the journal
this file does not go on in memory when the disk is full: without a marker a step is not started.
"""

import os
from pathlib import Path
from typing import Final

import msgspec

from trainmaster.core.agent.steps import StepEnd
from trainmaster.core.base.ids import BootId
from trainmaster.core.base.value import Value, encode
from trainmaster.live.agent.files import read_or_none, sync_directory
from trainmaster.live.agent.processes import ProcessName

MARKERS: Final = "markers.jsonl"


class Marker(Value):
    """Exactly one of `begun`, `process` and `end` is set."""

    step: int
    name: str
    begun: BootId | None = None
    """Under which boot."""
    process: ProcessName | None = None
    end: StepEnd | None = None


_decoder = msgspec.json.Decoder(Marker)


class RowFile:
    def __init__(self, directory: Path) -> None:
        """Reads what is there, and takes a torn line away. Raises `OSError`."""
        self.directory = directory
        self._path = directory / MARKERS
        data = read_or_none(self._path) or b""
        self.markers: list[Marker] = []
        whole = data.rfind(b"\n") + 1
        for line in data[:whole].splitlines():
            try:
                self.markers.append(_decoder.decode(line))
            except msgspec.DecodeError as error:
                raise OSError(f"{self._path} is damaged: {error}") from error
        if whole < len(data):
            os.truncate(self._path, whole)

    def append(self, marker: Marker, sync: bool) -> None:
        """Raises `OSError`; then the marker is not there."""
        new = not self.markers
        if new:
            self.directory.mkdir(parents=True, exist_ok=True)
        line = encode(marker) + b"\n"
        handle = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            size = os.fstat(handle).st_size
            try:
                if os.write(handle, line) < len(line):
                    raise OSError("the disk is full")
                if sync:
                    os.fsync(handle)
            except OSError:
                os.ftruncate(handle, size)
                raise
        finally:
            os.close(handle)
        if new:
            for directory in (self.directory, *self.directory.parents[:3]):
                sync_directory(directory)
        self.markers.append(marker)

    def begun(self) -> frozenset[int]:
        return frozenset(marker.step for marker in self.markers if marker.begun is not None)

    def ends(self) -> dict[int, StepEnd]:
        return {marker.step: marker.end for marker in self.markers if marker.end is not None}

    def left_running(self, boot: BootId) -> ProcessName | None:
        """The process of a step that was begun under this boot and has no end."""
        ends = self.ends()
        found: ProcessName | None = None
        of_this_boot = False
        for marker in self.markers:
            if marker.step in ends:
                continue
            if marker.begun is not None:
                found, of_this_boot = None, marker.begun == boot
            elif marker.process is not None and of_this_boot:
                found = marker.process
        return found
