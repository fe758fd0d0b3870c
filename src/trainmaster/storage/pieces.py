"""Pieces of memory that lie one after the other in a file though not in memory.

What is written is headers and tensors, thousands of each; what the disk wants is a few large blocks. A `Pieces` is the
file as it will be, and copies any stretch of it into a buffer. Large pieces are given by address: the copy then
releases the interpreter's lock, so that threads copy beside each other and beside the training loop.
"""

import bisect
import ctypes
from collections.abc import Sequence
from itertools import accumulate
from typing import Final

_SMALL_BYTES: Final = 1 << 16


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
            elif count < _SMALL_BYTES:
                into[filled : filled + count] = piece.view()[skip : skip + count]
            else:
                ctypes.memmove(target + filled, piece.address + skip, count)
            filled += count
            place += 1


def size_of(piece: bytes | Memory) -> int:
    return len(piece) if isinstance(piece, bytes) else piece.size_bytes
