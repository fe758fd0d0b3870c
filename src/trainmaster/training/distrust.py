"""States that are not believed any more: those that an epoch took after its replicas agreed for the last time.

When replicas disagree (`replicas.py`) the corruption happened somewhere after the last agreement, so every snapshot and
checkpoint since then may hold it, whole and with right checksums. They are not deleted, since other hosts hold copies
and may be away; a line in the job's directory, which all hosts share, says what to pass over. The epoch is part of it:
the same steps, done again by the next epoch, are believed.
"""

import os
from pathlib import Path
from typing import Final

from trainmaster.core.base.ids import AttemptId
from trainmaster.core.base.value import Value, decode, encode

NAME: Final = "distrusted.jsonl"


class Distrust(Value):
    attempt: AttemptId
    epoch: int
    after_step: int
    """Later steps of this epoch are not used."""

    def covers(self, attempt: AttemptId, epoch: int, step: int) -> bool:
        return (self.attempt, self.epoch) == (attempt, epoch) and step > self.after_step


def note(job_dir: Path | None, distrust: Distrust) -> None:
    """Adds a line. Without a directory (no Trainmaster) nothing is taken that a later epoch could meet."""
    if job_dir is None:
        return
    job_dir.mkdir(parents=True, exist_ok=True)
    with (job_dir / NAME).open("ab") as stream:
        stream.write(encode(distrust) + b"\n")
        stream.flush()
        os.fsync(stream.fileno())


def noted(job_dir: Path | None) -> tuple[Distrust, ...]:
    """What was noted, by any epoch."""
    if job_dir is None:
        return ()
    try:
        lines = (job_dir / NAME).read_bytes().splitlines()
    except FileNotFoundError:
        return ()
    return tuple(decode(line, Distrust) for line in lines if line)
