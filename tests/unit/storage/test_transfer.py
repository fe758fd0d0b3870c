"""Bytes through the threads: what arrives is what was sent, and what was changed on the way is noticed."""

import errno
import itertools
import os
import threading
import zlib
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trainmaster.core.checkpoint.index import BLOCK_BYTES
from trainmaster.storage import buffers, checksum
from trainmaster.storage.buffers import BUFFER_BYTES, touched
from trainmaster.storage.directory_store import DirectoryStore
from trainmaster.storage.pieces import PAGE_BYTES, Memory, Pieces, address_of, phase
from trainmaster.storage.transfer import Damage, Want, read, scan, write

NOISE = os.urandom(3 * BLOCK_BYTES)


class FakeSink:
    """Keeps blocks; refuses those from `full_at` on, as a full disk does."""

    def __init__(self, full_at: int | None = None) -> None:
        self.blocks: dict[int, bytes] = {}
        self.ends: list[str] = []
        self._full_at = full_at

    def write(self, parts: Sequence[memoryview], offset: int) -> None:
        if self._full_at is not None and offset >= self._full_at:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        assert all(address_of(part) % PAGE_BYTES == 0 for part in parts)
        assert all(len(part) % PAGE_BYTES == 0 for part in parts[:-1])
        self.blocks[offset] = b"".join(parts)

    def close(self) -> None:
        self.ends.append("closed")

    def abandon(self) -> None:
        self.ends.append("abandoned")


class FakeSource:
    """Bytes in memory; counts what is read."""

    def __init__(self, data: bytes) -> None:
        self.data, self.read_bytes = data, 0

    @property
    def size_bytes(self) -> int:
        return len(self.data)

    def read_into(self, parts: list[memoryview], offset: int) -> None:
        for part in parts:
            part[:] = self.data[offset : offset + len(part)]
            offset += len(part)
            self.read_bytes += len(part)

    def close(self) -> None:
        pass


def sums_of(data: bytes) -> str:
    return "".join(f"{zlib.crc32(data[at : at + BLOCK_BYTES]):08x}" for at in range(0, len(data), BLOCK_BYTES))


@given(st.lists(st.binary(max_size=300), max_size=6))
def test_sums_of_parts_fold_into_that_of_the_whole(parts: list[bytes]) -> None:
    folded = checksum.fold((zlib.crc32(part), len(part)) for part in parts)
    assert folded == zlib.crc32(b"".join(parts)) == checksum.crc32(b"".join(parts))


@given(st.lists(st.integers(0, 200_000), min_size=1, max_size=5), st.data())
@settings(deadline=None, max_examples=40)
def test_pieces_are_the_file_as_it_will_be(sizes: list[int], data: st.DataObject) -> None:
    """1. Headers and stretches of memory, of any size. 2. Any stretch of the file comes out as if they were joined."""
    starts = [0, *itertools.accumulate(sizes)]
    whole = (NOISE * 2)[: starts[-1]]
    memory = bytearray(whole)
    view = memoryview(memory)
    pieces: list[bytes | Memory] = []
    for place, (start, size) in enumerate(zip(starts, sizes, strict=False)):
        part = view[start : start + size]
        pieces.append(bytes(part) if place % 2 or not size else Memory(address_of(part), size, part))
    at = data.draw(st.integers(0, len(whole)))
    into = bytearray(data.draw(st.integers(0, len(whole) - at)))
    made = Pieces(pieces)
    made.copy(at, memoryview(into))
    assert made.size_bytes == len(whole)
    assert into == whole[at : at + len(into)]


@pytest.mark.parametrize("shift", [0, 64, 4032])
@pytest.mark.parametrize("threads", [1, 2])
def test_large_memory_goes_to_the_disk_from_where_it_is(shift: int, threads: int) -> None:
    """1. A header, nine mebibytes that lie in their page as in the file, and a few bytes behind. 2. All parts that the
    disk gets are whole pages at whole pages, and hardly any were copied. 3. In a file where they lie otherwise all are
    copied, and the file is the same."""
    data = bytearray((NOISE * 4)[: 9 * BLOCK_BYTES + 10])
    start = phase(0, address_of(memoryview(data)))
    for moved in (0, 1):
        header = b"h" * (start + moved + (0 if start > 100 else PAGE_BYTES))
        pieces = Pieces([header, Memory(address_of(memoryview(data)), len(data), data), b"end" * (shift + 1)])
        copied = 0
        buffer = touched(BUFFER_BYTES)
        for at in range(0, pieces.size_bytes, BLOCK_BYTES):
            parts = pieces.vectors(at, buffer[: min(BLOCK_BYTES, pieces.size_bytes - at)])
            copied += sum(len(part) for part in parts if part.obj is buffer.obj)
        assert (copied > 9 * BLOCK_BYTES) == bool(moved)
        assert moved or copied < 6 * PAGE_BYTES + shift * 3
        sink = FakeSink()
        written = write(sink, pieces, threads)
        whole = header + data + b"end" * (shift + 1)
        assert b"".join(sink.blocks[at] for at in sorted(sink.blocks)) == whole
        assert (written.crc32, written.sums) == (zlib.crc32(whole), sums_of(whole))


