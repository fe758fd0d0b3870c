"""What `.metadata` says, read without running anything it names.

PyTorch keeps the table of contents of a distributed checkpoint in a pickle, and a pickle is a program: a crafted one
runs a shell in every rank that loads it. Here the names that such a table consists of stand for shapes of our own, that
hold fields and do nothing; any other name raises. So it can be read where PyTorch is not installed, too.

The result is an `Index` without sums: nothing in such a checkpoint says what its bytes should be.
"""

import io
import pickle
import pickletools
from collections import OrderedDict
from pathlib import PurePosixPath
from typing import Any, Final

import msgspec

from trainmaster.core.base.value import decode, encode
from trainmaster.core.checkpoint.index import Chunk, Index, Plain, Tensor

METADATA_NAME: Final = ".metadata"
_METADATA: Final = "torch.distributed.checkpoint.metadata"
_POSIX_PATHS: Final = frozenset({"Path", "PosixPath", "PurePosixPath"})
_FORMATS: Final = frozenset({"TORCH_CONTIGUOUS_FORMAT", "TORCH_CHANNELS_LAST", "TORCH_PRESERVE_FORMAT"})
_TYPES: Final = frozenset(
    {
        "bool", "uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64", "float16", "bfloat16",
        "float32", "float64", "complex32", "complex64", "complex128", "float8_e4m3fn", "float8_e5m2",
        "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu", "float4_e2m1fn_x2",
    }
)  # fmt: skip


class NoTable(pickle.UnpicklingError):
    """The bytes of a file are no checkpoint metadata, whatever else they are."""


class ForbiddenClass(NoTable):
    """A file names something that checkpoint metadata does not consist of."""


class _Record:
    """Fields, as they were stored. Two are equal if their fields are, so that they can be keys."""

    def __setstate__(self, state: Any) -> None:
        self.__dict__.update(state if isinstance(state, dict) else {"state": state})

    def key(self) -> tuple[Any, Any]:
        return self.__dict__.get("fqn"), self.__dict__.get("offset")

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and isinstance(other, _Record) and self.key() == other.key()

    def __hash__(self) -> int:
        return hash(self.key())


class _Metadata(_Record):
    pass


class _TensorStorage(_Record):
    pass


class _BytesStorage(_Record):
    pass


class _Chunk(_Record):
    pass


class _Properties(_Record):
    pass


class _StorageMeta(_Record):
    pass


class _Place(_Record):
    pass


class _StorageInfo(_Record):
    pass


class _Format:
    """Stands for an enumeration whose members do not matter here."""

    def __init__(self, value: int) -> None:
        self.value = value


_RECORDS: Final[dict[str, type]] = {
    "BytesStorageMetadata": _BytesStorage,
    "ChunkStorageMetadata": _Chunk,
    "Metadata": _Metadata,
    "MetadataIndex": _Place,
    "StorageMeta": _StorageMeta,
    "TensorProperties": _Properties,
    "TensorStorageMetadata": _TensorStorage,
    "_MEM_FORMAT_ENCODING": _Format,
}


class MetadataUnpickler(pickle.Unpickler):
    """Admits the classes of checkpoint metadata, sizes, data types and layouts; everything else raises."""

    def find_class(self, module: str, name: str) -> Any:
        if module == _METADATA and name in _RECORDS:
            return _RECORDS[name]
        if (module, name) == ("torch.distributed.checkpoint.filesystem", "_StorageInfo"):
            return _StorageInfo
        if (module, name) == ("collections", "OrderedDict"):
            return OrderedDict
        if module in ("pathlib", "pathlib._local") and name in _POSIX_PATHS:
            return PurePosixPath
        if (module, name) == ("torch.serialization", "_get_layout"):
            return str
        if (module, name) == ("builtins", "getattr"):
            return _member
        if (module, name) == ("torch", "Size"):
            return tuple
        if module == "torch" and name in _TYPES:
            return name
        raise _forbidden(f"{module}.{name}")


