"""Which tensors were replicas in an earlier membership of the same attempt.

What differs at the first look of a membership may be a tensor of its own for each rank, and is left out
(`replicas.py`). But one that was equal on all ranks before, and is not after a restore, was restored wrongly: that is a
disagreement, and the last chance to see it. So the names that agreed are kept in the job's directory, which all hosts
share. Another attempt may run another script, and begins without.
"""

import os
from pathlib import Path

from trainmaster.core.base.ids import AttemptId
from trainmaster.core.base.value import decode, encode


def path_of(job_dir: Path, attempt: AttemptId) -> Path:
    return job_dir / f"agreed-{attempt}.json"


def note(job_dir: Path | None, attempt: AttemptId, names: frozenset[str]) -> None:
    """Whole or not at all. Raises `OSError`."""
    if job_dir is None:
        return
    job_dir.mkdir(parents=True, exist_ok=True)
    hidden = job_dir / f".agreed-{attempt}.{os.getpid()}"
    hidden.write_bytes(encode(tuple(sorted(names))))
    hidden.rename(path_of(job_dir, attempt))


def noted(job_dir: Path | None, attempt: AttemptId) -> frozenset[str]:
    if job_dir is None:
        return frozenset()
    try:
        return frozenset(decode(path_of(job_dir, attempt).read_bytes(), tuple[str, ...]))
    except FileNotFoundError:
        return frozenset()
