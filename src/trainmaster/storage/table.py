"""PyTorch's table of contents (`.metadata`), written where PyTorch is not installed.

The file is a pickle of PyTorch's classes, so that plain `torch.distributed.checkpoint` reads it. Who publishes a
checkpoint from memory (`parts.py`) has no PyTorch and would spend a second to import it; but a pickle names its classes
and needs none of them to be written. So its few shapes are put down here as they are: records with fields, calls, and
plain values. `foreign.py` is the other direction; `training/distcp/tables.py` makes the same with PyTorch's own
classes, and a test compares the two.
"""

import io
import pickle
from collections.abc import Iterable
from typing import Any, Final

from trainmaster.core.checkpoint.index import Index

FORMAT_VERSION: Final = "1.0.0"
_METADATA: Final = "torch.distributed.checkpoint.metadata"
_FILES: Final = "torch.distributed.checkpoint.filesystem"


class _Global:
    """Something that has a name in a module."""

    def __init__(self, module: str, name: str) -> None:
        self.module, self.name = module, name


class _Call:
    def __init__(self, function: _Global, *arguments: Any) -> None:
        self.function, self.arguments = function, arguments


class _Record:
    """An object of a class, with its state: fields, or what the class makes of a tuple."""

    def __init__(self, kind: _Global, state: dict[str, Any] | tuple[Any, ...]) -> None:
        self.kind, self.state = kind, state


def table_of(index: Index) -> bytes:
    """The bytes of a `.metadata` that says what an index says, sums apart."""
    entries: dict[str, _Record] = {}
    places: list[tuple[_Record, _Record]] = []
    for name, tensor in index.tensors.items():
        chunks = [
            _made("ChunkStorageMetadata", offsets=_size(chunk.offsets), sizes=_size(chunk.sizes))
            for chunk in tensor.chunks
        ]
        properties = _Record(_Global(_METADATA, "TensorProperties"), _properties(tensor.dtype))
        entries[name] = _made("TensorStorageMetadata", properties=properties, size=_size(tensor.shape), chunks=chunks)
        for chunk in tensor.chunks:
            places.append(_place(name, _size(chunk.offsets), chunk.file, chunk.offset, chunk.length))
    for name, value in index.values.items():
        entries[name] = _Record(_Global(_METADATA, "BytesStorageMetadata"), {})
        places.append(_place(name, None, value.file, value.offset, value.length))
    table = _made(
        "Metadata",
        state_dict_metadata=entries,
        planner_data=dict(index.paths) or None,
        storage_data=_Pairs(places),
        storage_meta=_made("StorageMeta", checkpoint_id=None, save_id=None, load_id=None, modules=[]),
        version=FORMAT_VERSION,
    )
    stream = io.BytesIO()
    stream.write(pickle.PROTO + bytes([2]))
    _write(stream, table)
    stream.write(pickle.STOP)
    return stream.getvalue()


class _Pairs:
    """A mapping whose keys are objects."""

    def __init__(self, pairs: Iterable[tuple[Any, Any]]) -> None:
        self.pairs = list(pairs)


def _made(kind: str, **fields: Any) -> _Record:
    return _Record(_Global(_METADATA, kind), fields)


def _size(numbers: tuple[int, ...]) -> _Call:
    return _Call(_Global("torch", "Size"), numbers)


def _properties(dtype: str) -> tuple[Any, ...]:
    """Type, layout, whether it wants a gradient, memory format (contiguous), whether it is pinned."""
    layout = _Call(_Global("torch.serialization", "_get_layout"), "torch.strided")
    return _Global("torch", dtype), layout, False, _Call(_Global(_METADATA, "_MEM_FORMAT_ENCODING"), 0), False


def _place(name: str, offsets: _Call | None, file: str, offset: int, length: int) -> tuple[_Record, _Record]:
    where = _Record(_Global(_FILES, "_StorageInfo"), {"relative_path": file, "offset": offset, "length": length})
    return _made("MetadataIndex", fqn=name, index=None, offset=offsets), where


def _write(stream: io.BytesIO, value: Any) -> None:
    """Puts one value down, in the words of the pickle machine (protocol 2)."""
    match value:
        case None:
            stream.write(pickle.NONE)
        case bool():
            stream.write(pickle.NEWTRUE if value else pickle.NEWFALSE)
        case int():
            data = pickle.encode_long(value)
            stream.write(pickle.LONG1 + bytes([len(data)]) + data)
        case str():
            text = value.encode("utf-8", "surrogatepass")
            stream.write(pickle.BINUNICODE + len(text).to_bytes(4, "little") + text)
        case tuple():
            _write_all(stream, pickle.MARK, value, pickle.TUPLE)
        case list():
            _write_all(stream, pickle.EMPTY_LIST + pickle.MARK, value, pickle.APPENDS)
        case dict():
            _write(stream, _Pairs(value.items()))
        case _Pairs():
            flat = [part for pair in value.pairs for part in pair]
            _write_all(stream, pickle.EMPTY_DICT + pickle.MARK, flat, pickle.SETITEMS)
        case _Global():
            stream.write(pickle.GLOBAL + f"{value.module}\n{value.name}\n".encode())
        case _Call():
            _write(stream, value.function)
            _write_all(stream, pickle.MARK, value.arguments, pickle.TUPLE + pickle.REDUCE)
        case _Record():
            _write(stream, value.kind)
            stream.write(pickle.EMPTY_TUPLE + pickle.NEWOBJ)
            _write(stream, value.state)
            stream.write(pickle.BUILD)
        case _:
            raise TypeError(f"a table of contents holds no {type(value).__name__}")


def _write_all(stream: io.BytesIO, before: bytes, values: Iterable[Any], behind: bytes) -> None:
    stream.write(before)
    for value in values:
        _write(stream, value)
    stream.write(behind)
