"""Small files that are either there in full or not at all."""

import os
import time
from pathlib import Path

from trainmaster.core.base.time import Instant


def now() -> Instant:
    """The present instant of this host."""
    return Instant(time.time_ns() // 1000)


def write_whole(path: Path, data: bytes, durable: bool = False) -> None:
    """Writes beside and renames, so that a reader never sees half. `durable`: also through a loss of power.
    Raises `OSError`."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    handle = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        written = 0
        while written < len(data):
            written += os.write(handle, data[written:])
        if durable:
            os.fsync(handle)
    finally:
        os.close(handle)
    os.replace(beside, path)
    if durable:
        sync_directory(path.parent)


def sync_directory(path: Path) -> None:
    """Makes the names in a directory last. Raises `OSError`."""
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def read_or_none(path: Path) -> bytes | None:
    """The content; None if there is no such file."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None


def tail(path: Path, lines: int, limit_bytes: int = 1_000_000) -> bytes:
    """The last lines of a file, at most `limit_bytes`. Raises `OSError`."""
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - limit_bytes))
        data = file.read(limit_bytes)
    parts = data.splitlines(keepends=True)
    return b"".join(parts[-lines:]) if lines > 0 else b""
