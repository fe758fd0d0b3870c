"""The bytes of files: each regular file of the mount is one plain file here, known by its number.

So the kernel can read and write it itself (passthrough) at the speed of this disk, and a file that is renamed, linked
or unlinked moves no byte. Size, times and holes are those of the plain file. They lie in 256 directories, since some
file systems are slow with one large one.

Durable means: the file is synced, and its directory too if the file is new. After the death of a mount `mend` brings
the rows of the metadata and the files here into agreement: bytes without a row were never acknowledged and go; a row
without bytes that never were synced is an empty file, as on any disk; a row that lacks bytes that were synced is
damage, which is counted, told, and answered with an error of the disk.
"""

import ctypes
import errno
import os
import threading
from pathlib import Path
from typing import Final, NamedTuple

from trainmaster.storage.fuse.names import Names

_FOLDERS: Final = 256
_BATCH: Final = 4096
_libc: Final = ctypes.CDLL(None, use_errno=True)


class Mended(NamedTuple):
    """What was not in agreement: files removed, made empty, and those that lack bytes."""

    removed: int
    emptied: int
    lost: tuple[int, ...]


class Contents:
    """Everything raises `OSError`. `root` is made where there is none."""

    def __init__(self, root: Path) -> None:
        root.mkdir(mode=0o700, exist_ok=True)
        self._root = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        if len(os.listdir(self._root)) < _FOLDERS:
            for number in range(_FOLDERS):
                _make_folder(f"{number:02x}", self._root)
            os.fsync(self._root)
        self._new: set[int] = set()
        self._lock = threading.Lock()

    def create(self, id: int) -> int:
        """A new empty file; its descriptor."""
        flags = os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
        file = os.open(_path(id), flags, 0o600, dir_fd=self._root)
        with self._lock:
            self._new.add(id)
        return file

    def open(self, id: int) -> int:
        try:
            return os.open(_path(id), os.O_RDWR | os.O_CLOEXEC, dir_fd=self._root)
        except FileNotFoundError as error:
            raise _lost(id) from error

    def status(self, id: int) -> os.stat_result:
        try:
            return os.stat(_path(id), dir_fd=self._root)
        except FileNotFoundError as error:
            raise _lost(id) from error

    def truncate(self, id: int, size: int) -> None:
        file = self.open(id)
        try:
            os.ftruncate(file, size)
        finally:
            os.close(file)

    def set_times(self, id: int, atime: int, mtime: int) -> None:
        """Nanoseconds."""
        os.utime(_path(id), ns=(atime, mtime), dir_fd=self._root)

    def sync(self, id: int, file: int, data_only: bool) -> None:
        """Returns when the bytes survive the loss of power; with the time of their change, unless `data_only`."""
        with self._lock:
            is_new = id in self._new
        if data_only and not is_new:
            os.fdatasync(file)
            return
        os.fsync(file)
        if is_new:
            folder = os.open(_folder(id), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=self._root)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)
            with self._lock:
                self._new.discard(id)

    def remove(self, id: int) -> None:
        """Does nothing if there is none."""
        with self._lock:
            self._new.discard(id)
        try:
            os.unlink(_path(id), dir_fd=self._root)
        except FileNotFoundError:
            return  # no regular file, or removed before a crash

    def statistics(self) -> os.statvfs_result:
        return os.statvfs(self._root)

    def mend(self, names: Names) -> Mended:
        """Only while no mount lives."""
        here = self._numbers()
        removed = emptied = 0
        lost: list[int] = []
        after = 0
        while rows := names.regular(after, _BATCH):
            for id, was_synced in rows:
                if id in here:
                    here.remove(id)
                elif was_synced:
                    lost.append(id)
                else:
                    os.close(self.create(id))
                    emptied += 1
            after = rows[-1][0]
        for id in here:
            self.remove(id)
            removed += 1
        return Mended(removed, emptied, tuple(lost))

    def _numbers(self) -> set[int]:
        """Of all files here."""
        found: set[int] = set()
        for number in range(_FOLDERS):
            folder = os.open(f"{number:02x}", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=self._root)
            try:
                found.update(int(name, 16) for name in os.listdir(folder))
            finally:
                os.close(folder)
        return found

    def close(self) -> None:
        os.close(self._root)


def reserve(file: int, mode: int, offset: int, size: int) -> None:
    """`fallocate` of the system, with all its modes."""
    if _libc.fallocate(file, mode, ctypes.c_int64(offset), ctypes.c_int64(size)) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def _folder(id: int) -> str:
    return f"{id % _FOLDERS:02x}"


def _path(id: int) -> str:
    return f"{id % _FOLDERS:02x}/{id:x}"


def _make_folder(name: str, root: int) -> None:
    try:
        os.mkdir(name, 0o700, dir_fd=root)
    except FileExistsError:
        return  # a start that was cut off before


def _lost(id: int) -> OSError:
    return OSError(errno.EIO, f"file {id} has lost its bytes")
