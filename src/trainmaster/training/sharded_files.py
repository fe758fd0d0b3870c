"""PyTorch's sharded checkpoint files, written so that errors keep their number and read so that no code runs.

Two parts of `torch.distributed.checkpoint` are replaced. Reading: `.metadata` is a pickle, and plain values inside the
shards are pickles too, so a crafted file runs whatever it likes in every rank. Here only the classes that such metadata
consists of may be named in it, and values are read with `weights_only`. Writing: a full disk surfaces as a
`RuntimeError` of the zip writer or as an `OSError`, depending on the byte where it strikes; here always an `OSError`.
"""

import errno
import io
import os
import pickle
from pathlib import Path
from typing import Any, Final

import torch
from torch.distributed.checkpoint import filesystem, metadata
from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner
from torch.distributed.checkpoint.filesystem import FileSystemReader, FileSystemWriter
from torch.distributed.checkpoint.planner import ReadItem, SavePlan, SavePlanner

METADATA_NAME: Final = ".metadata"
_METADATA_CLASSES: Final = frozenset(
    {
        "BytesStorageMetadata",
        "ChunkStorageMetadata",
        "Metadata",
        "MetadataIndex",
        "StorageMeta",
        "TensorProperties",
        "TensorStorageMetadata",
        "_MEM_FORMAT_ENCODING",
    }
)
_POSIX_PATHS: Final = frozenset({"Path", "PosixPath", "PurePosixPath"})


class ForbiddenClass(pickle.UnpicklingError):
    """A file names something that checkpoint metadata does not consist of."""


class MetadataUnpickler(pickle.Unpickler):
    """Admits the classes of checkpoint metadata, sizes, data types and layouts; everything else raises."""

    def find_class(self, module: str, name: str) -> Any:
        if module == "torch.distributed.checkpoint.metadata" and name in _METADATA_CLASSES:
            return getattr(metadata, name)
        if (module, name) == ("torch.distributed.checkpoint.filesystem", "_StorageInfo"):
            return filesystem._StorageInfo
        if (module, name) == ("collections", "OrderedDict"):
            return super().find_class(module, name)
        if module in ("pathlib", "pathlib._local") and name in _POSIX_PATHS:
            return Path
        if (module, name) == ("torch.serialization", "_get_layout"):
            return torch.serialization._get_layout
        if (module, name) == ("builtins", "getattr"):
            return _member
        if module == "torch":
            found = getattr(torch, name, None)
            if found is torch.Size or isinstance(found, torch.dtype | torch.layout):
                return found
        raise _forbidden(f"{module}.{name}")


def _forbidden(what: str) -> ForbiddenClass:
    return ForbiddenClass(f"{METADATA_NAME} names {what}, which is no part of checkpoint metadata; refused")


def _member(owner: object, name: object) -> Any:
    """Python before 3.11.4 writes the member of an enumeration as `getattr` of its class and its name: just that."""
    members: dict[object, Any] = dict(metadata._MEM_FORMAT_ENCODING.__members__)
    if owner is metadata._MEM_FORMAT_ENCODING and name in members:
        return members[name]
    raise _forbidden(f"attribute {name!r} of {owner!r}")


class CarefulReader(FileSystemReader):
    """Reads a verified directory; `files` are the names that its manifest lists."""

    def __init__(self, path: Path, files: frozenset[str]) -> None:
        super().__init__(str(path))
        self._files = files

    def read_metadata(self, *args: Any, **kwargs: Any) -> metadata.Metadata:
        data = (Path(self.path) / METADATA_NAME).read_bytes()
        found = MetadataUnpickler(io.BytesIO(data)).load()
        if not isinstance(found, metadata.Metadata):
            raise ForbiddenClass(f"{METADATA_NAME} holds a {type(found).__name__}, not checkpoint metadata; refused")
        outside = {info.relative_path for info in found.storage_data.values()} - self._files
        if outside:
            raise ForbiddenClass(f"{METADATA_NAME} points to {min(outside)}, which the manifest does not list; refused")
        return found


class CarefulPlanner(DefaultLoadPlanner):
    """Reads plain values (counters, learning rates) without unpickling classes."""

    def load_bytes(self, read_item: ReadItem, value: io.BytesIO) -> None:
        loaded = torch.load(value, weights_only=True)
        super().load_bytes(read_item, _repacked(loaded))


def _repacked(value: object) -> io.BytesIO:
    """The value in a stream of our own making, which may be read in any way."""
    stream = io.BytesIO()
    torch.save(value, stream)
    stream.seek(0)
    return stream


class CarefulWriter(FileSystemWriter):
    """Writes one synced file a rank into a fresh directory."""

    def __init__(self, path: Path) -> None:
        super().__init__(str(path), sync_files=True, thread_count=1, overwrite=False)

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> Any:
        try:
            return super().write_data(plan, planner)
        except RuntimeError as error:
            cause = os_error_behind(error)
            if cause is None:
                raise
            raise cause from error


def os_error_behind(error: BaseException | None) -> OSError | None:
    """The `OSError` that a chain of exceptions goes back to; the zip writer's own complaint counts as EIO."""
    last: BaseException | None = None
    while error is not None:
        if isinstance(error, OSError):
            return error
        last, error = error, error.__cause__ or error.__context__
    if last is not None and "PytorchStreamWriter" in str(last):
        return OSError(errno.EIO, os.strerror(errno.EIO))
    return None
