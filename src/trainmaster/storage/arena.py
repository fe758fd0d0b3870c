"""A snapshot in memory that outlives the process which took it.

An arena is shared memory that is not the rank's alone: a file on a memory file system, which goes with the host and not
with a process, or a file without a name that somebody holds open. It has parts. A snapshot goes into a part that nobody
needs: not the newest whole one, not the newest that a peer has, not the one that is being written to storage. Only when
its last byte is there, one word in the header says so. Whoever dies at whatever moment, the last whole one is there.

What lies in a part is the rank's shard file, byte for byte, as it would be in storage, and a table that says what is
where. So writing a snapshot to storage, sending it to a peer and loading from it need no other code than files do.

Nobody locks. Each word of the header has one writer: the rank says what is whole, the *vault* of the host (a process of
the keeper) what it is reading and what came of it. A reader asks again after it has read whether the snapshot is still
whole (`Snapshot.is_whole`): a part is declared empty before the first byte of it changes, so a torn read is seen.
Rejected: a lock, which a dead process would hold for ever.

Pages are touched once, when the arena is made, and used ever after: fresh memory is what snapshots cost elsewhere.
Limit: that stores are seen in the order in which they were made (x86). On processors that reorder them a torn read may
pass for a whole one; of a replica its sums would tell.
"""

import ctypes
import errno
import mmap
import os
import struct
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Final

import msgspec

from trainmaster.core.base.ids import AttemptId, JobId
from trainmaster.core.base.value import Value, decode, encode
from trainmaster.core.checkpoint.index import Outline, Stored
from trainmaster.core.checkpoint.position import Position
from trainmaster.storage.checksum import crc32
from trainmaster.storage.room import refuse_full

PARTS: Final = 3
"""The newest, one that is read, one to write to. Where nobody reads, two are enough."""
BEFORE: Final = ".before"
"""Ending of an arena that was exchanged for one of other measures and is still the last whole one."""
FRESH: Final = ".fresh"
"""Ending of one that is being made."""

_MAGIC: Final = 0x746D_6172_656E_6132  # "tmarena2"
_HEAD: Final = struct.Struct("<QQQQ")  # magic, number of parts, bytes of a table, bytes of a payload
_SLOT: Final = struct.Struct("<QQQ")  # bytes of the table, its CRC-32, bytes of the payload
_WORD: Final = struct.Struct("<q")
_LINE_BYTES: Final = 64
_SLOTS_AT: Final = 64  # of each part: its sequence (0: not whole), then a _SLOT
_PARTS_LIMIT: Final = 8
# The vault writes these and nobody else does; each has a line of the cache to itself.
_WORDS: Final = {
    "busy_sequence": 1024,  # the snapshot that is being written to storage; 0: none
    "replicated_sequence": 1088,  # the newest snapshot that is whole at a peer; 0: none
    "stored_step": 1152,  # the newest step that was published from here; 0: none
    "failed_stores": 1216,  # how many ended without being published
    "given_up_sequence": 1280,  # the newest snapshot of which no copy could be made at a peer (the note says why)
}
_NOTE_AT: Final = 2048  # what the vault last complained of: its length, then UTF-8
_NOTE_LIMIT: Final = 2000
_HEADER_BYTES: Final = mmap.PAGESIZE
_MADV_POPULATE_WRITE: Final = 23
_libc: Final = ctypes.CDLL(None, use_errno=True)
_libc.madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)


class Table(Value):
    """What a part holds: the shard of one rank. `sums` has eight digits for each block (see `core/checkpoint/index.py`)
    where somebody has summed the bytes, as is done for every replica; else it is empty."""

    rank: int
    world: int
    epoch: int
    position: Position
    items: tuple[Stored, ...]
    outline: Outline
    job: JobId = JobId("")
    attempt: AttemptId = AttemptId("")
    sums: str = ""


class Snapshot:
    """A whole snapshot of one rank. Its memory is used again for a later one: who has read it asks `is_whole`."""

    def __init__(
        self, sequence: int, table: Table, payload: memoryview, is_whole: Callable[[], bool] = lambda: True
    ) -> None:
        self.sequence, self.table, self.payload, self.is_whole = sequence, table, payload, is_whole


