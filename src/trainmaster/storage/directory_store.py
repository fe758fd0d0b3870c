"""Checkpoints in a directory of a file system that all hosts share.

Blocks are written past the page cache (`O_DIRECT`) where the file system can do it: the cache would first have to find
fresh pages for bytes that nobody reads again, and throw out those that somebody does. Where it can't (some network and
overlay file systems) the same bytes go through the cache. Space is asked for before the first byte, so that a full disk
or a quota says so at once and not after minutes. Durable means: file synced, then its directory (`directory.publish`
does that, once for all files of a group).

Reading goes through the cache, in order, straight into the memory of the caller: read-ahead keeps the disk busy, and
the ranks of a host share what was read. Measured against direct reads into a buffer and a copy: 1.7 times faster.
"""

import ctypes
import errno
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from trainmaster.storage.directory import write_synced
from trainmaster.storage.pieces import PAGE_BYTES

_PARTS_MAX: Final = 1000
_NO_DIRECT: Final = (errno.EINVAL, errno.ENOTSUP, errno.ENOSYS)
_libc: Final = ctypes.CDLL(None, use_errno=True)


class DirectoryStore:
    """See `BlobStore`."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def create(self, group: str, name: str, size_bytes: int) -> "FileSink":
        return FileSink(self._root / group / name, size_bytes)

    def open(self, group: str, name: str) -> "FileSource":
        return FileSource(self._root / group / name)

    def put(self, group: str, name: str, data: bytes) -> None:
        write_synced(self._root / group / name, data)

    def get(self, group: str, name: str) -> bytes:
        return (self._root / group / name).read_bytes()

    def sizes(self, group: str) -> dict[str, int]:
        with os.scandir(self._root / group) as entries:
            return {entry.name: entry.stat().st_size for entry in entries if entry.is_file(follow_symlinks=False)}

    def path(self, group: str) -> Path | None:
        return self._root / group


class FileSink:
    """See `Sink`. A file of which every block is written once."""

    def __init__(self, path: Path, size_bytes: int) -> None:
        self._size_bytes = size_bytes
        self._padded = False
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        self._file = os.open(path, flags, 0o644)
        try:
            if size_bytes:
                _reserve(self._file, size_bytes)
            self._direct = _open_direct(path)
        except OSError:
            os.close(self._file)
            raise

    def write(self, parts: Sequence[memoryview], offset: int) -> None:
        whole = list(parts)
        tail = len(whole[-1]) % PAGE_BYTES if whole else 0
        end = offset + sum(map(len, whole))
        if tail:
            rest = whole[-1][len(whole[-1]) - tail :]
            whole[-1] = whole[-1][: len(whole[-1]) - tail]
            _write_all(self._file, [rest], end - tail)
        if self._direct is not None:
            try:
                _write_all(self._direct, whole, offset)
                return
            except OSError as error:
                if error.errno not in _NO_DIRECT:
                    raise
        _write_all(self._file, whole, offset)  # a file system that opens files for direct writes and then refuses them

    def close(self) -> None:
        try:
            os.fsync(self._file)
        finally:
            self.abandon()

    def abandon(self) -> None:
        for file in (self._file, self._direct):
            if file is not None:
                os.close(file)
        self._direct = None


class FileSource:
    """See `Source`."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self.size_bytes = os.fstat(self._file).st_size
        os.posix_fadvise(self._file, 0, 0, os.POSIX_FADV_SEQUENTIAL)

    def read_into(self, parts: Sequence[memoryview], offset: int) -> None:
        _move(os.preadv, self._file, parts, offset, EOFError(f"{self._path.name} ends at byte {self.size_bytes}"))

    def close(self) -> None:
        os.close(self._file)


def _open_direct(path: Path) -> int | None:
    """The file once more, past the page cache; None if its file system cannot do that."""
    try:
        return os.open(path, os.O_WRONLY | os.O_DIRECT | os.O_CLOEXEC)
    except OSError as error:
        if error.errno in _NO_DIRECT:
            return None
        raise


def _reserve(file: int, size_bytes: int) -> None:
    """Asks for the space; raises `OSError` if there is not enough. A file system that cannot promise it is believed to
    have it until a write says otherwise: the C library would promise by writing zeros everywhere."""
    if _libc.fallocate(file, 0, ctypes.c_int64(0), ctypes.c_int64(size_bytes)) == 0:
        return
    number = ctypes.get_errno()
    if number not in _NO_DIRECT:
        raise OSError(number, os.strerror(number))


def _write_all(file: int, parts: Sequence[memoryview], offset: int) -> None:
    _move(os.pwritev, file, parts, offset, OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))


def _move(
    act: Callable[[int, list[memoryview], int], int],
    file: int,
    parts: Sequence[memoryview],
    offset: int,
    nothing: Exception,
) -> None:
    """Reads or writes all parts, however often the kernel stops in the middle; raises `nothing` if it does nothing."""
    left = [part for part in parts if len(part)]
    while left:
        count = act(file, left[:_PARTS_MAX], offset)
        if count == 0:
            raise nothing
        offset += count
        while left and count >= len(left[0]):
            count -= len(left.pop(0))
        if count:
            left[0] = left[0][count:]
