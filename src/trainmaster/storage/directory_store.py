"""Checkpoints in a directory of a file system that all hosts share.

Blocks are written past the page cache (`O_DIRECT`) where the file system can do it: the cache would first have to find
fresh pages for bytes that nobody reads again, and throw out those that somebody does. Where it can't (some network and
overlay file systems) the same bytes go through the cache. Space is asked for before the first byte, so that a full disk
or a quota says so at once and not after minutes. Durable means: file synced, then its directory (`saving.publish`
does that, once for all files of a group).

Reading goes past the cache as well: pages that nobody reads again cost as much as the disk, and several times as much
where the memory of a virtual machine is not backed yet. What lies in the memory of the caller as it does in the file,
page for page, is read into it; edges and the rest go by way of a buffer. What the cache holds already comes from there,
and what several processes of a host are about to read goes through it (`FileSource.share`).
"""

import ctypes
import errno
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, TypeVar

from trainmaster.storage.buffers import BUFFER_BYTES, POOL
from trainmaster.storage.directory import write_synced
from trainmaster.storage.pieces import PAGE_BYTES, SMALL_BYTES, address_of, phase

T = TypeVar("T")
_PARTS_MAX: Final = 1000
_NO_DIRECT: Final = (errno.EINVAL, errno.ENOTSUP, errno.ENOSYS)
_CACHESTAT: Final = 451  # the number of the system call, the same on x86-64 and on ARM
_libc: Final = ctypes.CDLL(None, use_errno=True)


class DirectoryStore:
    """See `BlobStore`."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def create(self, group: str, name: str, size_bytes: int) -> "FileSink":
        return FileSink(self._root / group / name, size_bytes)

    def open(self, group: str, name: str) -> "FileSource":
        path = self._root / group / name
        return _looking_again(path, lambda: FileSource(path))

    def put(self, group: str, name: str, data: bytes) -> None:
        write_synced(self._root / group / name, data)

    def get(self, group: str, name: str) -> bytes:
        path = self._root / group / name
        return _looking_again(path, path.read_bytes)

    def sizes(self, group: str) -> dict[str, int]:
        with os.scandir(self._root / group) as entries:
            return {entry.name: entry.stat().st_size for entry in entries if entry.is_file(follow_symlinks=False)}

    def groups(self) -> list[str]:
        """Names of the directories here; none if there is no such directory."""
        if not self._root.is_dir():
            return []
        return sorted(entry.name for entry in os.scandir(self._root) if entry.is_dir(follow_symlinks=False))

    def remove(self, group: str, names: Sequence[str]) -> None:
        for name in names:
            (self._root / group / name).unlink(missing_ok=True)

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
            self._direct = _open_direct(path, os.O_WRONLY)
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
        large = self.size_bytes >= SMALL_BYTES and not _mostly_cached(self._file, self.size_bytes)
        self._direct = _open_direct(path, os.O_RDONLY) if large else None

    def share(self) -> None:
        """Reads through the page cache from now on, since other processes of this host are about to read the same."""
        if self._direct is not None:
            os.close(self._direct)
            self._direct = None
        os.posix_fadvise(self._file, 0, 0, os.POSIX_FADV_SEQUENTIAL)

    def read_into(self, parts: Sequence[memoryview], offset: int) -> None:
        size = sum(map(len, parts))
        if offset + size > self.size_bytes:
            raise self._ended()
        if self._direct is None or size < SMALL_BYTES or not self._read_direct(self._direct, parts, offset, size):
            _move(os.preadv, self._file, parts, offset, self._ended())

    def _read_direct(self, file: int, parts: Sequence[memoryview], offset: int, size: int) -> bool:
        """Whether it was read. If not, nothing is known of the parts."""
        start = offset - offset % PAGE_BYTES
        if offset + size - start > BUFFER_BYTES:
            return False
        with POOL.borrow() as buffer:
            vectors, copies = _scattered(parts, offset, buffer)
            try:
                count = os.preadv(file, vectors, start)
            except OSError as error:
                if error.errno not in _NO_DIRECT:
                    raise
                return False  # a file system that opens files for direct reads and then refuses them
            if start + count < offset + size:
                return False
            for at, into in copies:
                _copy(buffer[at : at + len(into)], into)
        return True

    def _ended(self) -> EOFError:
        return EOFError(f"{self._path.name} ends at byte {self.size_bytes}")

    def close(self) -> None:
        for file in (self._file, self._direct):
            if file is not None:
                os.close(file)
        self._direct = None


def _scattered(
    parts: Sequence[memoryview], offset: int, buffer: memoryview
) -> tuple[list[memoryview], list[tuple[int, memoryview]]]:
    """Whole pages to read from the page on in which `offset` lies, and what to copy out of `buffer` then: places in it,
    and where that belongs."""
    start = done = offset - offset % PAGE_BYTES
    vectors: list[memoryview] = []
    copies: list[tuple[int, memoryview]] = []
    at = offset
    for part in parts:
        end = at + len(part)
        first, last = -(-at // PAGE_BYTES) * PAGE_BYTES, end // PAGE_BYTES * PAGE_BYTES
        if last - first >= SMALL_BYTES and phase(at, address_of(part)) == 0:
            vectors += [buffer[done - start : first - start], part[first - at : last - at]]
            copies += [(at - start, part[: first - at]), (last - start, part[last - at :])]
            done = last
        else:
            copies.append((at - start, part))
        at = end
    until = -(-at // PAGE_BYTES) * PAGE_BYTES
    vectors.append(buffer[done - start : until - start])
    return [vector for vector in vectors if len(vector)], [copy for copy in copies if len(copy[1])]


def _copy(source: memoryview, into: memoryview) -> None:
    if len(into) < SMALL_BYTES:
        into[:] = source
    else:
        ctypes.memmove(address_of(into), address_of(source), len(into))  # without the interpreter's lock


class _Cached(ctypes.Structure):
    """What `cachestat` tells, in pages."""

    _fields_ = [(name, ctypes.c_uint64) for name in ("held", "dirty", "writeback", "evicted", "recently_evicted")]


def _mostly_cached(file: int, size_bytes: int) -> bool:
    """Whether more than half of a file is in the page cache. A kernel that does not tell (before Linux 6.5): no."""
    span, told = (ctypes.c_uint64 * 2)(0, size_bytes), _Cached()
    if _libc.syscall(_CACHESTAT, file, ctypes.byref(span), ctypes.byref(told), 0) != 0:
        return False
    return int(told.held) * PAGE_BYTES > size_bytes // 2


def _looking_again(path: Path, act: Callable[[], T]) -> T:
    """What `act` gives. A host that shares a file system may remember a name that was replaced elsewhere, and say for
    seconds that there is no such file; a look at the directory cures that. What the directory does not list is gone."""
    try:
        return act()
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.ESTALE) or not _is_listed(path):
            raise
    return act()


def _is_listed(path: Path) -> bool:
    try:
        return path.name in os.listdir(path.parent)
    except OSError:
        return False


def _open_direct(path: Path, access: int) -> int | None:
    """The file once more, past the page cache; None if its file system cannot do that."""
    try:
        return os.open(path, access | os.O_DIRECT | os.O_CLOEXEC)
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
