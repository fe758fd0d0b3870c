"""Pieces of memory that lie one after the other in a file though not in memory.

What is written is headers and tensors, thousands of each; what the disk wants is a few large blocks. A `Pieces` is the
file as it will be, and gives any stretch of it as vectors: parts of a buffer, into which it copies what is small, and
the memory itself of what is large. A disk that is written directly takes whole pages at addresses of whole pages, so
the memory is given where its place in the page is that in the file (`phase`; whoever lays a file out sees to that), and
its edges are copied. Copies of large pieces release the interpreter's lock.
"""

import bisect
import ctypes
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Final

SMALL_BYTES: Final = 1 << 16
PAGE_BYTES: Final = 4096


class Memory:
    """A stretch of memory at a fixed address. `owner` is kept, so that it stays allocated."""

    __slots__ = ("address", "owner", "size_bytes")

    def __init__(self, address: int, size_bytes: int, owner: object) -> None:
        assert size_bytes >= 0
        self.address, self.size_bytes, self.owner = address, size_bytes, owner

    def view(self) -> memoryview:
        """As bytes that can be read and written."""
        return memoryview((ctypes.c_ubyte * self.size_bytes).from_address(self.address)).cast("B")


def address_of(view: memoryview) -> int:
    """Address of writable memory."""
    return ctypes.addressof(ctypes.c_ubyte.from_buffer(view))


class Pieces:
    """A file as it will be."""

    def __init__(self, pieces: Sequence[bytes | Memory]) -> None:
        self._pieces = [piece for piece in pieces if size_of(piece)]
        self._starts = [0, *accumulate(size_of(piece) for piece in self._pieces)]

    @property
    def size_bytes(self) -> int:
        return self._starts[-1]

    def copy(self, offset: int, into: memoryview) -> None:
        """Copies the bytes from `offset` on into a writable buffer, until it is full."""
        assert 0 <= offset <= offset + len(into) <= self.size_bytes
        target = address_of(into) if len(into) else 0
        place = bisect.bisect_right(self._starts, offset) - 1
        filled = 0
        while filled < len(into):
            piece = self._pieces[place]
            skip = offset + filled - self._starts[place]
            count = min(size_of(piece) - skip, len(into) - filled)
            if isinstance(piece, bytes):
                into[filled : filled + count] = piece[skip : skip + count]
            elif count < SMALL_BYTES:
                into[filled : filled + count] = piece.view()[skip : skip + count]
            else:
                ctypes.memmove(target + filled, piece.address + skip, count)
            filled += count
            place += 1

    def vectors(self, offset: int, buffer: memoryview) -> list[memoryview]:
        """The bytes from `offset` on (a whole page), as many as the buffer has: some in it, some where they are."""
        assert offset % PAGE_BYTES == 0, offset
        end = offset + len(buffer)
        vectors: list[memoryview] = []
        done = offset
        for start, piece in self._large(offset, end):
            first = -(-max(start, offset) // PAGE_BYTES) * PAGE_BYTES
            last = min(start + piece.size_bytes, end) // PAGE_BYTES * PAGE_BYTES
            if last - first < SMALL_BYTES:
                continue
            vectors += [*self._copied(done, first, offset, buffer), piece.view()[first - start : last - start]]
            done = last
        return [*vectors, *self._copied(done, end, offset, buffer)]

    def _large(self, offset: int, end: int) -> Iterator[tuple[int, Memory]]:
        """Large pieces that a stretch touches and that lie in memory as they will lie in the file."""
        place = bisect.bisect_right(self._starts, offset) - 1
        while place < len(self._pieces) and self._starts[place] < end:
            start, piece = self._starts[place], self._pieces[place]
            if isinstance(piece, Memory) and piece.size_bytes >= SMALL_BYTES and phase(start, piece.address) == 0:
                yield start, piece
            place += 1

    def _copied(self, start: int, end: int, offset: int, buffer: memoryview) -> list[memoryview]:
        part = buffer[start - offset : end - offset]
        self.copy(start, part)
        return [part] if len(part) else []


def phase(offset: int, address: int) -> int:
    """How far a place in a file has to move on to lie in its page as the memory does."""
    return (address - offset) % PAGE_BYTES


def size_of(piece: bytes | Memory) -> int:
    return len(piece) if isinstance(piece, bytes) else piece.size_bytes
