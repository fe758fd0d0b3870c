"""A snapshot in memory that outlives the process which took it.

An arena is shared memory that somebody else holds open (the keeper of a host: it forked the rank and stays when the
rank dies). It has two halves. A snapshot goes into the half that does not hold the newest whole one; only when its last
byte is there, one word in the header says so. Whoever dies at whatever moment, the last whole snapshot is there.

What lies in a half is the rank's shard file, byte for byte, as it would be in storage, and a table that says what is
where. So writing a snapshot to storage, sending it to a peer and loading from it need no other code than files do.

Pages are touched once, when the arena is made, and used ever after: fresh memory is what snapshots cost elsewhere.
"""

import errno
import mmap
import os
import struct
from typing import Final

import msgspec

from trainmaster.core.base.value import Value, decode, encode
from trainmaster.core.checkpoint.index import Outline, Stored
from trainmaster.core.checkpoint.position import Position
from trainmaster.storage.checksum import crc32

_MAGIC: Final = 0x746D_6172_656E_6131  # "tmarena1"
_HEAD: Final = struct.Struct("<QQQ")  # magic, bytes of a table, bytes of a payload
_SLOT: Final = struct.Struct("<QQQQ")  # sequence (0: not whole), bytes of the table, its CRC-32, bytes of the payload
_SLOTS_AT: Final = 64
_HEADER_BYTES: Final = mmap.PAGESIZE


class Table(Value):
    """What a half holds: the shard of one rank."""

    rank: int
    world: int
    epoch: int
    position: Position
    items: tuple[Stored, ...]
    outline: Outline


class Snapshot:
    """A whole snapshot of one rank. Its memory is used again for the one after the next."""

    def __init__(self, sequence: int, table: Table, payload: memoryview) -> None:
        self.sequence, self.table, self.payload = sequence, table, payload


class Arena:
    """Two halves in the file `fd`, which is made as large as needed. One process writes to it at a time."""

    def __init__(self, fd: int, table_bytes: int, payload_bytes: int) -> None:
        """Raises `OSError` if there is not enough memory. What lies there already stays if it has room for this and not
        much more: how a state is laid out depends on where its tensors lie, so the next process needs a little more or
        less than the one before."""
        known = _measures(fd)
        if known is not None and _fits(known[0], table_bytes) and _fits(known[1], payload_bytes):
            self._table_bytes, self._payload_bytes = known
        else:
            self._table_bytes, self._payload_bytes = _pages(table_bytes), _pages(payload_bytes + payload_bytes // 64)
        size = _HEADER_BYTES + 2 * (self._table_bytes + self._payload_bytes)
        fresh = os.fstat(fd).st_size != size
        if fresh:
            os.ftruncate(fd, 0)
            os.ftruncate(fd, size)
            os.posix_fallocate(fd, 0, size)
        self._memory = memoryview(mmap.mmap(fd, size))
        head = (_MAGIC, self._table_bytes, self._payload_bytes)
        if fresh or _HEAD.unpack_from(self._memory) != head:
            self._memory[:_HEADER_BYTES] = bytes(_HEADER_BYTES)
            _HEAD.pack_into(self._memory, 0, *head)
        # Read, not written: somebody may be writing a snapshot here. It maps what there is, so no copy has to.
        assert len(bytes(self._memory[:: mmap.PAGESIZE])) == size // mmap.PAGESIZE

    def newest(self) -> Snapshot | None:
        """The newest whole snapshot; None if there is none. A table that does not verify is none."""
        held = [snapshot for half in (0, 1) if (snapshot := self._read(half)) is not None]
        return max(held, key=lambda snapshot: snapshot.sequence, default=None)

    def begin(self) -> "Half":
        """The half to write to next. From now on it holds nothing, until it is committed."""
        whole = self.newest()
        sequences = [self._slot(half)[0] for half in (0, 1)]
        half = 0 if whole is None else 1 - sequences.index(whole.sequence)
        _SLOT.pack_into(self._memory, _SLOTS_AT + half * _SLOT.size, 0, 0, 0, 0)
        return Half(self, half, (whole.sequence if whole is not None else 0) + 1)

    def _slot(self, half: int) -> tuple[int, int, int, int]:
        sequence, table_bytes, table_sum, payload_bytes = _SLOT.unpack_from(self._memory, _SLOTS_AT + half * _SLOT.size)
        return sequence, table_bytes, table_sum, payload_bytes

    def _areas(self, half: int) -> tuple[memoryview, memoryview]:
        start = _HEADER_BYTES + half * (self._table_bytes + self._payload_bytes)
        middle = start + self._table_bytes
        return self._memory[start:middle], self._memory[middle : middle + self._payload_bytes]

    def _read(self, half: int) -> Snapshot | None:
        sequence, table_bytes, table_sum, payload_bytes = self._slot(half)
        table, payload = self._areas(half)
        data = bytes(table[:table_bytes])
        if sequence == 0 or crc32(data) != table_sum:
            return None
        try:
            return Snapshot(sequence, decode(data, Table), payload[:payload_bytes])
        except msgspec.MsgspecError:
            return None


class Half:
    """A half that is being written."""

    def __init__(self, arena: Arena, half: int, sequence: int) -> None:
        self._arena, self._sequence = arena, sequence
        self.number = half
        self.table, self.payload = arena._areas(half)

    def commit(self, table: Table, payload_bytes: int) -> None:
        """Says that it is whole. Raises `OSError` if the table does not fit."""
        data = encode(table)
        if len(data) > len(self.table) or payload_bytes > len(self.payload):
            raise OSError(errno.ENOSPC, "a snapshot grew beyond its arena")
        self.table[: len(data)] = data
        slot = (self._sequence, len(data), crc32(data), payload_bytes)
        _SLOT.pack_into(self._arena._memory, _SLOTS_AT + self.number * _SLOT.size, *slot)


def newest_in(fd: int) -> Snapshot | None:
    """The newest whole snapshot in memory that another process wrote; None if there is none."""
    known = _measures(fd)
    return Arena(fd, *known).newest() if known is not None else None


def _measures(fd: int) -> tuple[int, int] | None:
    """Bytes of a table and of a payload of the arena that lies in a file; None if there is none."""
    size = os.fstat(fd).st_size
    if size < _HEADER_BYTES:
        return None
    magic, table_bytes, payload_bytes = _HEAD.unpack(os.pread(fd, _HEAD.size, 0))
    if magic != _MAGIC or size != _HEADER_BYTES + 2 * (table_bytes + payload_bytes):
        return None
    return table_bytes, payload_bytes


def _fits(has: int, needed: int) -> bool:
    return needed <= has <= needed + needed // 8 + (1 << 20)


def make(name: str) -> int:
    """A file of shared memory without a name in any file system; it lives as long as somebody holds it open."""
    return os.memfd_create(name, os.MFD_CLOEXEC)


def _pages(size_bytes: int) -> int:
    return -(-max(size_bytes, 1) // mmap.PAGESIZE) * mmap.PAGESIZE