@pytest.mark.parametrize("size", [0, 1, 4096, BLOCK_BYTES, BUFFER_BYTES, BUFFER_BYTES + BLOCK_BYTES + 777])
@pytest.mark.parametrize("threads", [1, 3])
def test_a_file_is_written_and_read_back(tmp_path: Path, size: int, threads: int) -> None:
    """1. A file of any size, by one thread and by several. 2. Content, sum and sums of blocks are right. 3. It comes
    back in two parts with a hole between them, and nothing outside of them is touched."""
    data = (NOISE * 4)[:size]
    store = DirectoryStore(tmp_path)
    (tmp_path / "group").mkdir()
    written = write(store.create("group", "blob", size), Pieces([data[:10], data[10:]]), threads)
    assert (tmp_path / "group" / "blob").read_bytes() == data
    assert (written.size_bytes, written.crc32, written.sums) == (size, zlib.crc32(data), sums_of(data))
    assert store.sizes("group") == {"blob": size}
    first, second = bytearray(size // 3), bytearray(size // 2)
    source = store.open("group", "blob")
    wants = [Want(size - len(second), memoryview(second)), Want(0, memoryview(first))]
    read(source, "blob", wants, written.sums, threads)
    scan(source, "blob", written.sums, threads)
    source.close()
    assert first == data[: len(first)]
    assert second == data[size - len(second) :]


def test_only_the_blocks_that_are_wanted_are_read_and_verified() -> None:
    """1. Ten mebibytes of which the third is damaged. 2. A rank that wants bytes of the last one reads one block and
    is content. 3. One that wants a byte of the third is told where the damage is."""
    data = bytearray((NOISE * 4)[: 10 * BLOCK_BYTES])
    sums = sums_of(data)
    data[2 * BLOCK_BYTES + 5] ^= 0x40
    source = FakeSource(bytes(data))
    into = bytearray(10)
    read(source, "blob", [Want(len(data) - 10, memoryview(into))], sums)
    assert into == data[-10:]
    assert source.read_bytes == BLOCK_BYTES
    with pytest.raises(Damage, match="checksum of the mebibyte at byte 2097152 differs") as caught:
        read(source, "blob", [Want(3 * BLOCK_BYTES - 1, memoryview(bytearray(2)))], sums)
    assert caught.value.blocks == (2,)
    read(source, "blob", [Want(3 * BLOCK_BYTES - 1, memoryview(bytearray(2)))], None)


@pytest.mark.parametrize("cached", [False, True])
@pytest.mark.parametrize("shift", [0, 64, 4095])
def test_reads_past_the_cache_bring_the_same_bytes(tmp_path: Path, cached: bool, shift: int) -> None:
    """1. A file of nine mebibytes and a few bytes, in the page cache or not. 2. Two stretches of it, whose memory lies
    in its page as in the file (shift 0) or not, arrive whole from wherever they begin; what lies around them in memory
    stays as it was. 3. A block that was changed on the disk is noticed, whatever way it came."""
    data = (NOISE * 4)[: 9 * BLOCK_BYTES + 77]
    path = tmp_path / "group" / "blob"
    path.parent.mkdir()
    path.write_bytes(data)
    forget(path, cached)
    memory = touched(len(data) + 2 * PAGE_BYTES)
    begin, middle, end = 100, 4 * BLOCK_BYTES + 5, len(data) - 3
    wants = [Want(start, memory[shift + start : shift + stop]) for start, stop in ((begin, middle), (middle + 9, end))]
    source = DirectoryStore(tmp_path).open("group", "blob")
    read(source, "blob", wants, sums_of(data))
    assert memory[shift + begin : shift + middle] == data[begin:middle]
    assert memory[shift + middle + 9 : shift + end] == data[middle + 9 : end]
    assert not any(memory[: shift + begin])
    assert not any(memory[shift + middle : shift + middle + 9])
    assert not any(memory[shift + end :])
    source.close()
    with path.open("r+b") as stream:
        stream.seek(5 * BLOCK_BYTES)
        stream.write(bytes([data[5 * BLOCK_BYTES] ^ 1]))
    forget(path, cached)
    source = DirectoryStore(tmp_path).open("group", "blob")
    with pytest.raises(Damage) as caught:
        read(source, "blob", wants, sums_of(data))
    assert caught.value.blocks == (5,)
    source.close()


def forget(path: Path, cached: bool) -> None:
    """Syncs a file, and drops it from the page cache or not."""
    file = os.open(path, os.O_RDONLY)
    os.fsync(file)
    if not cached:
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(file)


def test_a_file_that_ends_early_is_an_end_and_not_a_hang(tmp_path: Path) -> None:
    (tmp_path / "group").mkdir()
    (tmp_path / "group" / "blob").write_bytes(b"abc")
    source = DirectoryStore(tmp_path).open("group", "blob")
    with pytest.raises(EOFError, match="blob ends at byte 3"):
        source.read_into([memoryview(bytearray(2)), memoryview(bytearray(2))], 0)
    source.close()


@pytest.mark.parametrize("threads", [1, 2, 4])
def test_a_full_disk_is_an_error_of_the_write_whatever_thread_meets_it(threads: int) -> None:
    """1. The disk is full from the second buffer on. 2. The first error is raised, all threads have ended, and the
    blob is abandoned, not closed."""
    before = threading.active_count()
    sink = FakeSink(full_at=BUFFER_BYTES)
    with pytest.raises(OSError, match="No space left"):
        write(sink, Pieces([NOISE * 12]), threads)
    assert sink.ends == ["abandoned"]
    assert threading.active_count() == before


def test_no_second_file_of_one_name(tmp_path: Path) -> None:
    """Two writers that take themselves for the same rank do not mix their bytes."""
    (tmp_path / "group").mkdir()
    store = DirectoryStore(tmp_path)
    store.create("group", "blob", 10).close()
    with pytest.raises(FileExistsError):
        store.create("group", "blob", 10)


def test_buffers_are_used_again() -> None:
    pool = buffers.Pool(1 << 16)
    with pool.borrow() as first, pool.borrow() as second:
        addresses = {address_of(first), address_of(second)}
        assert all(address % 4096 == 0 for address in addresses)
    with pool.borrow() as again:
        assert address_of(again) in addresses
