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

from trainmaster.core.checkpoint.index import Form, Index, Outline, Stored

_FORMAT_VERSION = "1.0.0"


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


def outline_of(metadata: Metadata) -> Outline:
    """What a planned save consists of."""
    tensors: dict[str, Form] = {}
    values: list[str] = []
    for name, entry in metadata.state_dict_metadata.items():
        if isinstance(entry, TensorStorageMetadata):
            boxes = tuple((tuple(chunk.offsets), tuple(chunk.sizes)) for chunk in entry.chunks)
            dtype = str(entry.properties.dtype).removeprefix("torch.")
            tensors[name] = Form(dtype=dtype, shape=tuple(entry.size), boxes=boxes)
        else:
            values.append(name)
    paths = metadata.planner_data if isinstance(metadata.planner_data, dict) else {}
    return Outline(tensors=tensors, values=tuple(values), paths={name: tuple(path) for name, path in paths.items()})
