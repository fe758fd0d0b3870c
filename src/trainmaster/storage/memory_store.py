"""Snapshots of several ranks as a checkpoint that lies in memory, to be read as if it were files.

Ranks commit one after the other, so the newest snapshots of different ranks may be of different steps. `common_step`
says which step all have; each rank has the last two.
"""

import errno
import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from trainmaster.core.checkpoint.index import Index, index_of_items
from trainmaster.core.checkpoint.listing import Problem
from trainmaster.storage.arena import Snapshot
from trainmaster.storage.blob_store import Sink
from trainmaster.storage.contents import Unsound


class MemoryStore:
    """See `BlobStore`; read only. There is one group, of any name."""

    def __init__(self, snapshots: Iterable[Snapshot]) -> None:
        self._files = {file_of(each): each.payload for each in snapshots}

    def create(self, group: str, name: str, size_bytes: int) -> Sink:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    def put(self, group: str, name: str, data: bytes) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    def open(self, group: str, name: str) -> "MemorySource":
        return MemorySource(name, self._files[name])

    def get(self, group: str, name: str) -> bytes:
        return bytes(self._files[name])

    def sizes(self, group: str) -> dict[str, int]:
        return {name: len(payload) for name, payload in self._files.items()}

    def path(self, group: str) -> Path | None:
        return None


class MemorySource:
    """See `Source`."""

    def __init__(self, name: str, payload: memoryview) -> None:
        self._name, self._payload = name, payload
        self.size_bytes = len(payload)

    def read_into(self, parts: Sequence[memoryview], offset: int) -> None:
        for part in parts:
            if offset + len(part) > self.size_bytes:
                raise EOFError(f"{self._name} ends at byte {self.size_bytes}")
            part[:] = self._payload[offset : offset + len(part)]
            offset += len(part)

    def close(self) -> None:
        """There is nothing to close."""


def file_of(snapshot: Snapshot) -> str:
    """The name that the shard of a rank has."""
    return f"__{snapshot.table.rank}_0.distcp"


def index_over(snapshots: Sequence[Snapshot]) -> Index:
    """What the snapshots of all ranks hold together. Raises `Unsound` if they are not of one moment, or lack a rank."""
    tables = [snapshot.table for snapshot in snapshots]
    moments = {(table.position, table.epoch, table.world) for table in tables}
    if len(moments) != 1:
        raise Unsound((Problem(token="different-steps", sentence="the snapshots are not of one step"),))
    missing = sorted(set(range(tables[0].world)) - {table.rank for table in tables})
    if missing:
        sentence = f"the snapshot of rank {missing[0]} is missing; {len(missing)} of {tables[0].world} are not there"
        raise Unsound((Problem(token="missing-shard", sentence=sentence, numbers={"missing": len(missing)}),))
    items = [item for table in tables for item in table.items]
    return index_of_items(tables[0].outline, items, {})
