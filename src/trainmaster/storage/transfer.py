"""Blobs at the speed of the disk, with the sum of every block.

Both ways some threads take the next stretch of a blob, 8 MiB each, and do all of it: whoever writes sums the blocks and
then hands them to the disk; whoever reads fetches the blocks into the memory where they belong and then sums them.
While one waits for the disk another one computes, outside of the interpreter's lock, on bytes that are still in the
processor's cache. Three do on two cores: two requests at the disk and one core at the sums.

Writing: only headers and edges are copied into a buffer; what is large goes to the disk from where it is. Nothing is
read back: what was summed is what was handed over, and the disk's own errors are what the sums are for when they are
read.

Reading: what nobody wants of a block is read as well, into a buffer, since a block is verified whole or not at all.
Bytes that do not verify have by then reached their place: the caller learns it before anybody uses them, and has to
load something else over them. Rejected: to verify first and to read again, which is twice the reading; one thread that
reads and others that sum behind it, which took a third longer here (it waits for the sums wherever a block has a part
that nobody wants, and hands over a thousand small tasks a gibibyte).
"""

import bisect
import itertools
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from trainmaster.core.base.value import Value
from trainmaster.core.checkpoint.index import BLOCK_BYTES
from trainmaster.storage.blob_store import Sink, Source
from trainmaster.storage.buffers import BUFFER_BYTES, POOL
from trainmaster.storage.checksum import crc32, fold
from trainmaster.storage.pieces import Pieces

