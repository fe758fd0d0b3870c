"""Files that are open, and which of them the kernel reads and writes itself.

One descriptor a file, however often it is open: the kernel wants the same one for all passthrough opens of a file, and
refuses to mix them with opens through its cache. So the first open decides for all until the last is closed.

The table is a piece of memory that the holder of the mount shares with whoever serves it: numbers of files, what the
kernel calls them, how often they are open, and which request each thread counted last, since a request that was counted
but not answered comes again and must not count twice. Who takes over reads it there. It has room for `FILES_MAX`; one
more is refused, as by a system that has too many (`ENFILE`). That is what bounds the memory of the daemon: nothing else
in it grows with what users do.
"""

import errno
import mmap
import os
import struct
import threading
from typing import Final

from trainmaster.storage.fuse.channel import Channel
from trainmaster.storage.fuse.contents import Contents
from trainmaster.storage.fuse.database import Ticket

FILES_MAX: Final = 16384
THREADS_MAX: Final = 64
_HEAD: Final = struct.Struct("<Q")
_COUNTED: Final = struct.Struct("<QQQQ")
_SLOT: Final = struct.Struct("<QII")
_COUNTED_AT: Final = _HEAD.size
_SLOTS_AT: Final = _COUNTED_AT + THREADS_MAX * _COUNTED.size
_PROBE: Final = 0
"""No file has this number."""


class Shared:
    """Memory that outlives the process that serves: what was agreed with the kernel, and the table of open files."""

    def __init__(self) -> None:
        self.memory = mmap.mmap(-1, _SLOTS_AT + FILES_MAX * _SLOT.size)

    @property
    def features(self) -> int:
        """What was agreed; 0 before the start."""
        found: int = _HEAD.unpack_from(self.memory)[0]
        return found

    @features.setter
    def features(self, agreed: int) -> None:
        _HEAD.pack_into(self.memory, 0, agreed)

    def put(self, slot: int, id: int, backing: int, count: int) -> None:
        _SLOT.pack_into(self.memory, _SLOTS_AT + slot * _SLOT.size, id, backing, count)

    def slots(self) -> list[tuple[int, int, int]]:
        return list(_SLOT.iter_unpack(self.memory[_SLOTS_AT:]))

    def note(self, ticket: Ticket, order: int, id: int, count: int) -> None:
        """Before a request is counted: which one, of which file, and the count that will be then."""
        _COUNTED.pack_into(self.memory, _COUNTED_AT + ticket.slot * _COUNTED.size, order, ticket.number, id, count)

    def counted(self) -> tuple[int, frozenset[int]]:
        """The last order, and the numbers of the last requests that were counted. All that were noted are, but perhaps
        the very last: it is if its count is there."""
        notes = sorted(each for each in _COUNTED.iter_unpack(self.memory[_COUNTED_AT:_SLOTS_AT]) if each[0])
        if not notes:
            return 0, frozenset()
        order, _, id, count = notes[-1]
        if {each: many for each, _, many in self.slots() if many}.get(id, 0) != count:
            notes.pop()
        return order, frozenset(number for _, number, _, _ in notes)


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
        self._order = 0
        self._counted: frozenset[int] = frozenset()
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
        """Goes on with what another process had open; how many files that is. Raises `OSError`."""
        self._order, self._counted = self._shared.counted()
        for slot, (id, backing, count) in enumerate(self._shared.slots()):
            if count:
                self._free.remove(slot)
                self._files[id] = OpenFile(self._contents.open(id), slot, backing, count)
        return len(self._files)

    def add(self, id: int, ticket: Ticket, file: int | None = None) -> OpenFile:
        """One open more of a file. `file` is its descriptor where the caller has one already, and is used or closed.
        `ticket` is the request, which counts once however often it comes. Raises `OSError`."""
        with self._lock:
            found = self._files.get(id)
            if found is None:
                found = self._begin(id, file)
            elif file is not None:
                os.close(file)
            if ticket.number not in self._counted:
                self._count(id, found, ticket, 1)
        return found

    def _count(self, id: int, found: OpenFile, ticket: Ticket, more: int) -> None:
        self._order += 1
        found.count += more
        self._shared.note(ticket, self._order, id, found.count)
        held = (id, found.backing) if found.count else (0, 0)
        self._shared.put(found.slot, *held, found.count)

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

    def remove(self, id: int, ticket: Ticket) -> None:
        """One open less. `ticket` as in `add`."""
        with self._lock:
            if ticket.number in self._counted:
                return
            found = self._files[id]
            self._count(id, found, ticket, -1)
            if found.count:
                return
            del self._files[id]
            self._free.append(found.slot)
            if found.backing:
                self._channel.take_back(found.backing)
            os.close(found.file)

    def __len__(self) -> int:
        return len(self._files)
