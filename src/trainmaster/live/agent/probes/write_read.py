"""Writes a pattern into a directory, reads it back and compares: the core of three probes."""

import os
from pathlib import Path


def write_and_read(directory: str, size_bytes: int) -> str:
    """A sentence if the directory does not hold what was written. Raises `OSError`. The file is synced and removed."""
    pattern = os.urandom(4096) * (size_bytes // 4096)
    path = Path(directory, f".probe-{os.getpid()}")
    try:
        with path.open("wb") as file:
            file.write(pattern)
            file.flush()
            os.fsync(file.fileno())
        if path.read_bytes() != pattern:
            return f"{directory} gave back other bytes than were written"
    finally:
        path.unlink(missing_ok=True)
    return ""
