"""Checkpoints as our writers leave them, made without PyTorch: float32 tensors, split by rows over some ranks."""

import struct
from collections.abc import Mapping, Sequence
from pathlib import Path

from trainmaster.core.base.ids import AttemptId, JobId
from trainmaster.core.base.value import encode
from trainmaster.core.checkpoint.index import INDEX_NAME, Chunk, Index, Tensor
from trainmaster.core.checkpoint.listing import staging_name, step_name
from trainmaster.core.checkpoint.manifest import SCHEMA, FileEntry, Manifest
from trainmaster.core.checkpoint.position import Position
from trainmaster.storage import directory
from trainmaster.storage.checksum import crc32
from trainmaster.storage.directory import OwnerMark
from trainmaster.storage.directory_store import DirectoryStore
from trainmaster.storage.pieces import Pieces
from trainmaster.storage.saving import publish
from trainmaster.storage.transfer import write

WRITTEN_AT = 1_796_040_000_000_000


def checkpoint(
    root: Path, step: int, tensors: Mapping[str, Sequence[Sequence[float]]], *, job: str = "job-1", world: int = 1
) -> Path:
    """Publishes tensors (each a list of rows of one length); rank R has every row of its share, in order."""
    store, group = DirectoryStore(root), staging_name(step, 1, JobId(job))
    root.mkdir(exist_ok=True)
    mark = OwnerMark(job=JobId(job), attempt=1, epoch=1)
    directory.open_staging(root / group, mark)
    chunks: dict[str, list[Chunk]] = {name: [] for name in tensors}
    files, sums = [], {}
    for rank in range(world):
        file, data = f"__{rank}_0.distcp", b""
        for name, rows in tensors.items():
            first, end = rank * len(rows) // world, (rank + 1) * len(rows) // world
            own = b"".join(struct.pack(f"<{len(row)}f", *row) for row in rows[first:end])
            sizes = (end - first, len(rows[0]))
            place = {"offset": len(data), "length": len(own), "payload": len(data)}
            chunks[name].append(Chunk(offsets=(first, 0), sizes=sizes, file=file, **place))
            data += own
        written = write(store.create(group, file, len(data)), Pieces([data]))
        files.append(FileEntry(name=file, size_bytes=len(data), crc32=written.crc32))
        sums[file] = written.sums
    known = {
        name: Tensor(dtype="float32", shape=(len(rows), len(rows[0])), chunks=tuple(chunks[name]))
        for name, rows in tensors.items()
    }
    index = encode(Index(tensors=known, sums=sums))
    store.put(group, INDEX_NAME, index)
    files.append(FileEntry(name=INDEX_NAME, size_bytes=len(index), crc32=crc32(index)))
    manifest = Manifest(
        schema=SCHEMA, job=JobId(job), attempt=AttemptId(f"{job}.a1"), epoch=1, step=step, world=world,
        position=Position(samples=8 * step, global_batch=8, step=step), files=tuple(files), writer="host-1",
        written_at=WRITTEN_AT,
    )  # fmt: skip
    directory.write_manifest(root / group, manifest)
    publish(root / group, root / step_name(step), mark)
    return root / step_name(step)
