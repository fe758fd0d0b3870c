"""Blobs at the speed of the disk, with the sum of every block.

Writing: some threads, each with a buffer of its own. A thread takes the next stretch of the file, sums it block by
block, and hands it to the disk; while it waits there, another one sums. Only headers and edges are copied into the
buffer: what is large goes to the disk from where it is. Nothing is read back: what was summed is what was handed over,
and the disk's own errors are what the sums are for when they are read.

Reading: one thread keeps the disk busy, in order, straight into the memory where the bytes belong; others sum the
blocks behind it. What nobody wants of a block is read as well, into a buffer, since a block is verified whole or not at
all. Bytes that do not verify have by then reached their place: the caller learns it before anybody uses them, and has
to load something else over them. Rejected: to verify first and to read again, which is twice the reading.
"""

import bisect
import itertools
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final, TypeVar

from trainmaster.core.base.value import Value
from trainmaster.core.checkpoint.index import BLOCK_BYTES
from trainmaster.storage.blob_store import Sink, Source
from trainmaster.storage.buffers import BUFFER_BYTES, POOL
from trainmaster.storage.checksum import crc32, fold
from trainmaster.storage.pieces import Pieces

T = TypeVar("T")
_RUN_BLOCKS: Final = BUFFER_BYTES // BLOCK_BYTES


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


def write(sink: Sink, pieces: Pieces, threads: int = 3) -> Written:
    """Writes a whole blob and closes it. Raises the `OSError` of the first thread that met one."""
    starts = itertools.count(0, BUFFER_BYTES)
    sums: dict[int, int] = {}
    stop = threading.Event()

    def work() -> None:
        with POOL.borrow() as buffer:
            while (start := next(starts)) < pieces.size_bytes and not stop.is_set():
                vectors: list[memoryview] = []
                for at in range(start, min(start + BUFFER_BYTES, pieces.size_bytes), BLOCK_BYTES):
                    block = buffer[at - start : min(at + BLOCK_BYTES, pieces.size_bytes) - start]
                    parts = pieces.vectors(at, block)
                    sums[at // BLOCK_BYTES] = _sum(parts)
                    vectors += parts
                sink.write(vectors, start)

    try:
        _side_by_side([_stopping(work, stop)] * max(1, min(threads, -(-pieces.size_bytes // BUFFER_BYTES))))
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


class Want:
    """Bytes of a blob that belong into some memory."""

    __slots__ = ("into", "start")

    def __init__(self, start: int, into: memoryview) -> None:
        assert start >= 0
        self.start, self.into = start, into

    @property
    def end(self) -> int:
        return self.start + len(self.into)


def read(source: Source, name: str, wants: Sequence[Want], sums: str | None, pool: ThreadPoolExecutor) -> None:
    """Reads what is wanted of a blob, verifying every block that it touches if sums are given.

    `pool` sums blocks. Wants must not overlap. Raises `Damage` if a block differs, `OSError` or `EOFError` if the blob
    cannot be read. When it returns or raises, no thread touches the memory any more.
    """
    ordered = sorted((want for want in wants if len(want.into)), key=lambda want: want.start)
    assert all(one.end <= other.start for one, other in itertools.pairwise(ordered)), name
    checks: list[Future[int | None]] = []
    with POOL.borrow() as rest:
        try:
            for blocks in _runs(ordered):
                parts = list(_parts(blocks, ordered, source.size_bytes, rest))
                source.read_into([part for block in parts for part in block], blocks.start * BLOCK_BYTES)
                if sums is not None:
                    checks += [
                        pool.submit(_check, block, part, sums) for block, part in zip(blocks, parts, strict=True)
                    ]
                    if any(_is_rest(part, rest) for block in parts for part in block):
                        _results(checks)  # the next run uses the same memory for what nobody wants
        finally:
            damaged = [number for number in _results(checks) if number is not None]
    if damaged:
        raise Damage(name, sorted(damaged))


def _runs(ordered: Sequence[Want]) -> Iterator[range]:
    """Blocks that are touched, in rows that follow each other, none longer than a buffer."""
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
    """For each block the memory that it is read into: of those who want it, and `rest` for the rest of it."""
    place = bisect.bisect_right(ordered, blocks.start * BLOCK_BYTES, key=lambda want: want.end)
    spare = 0
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
                parts.append(rest[spare : spare + stop - at])
                spare += stop - at
            at = stop
        yield parts


def _is_rest(part: memoryview, rest: memoryview) -> bool:
    return part.obj is rest.obj


def _check(block: int, parts: Sequence[memoryview], sums: str) -> int | None:
    """The number of a block if it is not what it was."""
    return None if f"{_sum(parts):08x}" == sums[8 * block : 8 * block + 8] else block


def _sum(parts: Sequence[memoryview]) -> int:
    value = 0
    for part in parts:
        value = crc32(part, value)
    return value


def _results(futures: list[Future[T]]) -> list[T]:
    """Waits for all, and returns what they came to."""
    return [future.result() for future in futures]


def _stopping(work: Callable[[], None], stop: threading.Event) -> Callable[[], None]:
    """The same work; if it fails, the others are asked to stop."""

    def guarded() -> None:
        try:
            work()
        except BaseException:
            stop.set()
            raise

    return guarded


def _side_by_side(works: Sequence[Callable[[], None]]) -> None:
    """Does all of it in threads, one of them this one, and raises the first exception when all have ended."""
    if len(works) == 1:
        works[0]()
        return
    with ThreadPoolExecutor(len(works) - 1) as pool:
        others = [pool.submit(work) for work in works[1:]]
        first: BaseException | None = None
        try:
            works[0]()
        except Exception as error:  # noqa: BLE001  (raised below, when the other threads have ended)
            first = error
        failures = [first, *(future.exception() for future in others)]
    for failure in failures:
        if failure is not None:
            raise failure
