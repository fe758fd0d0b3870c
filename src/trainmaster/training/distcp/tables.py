"""PyTorch's table of contents from our index, and back.

The planner of a load wants a `Metadata`; it is made from the index, so that the pickle beside it need not be read.
"""

from collections.abc import Iterable

import torch
from torch.distributed.checkpoint.filesystem import _StorageInfo
from torch.distributed.checkpoint.metadata import (
    BytesStorageMetadata,
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    StorageMeta,
    TensorProperties,
    TensorStorageMetadata,
)

from trainmaster.core.base.value import Value
from trainmaster.core.checkpoint.index import UNKNOWN, Chunk, Index, Plain, Tensor

_FORMAT_VERSION = "1.0.0"


class Stored(Value):
    """Where one item was put. `payload` is the place of the first element of a tensor."""

    name: str
    offsets: tuple[int, ...] | None
    file: str
    offset: int
    length: int
    payload: int = UNKNOWN


def metadata_of(index: Index) -> Metadata:
    """The table that a planner reads. Raises `AttributeError` for a type of element that this PyTorch does not have."""
    entries: dict[str, TensorStorageMetadata | BytesStorageMetadata] = {}
    places: dict[MetadataIndex, _StorageInfo] = {}
    for name, tensor in index.tensors.items():
        entries[name] = TensorStorageMetadata(
            properties=TensorProperties(dtype=getattr(torch, tensor.dtype)),
            size=torch.Size(tensor.shape),
            chunks=[
                ChunkStorageMetadata(offsets=torch.Size(chunk.offsets), sizes=torch.Size(chunk.sizes))
                for chunk in tensor.chunks
            ],
        )
        for chunk in tensor.chunks:
            info = _StorageInfo(chunk.file, chunk.offset, chunk.length)
            places[MetadataIndex(name, chunk.offsets)] = info
    for name, value in index.values.items():
        entries[name] = BytesStorageMetadata()
        places[MetadataIndex(name)] = _StorageInfo(value.file, value.offset, value.length)
    return Metadata(
        state_dict_metadata=entries,
        planner_data=dict(index.paths) or None,
        storage_data=places,
        storage_meta=StorageMeta(),
        version=_FORMAT_VERSION,
    )


def completed(metadata: Metadata, stored: Iterable[Stored]) -> Metadata:
    """The table that a planner made, with the places that the writers tell: what plain PyTorch reads."""
    metadata.storage_data = {
        MetadataIndex(item.name, item.offsets): _StorageInfo(item.file, item.offset, item.length) for item in stored
    }
    metadata.version = _FORMAT_VERSION
    metadata.storage_meta = StorageMeta()
    return metadata


def index_from(metadata: Metadata, stored: Iterable[Stored], sums: dict[str, str]) -> Index:
    """The index of a save. Raises `KeyError` if a writer did not tell of an item that the plan has."""
    places = {(item.name, item.offsets): item for item in stored}
    tensors: dict[str, Tensor] = {}
    values: dict[str, Plain] = {}
    for name, entry in metadata.state_dict_metadata.items():
        if isinstance(entry, TensorStorageMetadata):
            chunks = tuple(_chunk(chunk, places[name, tuple(chunk.offsets)]) for chunk in entry.chunks)
            dtype = str(entry.properties.dtype).removeprefix("torch.")
            tensors[name] = Tensor(dtype=dtype, shape=tuple(entry.size), chunks=chunks)
        else:
            item = places[name, None]
            values[name] = Plain(file=item.file, offset=item.offset, length=item.length)
    paths = metadata.planner_data if isinstance(metadata.planner_data, dict) else {}
    return Index(tensors=tensors, values=values, paths={name: tuple(path) for name, path in paths.items()}, sums=sums)


def _chunk(chunk: ChunkStorageMetadata, item: Stored) -> Chunk:
    return Chunk(
        offsets=tuple(chunk.offsets),
        sizes=tuple(chunk.sizes),
        file=item.file,
        offset=item.offset,
        length=item.length,
        payload=item.payload,
    )
