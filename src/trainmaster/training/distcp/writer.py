"""Writing: one file a rank, laid out first, then written by threads with the sum of every block.

The plan of a save says what each rank writes; what several ranks hold alike (replicas of data parallelism) PyTorch's
planner has by then given to one of them (`planner.py` does it in balance). A rank lays its items out one after the
other (`envelope.py`), so the size is known before the first byte, and large tensors go to the disk from where they are
(`storage/transfer.py`). No copy of the state is made; a tensor on a device or with gaps is brought into memory first.

Publishing is what the last collective of the save does on the coordinator: if any rank failed, all raise and the
directory stays under its hidden name, which nobody takes for a checkpoint. `ShardWriter` writes into a directory that
somebody else opens and publishes; `CheckpointWriter` does all of it and is the one for scripts.
"""

import os
import pickle
import socket
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from torch.distributed.checkpoint.metadata import Metadata, MetadataIndex, StorageMeta
from torch.distributed.checkpoint.planner import SavePlan, SavePlanner, WriteItem, WriteItemType
from torch.distributed.checkpoint.storage import StorageWriter, WriteResult
from torch.futures import Future

from trainmaster.core.base.ids import AttemptId, JobId
from trainmaster.core.base.value import Value, encode
from trainmaster.core.checkpoint.index import INDEX_NAME, Stored, index_of_items
from trainmaster.core.checkpoint.listing import step_name
from trainmaster.core.checkpoint.manifest import SCHEMA, FileEntry, Manifest
from trainmaster.core.checkpoint.pace import Pace, slow_writers
from trainmaster.core.checkpoint.position import Position
from trainmaster.storage.blob_store import BlobStore
from trainmaster.storage.checksum import crc32
from trainmaster.storage.directory import OwnerMark
from trainmaster.storage.foreign import METADATA_NAME
from trainmaster.storage.pieces import Memory, Pieces, phase
from trainmaster.storage.pieces import size_of as piece_bytes
from trainmaster.storage.place import Place
from trainmaster.storage.publishing import publishing
from trainmaster.storage.transfer import THREADS, write
from trainmaster.training.distcp.envelope import ALIGNMENT, envelope
from trainmaster.training.distcp.planner import size_of
from trainmaster.training.distcp.tables import completed, outline_of

_FILE: Final = "\0file"
"""Name of the result that tells of a file and not of an item."""
_LARGE_BYTES: Final = 1 << 20


class _File(Value):
    entry: FileEntry
    sums: str
    pace: Pace


class ShardWriter(StorageWriter):
    """Writes shards, index and PyTorch's own table into a directory that exists.

    After the save the coordinator has `files` (what was written, with checksums) and `complaint` (slow writers, by
    name; empty if there are none).
    """

    def __init__(self, store: BlobStore, group: str, threads: int = THREADS) -> None:
        super().__init__()
        self._store, self._group, self._threads = store, group, threads
        self._rank = 0
        self._suffix = ""
        self.files: tuple[FileEntry, ...] = ()
        self.complaint = ""

    def reset(self, checkpoint_id: str | os.PathLike[str] | None = None) -> None:
        if checkpoint_id is not None:
            raise ValueError("the place of this save is in the storage_writer; leave out checkpoint_id")

    def set_up_storage_writer(self, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        self._rank = kwargs.get("rank") or 0
        if not kwargs.get("use_collectives", True):
            raise ValueError("a checkpoint is published by all ranks together; use_collectives=False cannot be")

    def prepare_local_plan(self, plan: SavePlan) -> SavePlan:
        return plan

    def prepare_global_plan(self, plans: list[SavePlan]) -> list[SavePlan]:
        return plans

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> "Future[list[WriteResult]]":
        """Raises `OSError` for what the store refuses."""
        future: Future[list[WriteResult]] = Future()
        future.set_result(self._write(plan, planner) if plan.items else [])
        return future

    def finish(self, metadata: Metadata, results: list[list[WriteResult]]) -> None:
        told = [result.storage_data for each in results for result in each]
        items = [item for item in told if isinstance(item, Stored)]
        files = [file for file in told if isinstance(file, _File)]
        sums = {file.entry.name: file.sums for file in files}
        index = encode(index_of_items(outline_of(metadata), items, sums))
        table = pickle.dumps(completed(metadata, items))
        for name, data in ((METADATA_NAME, table), (INDEX_NAME, index)):
            self._store.put(self._group, name, data)
        small = [
            FileEntry(name=name, size_bytes=len(data), crc32=crc32(data))
            for name, data in ((METADATA_NAME, table), (INDEX_NAME, index))
        ]
        self.files = (*(file.entry for file in files), *small)
        self.complaint = "; ".join(problem.sentence for problem in slow_writers([file.pace for file in files]))

    def storage_meta(self) -> StorageMeta | None:
        return StorageMeta()

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike[str]) -> bool:
        return False

    def _write(self, plan: SavePlan, planner: SavePlanner) -> list[WriteResult]:
        name = f"__{self._rank}_0{self._suffix}.distcp"
        started = time.monotonic()
        items, parts = laid_out(name, plan.items, planner.resolve_data)
        pieces = Pieces(parts)
        sink = self._store.create(self._group, name, pieces.size_bytes)
        written = write(sink, pieces, self._threads)
        pace = Pace(
            writer=f"rank {self._rank} on {socket.gethostname()}",
            size_bytes=written.size_bytes,
            duration=round(1e6 * (time.monotonic() - started)),
        )
        entry = FileEntry(name=name, size_bytes=written.size_bytes, crc32=written.crc32)
        file = WriteResult(MetadataIndex(_FILE), written.size_bytes, _File(entry=entry, sums=written.sums, pace=pace))
        return [*(WriteResult(MetadataIndex(item.name, item.offsets), item.length, item) for item in items), file]


