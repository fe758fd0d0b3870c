"""Buffers that bytes pass through: aligned to pages, touched once, and then used for ever.

Memory that a process has not touched yet is the real cost of copying: on a virtual machine a fresh page costs ten times
the copy into it. So a buffer is made once, each page of it is written once, and a pool keeps it for the next save. A
pool grows to what was in use at the same time, which is a few times 8 MiB. Alignment is what the kernel asks of memory
that a disk reads or writes directly.
"""

import contextlib
import mmap
import threading
from collections.abc import Iterator
from typing import Final

BUFFER_BYTES: Final = 8 << 20


class Pool:
    """Buffers of one size. Safe to use from several threads."""

    def __init__(self, size_bytes: int = BUFFER_BYTES) -> None:
        assert size_bytes % mmap.PAGESIZE == 0, size_bytes
        self.size_bytes = size_bytes
        self._free: list[memoryview] = []
        self._lock = threading.Lock()

    @contextlib.contextmanager
    def borrow(self) -> Iterator[memoryview]:
        """A buffer, for as long as the block lasts. What is in it is left from before."""
        with self._lock:
            buffer = self._free.pop() if self._free else None
        buffer = buffer if buffer is not None else touched(self.size_bytes)
        try:
            yield buffer
        finally:
            with self._lock:
                self._free.append(buffer)


def touched(size_bytes: int) -> memoryview:
    """Private memory, aligned to pages, every page of which is there."""
    memory = memoryview(mmap.mmap(-1, size_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))
    memory[:: mmap.PAGESIZE] = bytes(len(memory[:: mmap.PAGESIZE]))
    return memory


POOL: Final = Pool()
"""The pool of this process."""
