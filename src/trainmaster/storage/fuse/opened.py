"""Files that are open, and which of them the kernel reads and writes itself.

One descriptor a file, however often it is open: the kernel wants the same one for all passthrough opens of a file, and
refuses to mix them with opens through its cache. So the first open decides for all until the last is closed.

The table is a piece of memory that the holder of the mount shares with whoever serves it: numbers of files, what the
kernel calls them, and how often they are open. Who takes over reads it there. It has room for `FILES_MAX`; one more is
refused, as by a system that has too many (`ENFILE`). That is what bounds the memory of the daemon: nothing else in it
grows with what users do.
"""

import errno
import mmap
import os
import struct
import threading
from typing import Final

from trainmaster.storage.fuse.channel import Channel
from trainmaster.storage.fuse.contents import Contents

FILES_MAX: Final = 16384
_HEAD: Final = struct.Struct("<Q")
_SLOT: Final = struct.Struct("<QII")
_HEAD_BYTES: Final = 16
_PROBE: Final = 0
"""No file has this number."""


class Shared:
    """Memory that outlives the process that serves: what was agreed with the kernel, and the table of open files."""

    def __init__(self) -> None:
        self.memory = mmap.mmap(-1, _HEAD_BYTES + FILES_MAX * _SLOT.size)

    @property
    def features(self) -> int:
        """What was agreed; 0 before the start."""
        found: int = _HEAD.unpack_from(self.memory)[0]
        return found

    @features.setter
    def features(self, agreed: int) -> None:
        _HEAD.pack_into(self.memory, 0, agreed)

    def put(self, slot: int, id: int, backing: int, count: int) -> None:
        _SLOT.pack_into(self.memory, _HEAD_BYTES + slot * _SLOT.size, id, backing, count)

    def slots(self) -> list[tuple[int, int, int]]:
        return list(_SLOT.iter_unpack(self.memory[_HEAD_BYTES:]))


class OpenFile:
    """A file of which at least one open exists. `backing` is 0 where the kernel asks for its bytes."""

    __slots__ = ("accepted", "backing", "count", "file", "slot")

    def __init__(self, file: int, slot: int, backing: int, count: int) -> None:
        self.file, self.slot, self.backing, self.count = file, slot, backing, count
        self.accepted: tuple[int, int] | None = None


class Opened:
    def __init__(self, shared: Shared, channel: Channel, contents: Contents, files_max: int = FILES_MAX) -> None:
        assert 0 < files_max <= FILES_MAX
        self._shared, self._channel, self._contents = shared, channel, contents
        self._files: dict[int, OpenFile] = {}
        self._free = list(range(files_max - 1, -1, -1))
        self._lock = threading.Lock()
        self.passthrough = False

    def probe(self) -> OSError | None:
        """Begins to lend files to the kernel if it takes one; why it does not."""
        file = self._contents.create(_PROBE)
        try:
            self._channel.take_back(self._channel.lend(file))
        except OSError as error:
            return error
        finally:
            os.close(file)
            self._contents.remove(_PROBE)
        self.passthrough = True
        return None

    def take_over(self) -> int:
        """Goes on with what another process had open; how many files that is."""
        for slot, (id, backing, count) in enumerate(self._shared.slots()):
            if count:
                self._free.remove(slot)
                self._files[id] = OpenFile(self._contents.open(id), slot, backing, count)
        return len(self._files)

    def add(self, id: int, file: int | None = None) -> OpenFile:
        """One open more of a file. `file` is its descriptor where the caller has one already, and is used or closed.
        Raises `OSError`."""
        with self._lock:
            found = self._files.get(id)
            if found is None:
                found = self._begin(id, file)
            elif file is not None:
                os.close(file)
            found.count += 1
            self._shared.put(found.slot, id, found.backing, found.count)
        return found

    def _begin(self, id: int, file: int | None) -> OpenFile:
        if not self._free:
            if file is not None:
                os.close(file)
            raise OSError(errno.ENFILE, f"{len(self._files)} files are open, and the mount takes no more")
        descriptor = self._contents.open(id) if file is None else file
        try:
            backing = self._channel.lend(descriptor) if self.passthrough else 0
        except OSError:
            os.close(descriptor)
            raise
        found = self._files[id] = OpenFile(descriptor, self._free.pop(), backing, 0)
        return found

    def get(self, id: int) -> OpenFile | None:
        return self._files.get(id)

    def descriptor(self, id: int) -> int:
        found = self._files.get(id)
        if found is None:
            raise OSError(errno.EBADF, f"file {id} is not open")
        return found.file

    def remove(self, id: int) -> None:
        """One open less. One that is not known (an open that was told to nobody) is none."""
        with self._lock:
            found = self._files.get(id)
            if found is None:
                return
            found.count -= 1
            self._shared.put(found.slot, id if found.count else 0, found.backing if found.count else 0, found.count)
            if found.count:
                return
            del self._files[id]
            self._free.append(found.slot)
            if found.backing:
                self._channel.take_back(found.backing)
            os.close(found.file)

    def __len__(self) -> int:
        return len(self._files)