def laid_out(
    name: str, plan: Sequence[WriteItem], resolve: Callable[[WriteItem], Any], at: int = 0
) -> tuple[list[Stored], list[bytes | Memory]]:
    """Where each item goes in the file `name`, and what lies in it from byte `at` on, one after the other."""
    items: list[Stored] = []
    pieces: list[bytes | Memory] = []
    for item in plan:
        data = resolve(item)
        if item.type == WriteItemType.BYTE_IO:
            before, body, behind = b"", data.getvalue(), b""
        else:
            tensor = data.detach().cpu().contiguous()
            body = Memory(tensor.data_ptr(), tensor.numel() * tensor.element_size(), tensor)
            before, behind = envelope(tensor.dtype, tensor.shape)
        padding = bytes(_padding(at + len(before), body) if isinstance(body, Memory) else -at % ALIGNMENT)
        start = at + len(padding)
        at = start + len(before) + piece_bytes(body) + len(behind)
        pieces += [padding, before, body, behind]
        offsets = item.index.offset
        items.append(
            Stored(
                name=item.index.fqn,
                offsets=tuple(offsets) if offsets is not None else None,
                file=name,
                offset=start,
                length=at - start,
                payload=start + len(before),
            )
        )
    return items, pieces


def _padding(at: int, body: Memory) -> int:
    """Bytes to skip so that elements at `at` are aligned, and large ones lie in their page as they do in memory."""
    shift = phase(at, body.address)
    return shift if body.size_bytes >= _LARGE_BYTES and (at + shift) % ALIGNMENT == 0 else -at % ALIGNMENT


class CheckpointWriter(ShardWriter):
    """Saves the state of a step below `root` and publishes it as `step-NNNNNNNN`, whole or not at all.

    `root` is a directory that all hosts share, or `s3://BUCKET/PREFIX`. `job` marks the checkpoint as this job's: what
    belongs to another job is never replaced. `samples` and `global_batch` say where the job stands in its data, for
    whoever resumes.
    """

    def __init__(
        self,
        root: str | os.PathLike[str],
        *,
        step: int,
        job: str = "local",
        samples: int = 0,
        global_batch: int = 0,
        threads: int = THREADS,
    ) -> None:
        self._place = Place(os.fspath(root))
        self._mark = OwnerMark(job=JobId(job), attempt=0, epoch=0)
        self._position = Position(samples=samples, global_batch=global_batch, step=step)
        self._publishing = publishing(self._place, self._mark, step)
        self._world = 1
        super().__init__(self._publishing.store, self._publishing.group, threads)

    @property
    def path(self) -> Path:
        """The directory of the published checkpoint. Raises `ValueError` in a bucket."""
        if self._place.path is None:
            raise ValueError(f"{self._place} is no directory; the checkpoint is {self.where}")
        return self._place.path / step_name(self._position.step)

    @property
    def where(self) -> str:
        """The published checkpoint, in a form that `CheckpointReader` and `trainmaster ckpt` take."""
        return str(self._place.child(step_name(self._position.step)))

    def prepare_global_plan(self, plans: list[SavePlan]) -> list[SavePlan]:
        """The coordinator: opens the place of the save."""
        self._world = len(plans)
        self._publishing.open(sum(size_of(item) for plan in plans for item in plan.items))
        return plans

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> "Future[list[WriteResult]]":
        self._suffix = self._publishing.see()
        return super().write_data(plan, planner)

    def finish(self, metadata: Metadata, results: list[list[WriteResult]]) -> None:
        super().finish(metadata, results)
        manifest = Manifest(
            schema=SCHEMA,
            job=self._mark.job,
            attempt=AttemptId(f"{self._mark.job}.a0"),
            epoch=0,
            step=self._position.step,
            world=self._world,
            position=self._position,
            files=self.files,
            writer=socket.gethostname(),
            written_at=time.time_ns() // 1000,
        )
        self._publishing.publish(manifest)
