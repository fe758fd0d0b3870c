"""What all ranks of a host read, fetched once a host: files in memory, one directory an attempt.

The first rank that wants a shard takes its lock, streams it from the store into a file, sums it on the way, and gives
it its name; the others wait for the lock and map the same pages. Like one person of a household who fetches the paper.

Nothing here outlives a crash to anybody's harm. Locks are the kernel's and go with their holder. A file gets its name
when it is whole; whoever takes the lock next truncates what was half. Each rank sums what it maps, so a file that was
damaged since is fetched anew. Directories are named by attempt, so a new attempt meets nothing of an old one; those of
attempts that no process holds any more are removed by the next one that comes.

Rejected: named shared-memory objects (a crash leaves them, and the next start fails with "file exists"), and one reader
that serves the others (they fail with it). Limit: a host holds all shards that its ranks have read, whole.
"""

import fcntl
import mmap
import os
import re
import shutil
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from trainmaster.storage.checksum import crc32

PREFIX: Final = "data-"
ALIVE: Final = "alive"
PIECE_BYTES: Final = 8 << 20
_TRIES: Final = 2
Read = Callable[[memoryview, int], None]
"""Fills a part of a shard, from an offset on."""


class Corrupt(Exception):
    """The store does not hold what its index says."""


class HostCache:
    """The shards of one attempt on this host. For threads and processes; close it when nothing is read any more."""

    def __init__(self, parent: Path, attempt: str) -> None:
        """Makes the directory, and removes those of dead attempts. Raises `OSError`."""
        self._root = parent / f"{PREFIX}{_plain(attempt)}"
        parent.mkdir(parents=True, exist_ok=True)
        self._alive = self._hold()
        self.removed = tuple(_reap(parent, self._root.name))
        self.fetched = 0
        """Shards that this process streamed from the store."""

    def get(self, name: str, size_bytes: int, crc: int, read: Read) -> mmap.mmap:
        """The bytes of a shard, mapped; writes to it are private. Raises `Corrupt`, `OSError`."""
        assert size_bytes > 0
        path = self._root / _plain(name)
        with _locked(path.with_name(path.name + ".lock")):
            found = _mapped(path, size_bytes)
            if found is not None and crc32(found) == crc:
                return found
            for last in (False, True):
                told = self._fetch(path, size_bytes, read)
                if told == crc:
                    self.fetched += 1
                    break
                path.unlink()
                if last:
                    raise Corrupt(f"{name} has CRC-32 {told:08x}, expected {crc:08x}, in each of {_TRIES} reads")
            fresh = _mapped(path, size_bytes)
            assert fresh is not None
            return fresh

    def close(self) -> None:
        """Lets go. The files stay for the others, and for the next epoch of the attempt."""
        os.close(self._alive)

    def _fetch(self, path: Path, size_bytes: int, read: Read) -> int:
        """Streams a shard into its file; the CRC-32 of what came."""
        half = path.with_name(path.name + ".half")
        handle = os.open(half, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            os.posix_fallocate(handle, 0, size_bytes)
            with mmap.mmap(handle, size_bytes) as page, memoryview(page) as view:
                told = 0
                for start in range(0, size_bytes, PIECE_BYTES):
                    with view[start : start + PIECE_BYTES] as piece:
                        read(piece, start)
                        told = crc32(piece, told)
        except BaseException:
            half.unlink()
            raise
        finally:
            os.close(handle)
        half.rename(path)
        return told

    def _hold(self) -> int:
        """Takes part in the attempt's lock; the file handle that holds it."""
        while True:
            self._root.mkdir(exist_ok=True)
            try:
                handle = os.open(self._root / ALIVE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            except FileNotFoundError:
                continue  # removed since, by one who took it for dead
            fcntl.flock(handle, fcntl.LOCK_SH)
            if _is(handle, self._root / ALIVE):
                return handle
            os.close(handle)


def _reap(parent: Path, own: str) -> Iterator[str]:
    """Removes the directories of attempts that nobody holds; their names."""
    for root in sorted(parent.glob(f"{PREFIX}*")):
        if root.name == own:
            continue
        try:
            handle = os.open(root / ALIVE, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            continue  # just made, or just removed
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            continue
        else:
            shutil.rmtree(root, ignore_errors=True)
            yield root.name
        finally:
            os.close(handle)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _mapped(path: Path, size_bytes: int) -> mmap.mmap | None:
    """The file, or None if there is none of that size."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        if os.fstat(handle).st_size != size_bytes:
            return None
        return mmap.mmap(handle, size_bytes, access=mmap.ACCESS_COPY)
    finally:
        os.close(handle)


def _is(handle: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(handle), os.stat(path))
    except FileNotFoundError:
        return False


def _plain(name: str) -> str:
    """A name that is one for a file too; names that differ stay different."""
    plain = re.sub(r"[^A-Za-z0-9._-]", "_", name)
    return plain if plain == name and name.strip(".") else f"{plain}-{zlib.crc32(name.encode()):08x}"