class Arena:
    """The parts in the file `fd`, which is made as large as needed. One process takes snapshots into it at a time."""

    def __init__(self, fd: int, table_bytes: int, payload_bytes: int, parts: int = PARTS) -> None:
        """Raises `OSError` if there is not enough memory. What lies there already stays if it has room for this and not
        much more: how a state is laid out depends on where its tensors lie, so the next process needs a little more or
        less than the one before."""
        assert 2 <= parts <= _PARTS_LIMIT, parts
        known = _measures(fd)
        fresh = known is None or not _fit(known, (parts, table_bytes, payload_bytes))
        if fresh or known is None:
            known = (parts, _pages(table_bytes), _pages(payload_bytes + payload_bytes // 64))
            size = _size(known)
            refuse_full(size - 512 * os.fstat(fd).st_blocks)
            os.ftruncate(fd, 0)
            os.ftruncate(fd, size)
            os.posix_fallocate(fd, 0, size)
        self._map(fd, known)
        if fresh:
            self._memory[_HEAD.size : _HEADER_BYTES] = bytes(_HEADER_BYTES - _HEAD.size)
            _HEAD.pack_into(self._memory, 0, _MAGIC, *known)
        _populate(self._memory)

    def _map(self, fd: int, measures: tuple[int, int, int]) -> None:
        self.parts, self._table_bytes, self._payload_bytes = measures
        self._memory = memoryview(mmap.mmap(fd, _size(measures)))

    @classmethod
    def found(cls, fd: int) -> "Arena | None":
        """The arena that another process made in a file; None if there is none. Nothing of it is changed or touched."""
        known = _measures(fd)
        if known is None:
            return None
        arena = cls.__new__(cls)
        arena._map(fd, known)
        return arena

    @property
    def size_bytes(self) -> int:
        return len(self._memory)

    # --- what is whole ---

    def newest(self) -> Snapshot | None:
        """The newest whole snapshot; None if there is none. A table that does not verify is none."""
        return next(iter(self.snapshots()), None)

    def snapshots(self) -> list[Snapshot]:
        """All that are whole, the newest first."""
        held = [snapshot for part in range(self.parts) if (snapshot := self._read(part)) is not None]
        return sorted(held, key=lambda snapshot: -snapshot.sequence)

    def find(self, sequence: int) -> Snapshot | None:
        """The snapshot of this number, if it is whole."""
        return next((snapshot for snapshot in self.snapshots() if snapshot.sequence == sequence), None)

    # --- the rank's side ---

    def is_free(self, keep: Collection[int] = ()) -> bool:
        """Whether there is a part to write to."""
        return self._free(keep) is not None

    def begin(self, keep: Collection[int] = ()) -> "Part | None":
        """The part to write to next, which from now on holds nothing until it is committed; None if each part is needed
        (the newest, the newest at a peer, one that is on its way to storage, those with the numbers `keep`)."""
        part = self._free(keep)
        if part is None:
            return None
        self._put_sequence(part, 0)
        return Part(self, part, 1 + max(self._sequence(each) for each in range(self.parts)))

    def _free(self, keep: Collection[int]) -> int | None:
        whole = [self._whole_sequence(part) for part in range(self.parts)]
        kept = {max(whole), self.word("busy_sequence"), self.word("replicated_sequence"), *keep} - {0}
        free = [part for part in range(self.parts) if whole[part] not in kept]
        return min(free, key=lambda part: whole[part], default=None)

    def forget_after(self, step: int) -> None:
        """Drops snapshots of later steps: the job went on from this one, so they are of a past that did not happen."""
        for snapshot in self.snapshots():
            if snapshot.table.position.step > step:
                part = [self._sequence(each) for each in range(self.parts)].index(snapshot.sequence)
                self._put_sequence(part, 0)

    # --- the vault's side ---

    def word(self, name: str) -> int:
        value: int = _WORD.unpack_from(self._memory, _WORDS[name])[0]
        return value

    def put_word(self, name: str, value: int) -> None:
        _WORD.pack_into(self._memory, _WORDS[name], value)

    def note(self) -> str:
        length = min(max(_WORD.unpack_from(self._memory, _NOTE_AT)[0], 0), _NOTE_LIMIT)
        start = _NOTE_AT + _WORD.size
        return bytes(self._memory[start : start + length]).decode(errors="replace")

    def put_note(self, text: str) -> None:
        data = text.encode()[:_NOTE_LIMIT]
        start = _NOTE_AT + _WORD.size
        self._memory[start : start + len(data)] = data
        _WORD.pack_into(self._memory, _NOTE_AT, len(data))

    # --- parts ---

    def _sequence(self, part: int) -> int:
        sequence: int = _WORD.unpack_from(self._memory, _SLOTS_AT + part * _LINE_BYTES)[0]
        return sequence

    def _put_sequence(self, part: int, sequence: int) -> None:
        _WORD.pack_into(self._memory, _SLOTS_AT + part * _LINE_BYTES, sequence)

    def _slot(self, part: int) -> tuple[int, int, int]:
        at = _SLOTS_AT + part * _LINE_BYTES + _WORD.size
        table_bytes, table_sum, payload_bytes = _SLOT.unpack_from(self._memory, at)
        return table_bytes, table_sum, payload_bytes

    def _areas(self, part: int) -> tuple[memoryview, memoryview]:
        start = _HEADER_BYTES + part * (self._table_bytes + self._payload_bytes)
        middle = start + self._table_bytes
        return self._memory[start:middle], self._memory[middle : middle + self._payload_bytes]

    def _whole_sequence(self, part: int) -> int:
        """The number of the snapshot in a part; 0 if there is none or its table does not verify."""
        table_bytes, table_sum, payload_bytes = self._slot(part)
        table, payload = self._areas(part)
        sound = payload_bytes <= len(payload) and crc32(bytes(table[:table_bytes])) == table_sum
        return self._sequence(part) if sound else 0

    def _read(self, part: int) -> Snapshot | None:
        sequence = self._sequence(part)
        table_bytes, table_sum, payload_bytes = self._slot(part)
        table, payload = self._areas(part)
        data = bytes(table[:table_bytes])
        if sequence == 0 or payload_bytes > len(payload) or crc32(data) != table_sum:
            return None
        if self._sequence(part) != sequence:
            return None  # it was written over in between
        try:
            decoded = decode(data, Table)
        except msgspec.MsgspecError:
            return None
        return Snapshot(sequence, decoded, payload[:payload_bytes], lambda: self._sequence(part) == sequence)


class Part:
    """A part that is being written."""

    def __init__(self, arena: Arena, part: int, sequence: int) -> None:
        self._arena, self.sequence = arena, sequence
        self.number = part
        self.table, self.payload = arena._areas(part)

    def commit(self, table: Table, payload_bytes: int) -> None:
        """Says that it is whole. Raises `OSError` if the table does not fit."""
        data = encode(table)
        if len(data) > len(self.table) or payload_bytes > len(self.payload):
            raise OSError(errno.ENOSPC, "a snapshot grew beyond its arena")
        self.table[: len(data)] = data
        at = _SLOTS_AT + self.number * _LINE_BYTES + _WORD.size
        _SLOT.pack_into(self._arena._memory, at, len(data), crc32(data), payload_bytes)
        self._arena._put_sequence(self.number, self.sequence)  # the last of all stores


def newest_in(fd: int) -> Snapshot | None:
    """The newest whole snapshot in memory that another process wrote; None if there is none."""
    arena = Arena.found(fd)
    return arena.newest() if arena is not None else None


def open_file(path: Path, table_bytes: int, payload_bytes: int, parts: int = PARTS) -> Arena:
    """The arena in a file, which is made if it is not there. Raises `OSError`.

    One of other measures is not changed, since others may have mapped it: it is moved aside (`BEFORE`), so that its
    snapshots are not lost before there is a newer one. Whoever needs the memory at once gets it without them.
    """
    try:
        with path.open("r+b", buffering=0) as file:
            known = _measures(file.fileno())
            if known is not None and _fit(known, (parts, table_bytes, payload_bytes)):
                return Arena(file.fileno(), table_bytes, payload_bytes, parts)
            empty = newest_in(file.fileno()) is None
    except FileNotFoundError:
        empty = True
    if not empty:
        os.rename(path, before(path))
    try:
        return _made(path, table_bytes, payload_bytes, parts)
    except OSError:
        if not before(path).exists():
            raise
        before(path).unlink()
        return _made(path, table_bytes, payload_bytes, parts)


def map_file(path: Path) -> Arena | None:
    """The arena that somebody made in a file; None if there is none. Raises `OSError` for a file that can't be read."""
    try:
        with path.open("r+b", buffering=0) as file:
            return Arena.found(file.fileno())
    except FileNotFoundError:
        return None


def before(path: Path) -> Path:
    """Where the arena of other measures went."""
    return path.with_name(path.name + BEFORE)


def make(name: str) -> int:
    """A file of shared memory without a name in any file system; it lives as long as somebody holds it open."""
    return os.memfd_create(name, os.MFD_CLOEXEC)


def _made(path: Path, table_bytes: int, payload_bytes: int, parts: int) -> Arena:
    fresh = path.with_name(path.name + FRESH)
    fresh.unlink(missing_ok=True)
    try:
        with fresh.open("x+b", buffering=0) as file:
            fresh.chmod(0o600)
            arena = Arena(file.fileno(), table_bytes, payload_bytes, parts)
        os.rename(fresh, path)
    except OSError:
        fresh.unlink(missing_ok=True)
        raise
    return arena


def _populate(memory: memoryview) -> None:
    """Maps every page, without a change to any, so that no copy has to. Threads go on meanwhile."""
    address = ctypes.addressof(ctypes.c_ubyte.from_buffer(memory))
    if _libc.madvise(address, len(memory), _MADV_POPULATE_WRITE) != 0:  # before Linux 5.14
        assert len(bytes(memory[:: mmap.PAGESIZE])) == -(-len(memory) // mmap.PAGESIZE)


def _measures(fd: int) -> tuple[int, int, int] | None:
    """Number of parts, bytes of a table and of a payload of the arena in a file; None if there is none."""
    size = os.fstat(fd).st_size
    if size < _HEADER_BYTES:
        return None
    magic, *measures = _HEAD.unpack(os.pread(fd, _HEAD.size, 0))
    known = (measures[0], measures[1], measures[2])
    return known if magic == _MAGIC and 2 <= known[0] <= _PARTS_LIMIT and size == _size(known) else None


def _size(measures: tuple[int, int, int]) -> int:
    parts, table_bytes, payload_bytes = measures
    return _HEADER_BYTES + parts * (table_bytes + payload_bytes)


def _fit(known: tuple[int, int, int], needed: tuple[int, int, int]) -> bool:
    return known[0] == needed[0] and all(map(_fits, known[1:], needed[1:]))


def _fits(has: int, needed: int) -> bool:
    return needed <= has <= needed + needed // 8 + (1 << 20)


def _pages(size_bytes: int) -> int:
    return -(-max(size_bytes, 1) // mmap.PAGESIZE) * mmap.PAGESIZE
