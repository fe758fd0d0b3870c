"""Where checkpoints lie, as a port: files that appear whole, and a group of files that appears at once.

A checkpoint is a group of blobs under one name. It is written under a hidden name and then published; readers never see
it half. In a directory publishing is a rename. Where a store has no rename of groups (S3 and its kin), the manifest is
what publishes: it is put last, with the condition that there is none, and whoever lists takes a group without a
manifest for unfinished. So all callers put the manifest last, and nothing here promises more than both can keep.

A blob is written by several threads, each its own blocks, in any order; it is durable when `close` returns, and gone
after `abandon`. Parts lie at whole pages (`pieces.py`): a disk takes them without another copy.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol


class Sink(Protocol):
    """A blob that is being written."""

    def write(self, parts: Sequence[memoryview], offset: int) -> None:
        """Writes parts, one after the other. `offset` and each part but the last of the blob are whole pages, and lie
        at whole pages in memory. Raises `OSError`."""
        ...

    def close(self) -> None:
        """Returns when all of it is durable. Raises `OSError`."""
        ...

    def abandon(self) -> None:
        """Gives up; what was written may stay until the group is removed. Instead of `close`, not after it."""
        ...


class Source(Protocol):
    """A blob that is being read."""

    @property
    def size_bytes(self) -> int: ...

    def read_into(self, parts: Sequence[memoryview], offset: int) -> None:
        """Fills the parts, one after the other, from `offset` on. Raises `OSError`, `EOFError` if the blob ends."""
        ...

    def close(self) -> None: ...


class BlobStore(Protocol):
    """Groups of blobs. A name is `GROUP/BLOB`. Everything raises `OSError` for what the place refuses."""

    def create(self, group: str, name: str, size_bytes: int) -> Sink:
        """A new blob of a known size. Raises `FileExistsError` if there is one of that name."""
        ...

    def open(self, group: str, name: str) -> Source: ...

    def put(self, group: str, name: str, data: bytes) -> None:
        """Writes a small blob, whole and durable."""
        ...

    def get(self, group: str, name: str) -> bytes: ...

    def sizes(self, group: str) -> dict[str, int]:
        """Bytes of each blob of a group."""
        ...

    def path(self, group: str) -> Path | None:
        """Where a group lies on a file system; None if it does not."""
        ...