_RUN_BLOCKS: Final = BUFFER_BYTES // BLOCK_BYTES
THREADS: Final = min(8, max(3, (os.cpu_count() or 1) // 4))
"""How many a rank takes: more than the cores where there are two, few enough for eight ranks on a large host."""


class Written(Value):
    """`sums` has eight digits for each block."""

    size_bytes: int
    crc32: int
    sums: str


class Damage(Exception):
    """Bytes of a blob are not those that were written. `blocks` are the numbers of those that differ."""

    def __init__(self, name: str, blocks: Sequence[int]) -> None:
        first, last = blocks[0] * BLOCK_BYTES, blocks[-1] * BLOCK_BYTES
        span = f"the mebibyte at byte {first}" if first == last else f"{len(blocks)} mebibytes from byte {first} on"
        super().__init__(f"{name} has its size but not its content: the checksum of {span} differs")
        self.name, self.blocks = name, tuple(blocks)

    def __reduce__(self) -> tuple[type["Damage"], tuple[str, tuple[int, ...]]]:
        return Damage, (self.name, self.blocks)


def write(sink: Sink, pieces: Pieces, threads: int = THREADS) -> Written:
    """Writes a whole blob and closes it. Raises the `OSError` of the first thread that met one."""
    starts = itertools.count(0, BUFFER_BYTES)
    sums: dict[int, int] = {}
    stop = threading.Event()

    def work() -> None:
        with POOL.borrow() as buffer:
            while (start := next(starts)) < pieces.size_bytes and not stop.is_set():
                parts = pieces.vectors(start, buffer[: min(BUFFER_BYTES, pieces.size_bytes - start)])
                for block, of_block in enumerate(_blocks(parts), start // BLOCK_BYTES):
                    sums[block] = _sum(of_block)
                sink.write(parts, start)

    try:
        _side_by_side(work, stop, min(threads, -(-pieces.size_bytes // BUFFER_BYTES)))
    except BaseException:
        sink.abandon()
        raise
    sink.close()
    ordered = [sums[block] for block in range(len(sums))]
    lengths = [min(BLOCK_BYTES, pieces.size_bytes - block * BLOCK_BYTES) for block in range(len(sums))]
    return Written(
        size_bytes=pieces.size_bytes,
        crc32=fold(zip(ordered, lengths, strict=True)),
        sums="".join(f"{each:08x}" for each in ordered),
    )


def _blocks(parts: Sequence[memoryview]) -> Iterator[list[memoryview]]:
    """The same bytes, block by block."""
    block: list[memoryview] = []
    room = BLOCK_BYTES
    for part in parts:
        at = 0
        while at < len(part):
            block.append(part[at : at + room])
            at, room = at + len(block[-1]), room - len(block[-1])
            if room == 0:
                yield block
                block, room = [], BLOCK_BYTES
    if block:
        yield block


class Want:
    """Bytes of a blob that belong into some memory."""

    __slots__ = ("into", "start")

    def __init__(self, start: int, into: memoryview) -> None:
        assert start >= 0
        self.start, self.into = start, into

    @property
    def end(self) -> int:
        return self.start + len(self.into)


def read(source: Source, name: str, wants: Sequence[Want], sums: str | None, threads: int = THREADS) -> None:
    """Reads what is wanted of a blob, verifying every block that it touches if sums are given.

    Wants must not overlap. Raises `Damage` if blocks differ (all of them are read and named), `OSError` or `EOFError`
    if the blob cannot be read. When it returns or raises, no thread touches the memory any more.
    """
    ordered = sorted((want for want in wants if len(want.into)), key=lambda want: want.start)
    assert all(one.end <= other.start for one, other in itertools.pairwise(ordered)), name
    _fetch(source, name, list(stretches(ordered)), ordered, sums, threads)


def scan(source: Source, name: str, sums: str, threads: int = THREADS) -> None:
    """Reads a whole blob and verifies every block. Raises as `read`."""
    blocks = -(-source.size_bytes // BLOCK_BYTES)
    runs = [range(first, min(blocks, first + _RUN_BLOCKS)) for first in range(0, blocks, _RUN_BLOCKS)]
    _fetch(source, name, runs, [], sums, threads)


def _fetch(
    source: Source, name: str, runs: Sequence[range], ordered: Sequence[Want], sums: str | None, threads: int
) -> None:
    numbers = itertools.count()
    damaged: list[int] = []
    stop = threading.Event()

    def work() -> None:
        with POOL.borrow() as rest:
            while (number := next(numbers)) < len(runs) and not stop.is_set():
                blocks = runs[number]
                parts = list(_parts(blocks, ordered, source.size_bytes, rest))
                source.read_into([part for block in parts for part in block], blocks.start * BLOCK_BYTES)
                if sums is not None:
                    damaged.extend(
                        block
                        for block, part in zip(blocks, parts, strict=True)
                        if f"{_sum(part):08x}" != sums[8 * block : 8 * block + 8]
                    )

    _side_by_side(work, stop, min(threads, len(runs)))
    if damaged:
        raise Damage(name, sorted(damaged))


def stretches(ordered: Sequence[Want]) -> Iterator[range]:
    """Blocks that are touched, in rows that follow each other, none longer than a buffer: a `read` asks a source for
    these, one after the other. Wants are in order of their start."""
    touched = ((want.start // BLOCK_BYTES, -(-want.end // BLOCK_BYTES)) for want in ordered)
    merged: list[list[int]] = []
    for start, end in touched:
        if merged and start <= merged[-1][1]:
            merged[-1][1] = max(merged[-1][1], end)
        else:
            merged.append([start, end])
    for start, end in merged:
        for first in range(start, end, _RUN_BLOCKS):
            yield range(first, min(end, first + _RUN_BLOCKS))


def _parts(blocks: range, ordered: Sequence[Want], size_bytes: int, rest: memoryview) -> Iterator[list[memoryview]]:
    """For each block the memory that it is read into: of those who want it, and `rest` for the rest of it, where it
    lies in its page as it does in the blob."""
    first = blocks.start * BLOCK_BYTES
    place = bisect.bisect_right(ordered, first, key=lambda want: want.end)
    for block in blocks:
        at, end = block * BLOCK_BYTES, min((block + 1) * BLOCK_BYTES, size_bytes)
        parts: list[memoryview] = []
        while at < end:
            while place < len(ordered) and ordered[place].end <= at:
                place += 1
            want = ordered[place] if place < len(ordered) and ordered[place].start < end else None
            if want is not None and want.start <= at:
                stop = min(end, want.end)
                parts.append(want.into[at - want.start : stop - want.start])
            else:
                stop = min(end, want.start) if want is not None else end
                parts.append(rest[at - first : stop - first])
            at = stop
        yield parts


def _sum(parts: Sequence[memoryview]) -> int:
    value = 0
    for part in parts:
        value = crc32(part, value)
    return value


def _side_by_side(work: Callable[[], None], stop: threading.Event, threads: int) -> None:
    """Does it in some threads, one of them this one. If one fails, the others are asked to stop; the first exception is
    raised when all have ended."""

    def guarded() -> None:
        try:
            work()
        except BaseException:
            stop.set()
            raise

    if threads <= 1:
        work()
        return
    with ThreadPoolExecutor(threads - 1) as pool:
        others = [pool.submit(guarded) for _ in range(threads - 1)]
        first: BaseException | None = None
        try:
            guarded()
        except Exception as error:  # noqa: BLE001  (raised below, when the other threads have ended)
            first = error
        failures = [first, *(future.exception() for future in others)]
    for failure in failures:
        if failure is not None:
            raise failure