def index_of(data: bytes) -> Index:
    """The table of contents in a `.metadata` file.

    Raises `NoTable` for all other bytes, as `ForbiddenClass` if they name or hold what does not belong there.
    """
    try:
        _check_memo(data)
        found = MetadataUnpickler(io.BytesIO(data)).load()
    except NoTable:
        raise
    except Exception as error:  # bytes that nobody meant can make `pickle` raise anything
        said = f"{type(error).__name__}: {error}" if data else "it is empty"
        raise NoTable(f"{METADATA_NAME} is damaged, cut off, or no pickle ({said})") from error
    if not isinstance(found, _Metadata):
        raise ForbiddenClass(f"{METADATA_NAME} holds a {type(found).__name__}, not checkpoint metadata; refused")
    try:
        return decode(encode(_index(found.__dict__)), Index)  # there and back, which checks every type
    except (AttributeError, IndexError, KeyError, OverflowError, RecursionError, TypeError, ValueError,
            msgspec.MsgspecError) as error:  # fmt: skip
        raise ForbiddenClass(f"{METADATA_NAME} is no table that PyTorch writes ({error!r}); refused") from error


def _check_memo(data: bytes) -> None:
    """A pickle numbers what it remembers, and `pickle` makes room up to that number: six bytes could ask for 64 GiB.
    An honest one has at least a byte for each number. Raises `NoTable`, `ValueError`."""
    for opcode, number, _ in pickletools.genops(data):
        if opcode.name in ("LONG_BINPUT", "PUT") and isinstance(number, int) and number > len(data):
            raise NoTable(f"{METADATA_NAME} asks for room for {number} objects in {len(data)} bytes; refused")


def _index(table: dict[str, Any]) -> Index:
    places: dict[_Record, Any] = table["storage_data"]
    by_key = {place.key(): info for place, info in places.items()}
    tensors: dict[str, Tensor] = {}
    values: dict[str, Plain] = {}
    for name, entry in table["state_dict_metadata"].items():
        if isinstance(entry, _TensorStorage):
            chunks = tuple(_chunk(chunk, by_key[name, tuple(chunk.offsets)]) for chunk in entry.__dict__["chunks"])
            dtype = entry.__dict__["properties"].__dict__["state"][0]
            tensors[name] = Tensor(dtype=dtype, shape=tuple(entry.__dict__["size"]), chunks=chunks)
        else:
            info = by_key[name, None]
            values[name] = Plain(file=_plain(info.relative_path), offset=info.offset, length=info.length)
    paths = {name: tuple(path) for name, path in (table.get("planner_data") or {}).items()}
    return Index(tensors=tensors, values=values, paths=paths)


def _chunk(chunk: Any, info: Any) -> Chunk:
    if getattr(info, "transform_descriptors", None):
        raise ValueError(f"{info.relative_path} is transformed by an extension")
    return Chunk(
        offsets=tuple(chunk.offsets),
        sizes=tuple(chunk.sizes),
        file=_plain(info.relative_path),
        offset=info.offset,
        length=info.length,
    )


def _plain(name: str) -> str:
    """The name of a file in the directory; a path that leads out of it is refused."""
    if "/" in name or name in ("", ".", ".."):
        raise ForbiddenClass(f"{METADATA_NAME} points to {name!r}, which is no file of its directory; refused")
    return name


def _forbidden(what: str) -> ForbiddenClass:
    return ForbiddenClass(f"{METADATA_NAME} names {what}, which is no part of checkpoint metadata; refused")


def _member(owner: object, name: object) -> Any:
    """Python before 3.11.4 writes the member of an enumeration as `getattr` of its class and its name: just that."""
    if owner is _Format and name in _FORMATS:
        return _Format(0)
    raise _forbidden(f"attribute {name!r} of {owner!r}")
