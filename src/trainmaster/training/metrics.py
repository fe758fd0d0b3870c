"""Metrics of a job: one JSON line a step, one file a membership.

A file is appended to by one process only, and a step's line is written before the save of that step, so whatever is
replayed after a failure was written before. Reading merges the files: for a step that ran more than once the last
run counts, and its loss must equal the earlier ones to the bit. A loss is kept as hexadecimal float for that reason:
decimal digits hide the last bits.
"""

import errno
import json
import os
from collections.abc import Iterator
from pathlib import Path

from trainmaster.core.base.value import Value, decode


class Line(Value):
    """One step. `time_s` counts from 1970 (UTC); `samples` are global samples consumed so far."""

    step: int
    loss: float | None
    loss_hex: str
    time_s: float
    samples: int
    step_s: float


class Loss(Value):
    """The loss of a step. `mismatches` are losses of earlier runs of it that differ, as hexadecimal floats."""

    step: int
    loss: float
    hex: str
    runs: int
    mismatches: tuple[str, ...]


class Writer:
    """Appends lines; each is in the page cache when `write` returns, so it survives the death of the process.

    A line that does not fit on the disk is taken back whole, so that later ones stand on lines of their own.
    """

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)

    def write(self, line: Line) -> None:
        """Raises `OSError` if the line cannot be written."""
        fields = {name: getattr(line, name) for name in line.__struct_fields__}
        data = json.dumps(fields).encode() + b"\n"
        written = os.write(self._descriptor, data)
        if written != len(data):
            os.ftruncate(self._descriptor, os.fstat(self._descriptor).st_size - written)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def close(self) -> None:
        os.close(self._descriptor)


def path_of(job_dir: Path, attempt: str, epoch: int) -> Path:
    return job_dir / f"metrics-{attempt}-e{epoch}.jsonl"


def losses(job_dir: Path) -> dict[int, Loss]:
    """The loss of every step of a job, by step. A last line that was cut by a crash is left out.

    Raises `OSError` if a file cannot be read and `msgspec.DecodeError` if a line that is not the last is damaged.
    """
    merged: dict[int, Loss] = {}
    lines = (line for path in job_dir.glob("metrics-*-e*.jsonl") for line in _lines(path))
    for line in sorted(lines, key=lambda line: line.time_s):
        before = merged.get(line.step)
        differs = (before.hex,) if before is not None and before.hex != line.loss_hex else ()
        merged[line.step] = Loss(
            step=line.step,
            loss=float.fromhex(line.loss_hex),
            hex=line.loss_hex,
            runs=before.runs + 1 if before else 1,
            mismatches=(*(before.mismatches if before else ()), *differs),
        )
    return dict(sorted(merged.items()))


def _lines(path: Path) -> Iterator[Line]:
    for raw in path.read_bytes().splitlines(keepends=True):
        if raw.endswith(b"\n"):
            yield decode(raw, Line)
