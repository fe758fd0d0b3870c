"""Elements of a tensor that another program stored, found without PyTorch.

An item of a distributed checkpoint is a zip archive that `torch.save` wrote: a pickle that says how the elements are
laid out, and the elements. The pickle is read by an unpickler that knows three names, and only the plain case is taken,
a tensor that owns its elements in row-major order; a view with other strides has to be loaded by PyTorch itself.
"""

import io
import pickle
import zipfile
from collections import OrderedDict
from collections.abc import Sequence
from math import prod
from typing import Any, Final

from trainmaster.core.checkpoint.index import Chunk
from trainmaster.storage.blob_store import Source

_LOCAL_BYTES: Final = 30


class NotPlain(Exception):
    """An item that is not laid out plainly, or no item of `torch.save` at all."""


class _Slice(io.RawIOBase):
    """A stretch of a blob as a file."""

    def __init__(self, source: Source, offset: int, length: int) -> None:
        super().__init__()
        self._source, self._offset, self._length, self._at = source, offset, length, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._length}[whence]
        return self._at

    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer).cast("B")
        count = max(0, min(len(view), self._length - self._at))
        if count:
            self._source.read_into([view[:count]], self._offset + self._at)
        self._at += count
        return count


class _ItemUnpickler(pickle.Unpickler):
    """Knows what describes a tensor; everything else raises."""

    def find_class(self, module: str, name: str) -> Any:
        if module == "torch._utils" and name in ("_rebuild_tensor_v2", "_rebuild_tensor_v3"):
            return lambda storage, offset, size, stride, *_: (offset, tuple(size), tuple(stride))
        if (module, name) == ("collections", "OrderedDict"):
            return OrderedDict
        if module in ("torch", "torch.storage") and (name.endswith("Storage") or name.islower()):
            return name
        raise NotPlain(f"it names {module}.{name}")

    def persistent_load(self, pid: Any) -> Any:
        return pid


def payload_of(source: Source, chunk: Chunk) -> int:
    """Where in its file the elements of a foreign chunk begin. Raises `NotPlain`, `OSError`, `EOFError`."""
    item = _Slice(source, chunk.offset, chunk.length)
    try:
        with zipfile.ZipFile(item) as archive:
            names = {info.filename.partition("/")[2]: info for info in archive.infolist()}
            offset, size, stride = _ItemUnpickler(io.BytesIO(archive.read(names["data.pkl"]))).load()
            if "byteorder" in names and archive.read(names["byteorder"]) != b"little":
                raise NotPlain("its bytes are in the other order")
            place = names["data/0"].header_offset
    except (zipfile.BadZipFile, KeyError, TypeError, ValueError, pickle.UnpicklingError) as error:
        raise NotPlain(f"it is no tensor that torch.save writes: {error!r}") from error
    if offset != 0 or size != chunk.sizes or not _in_rows(size, stride):
        raise NotPlain("it is a view into a larger tensor, or is laid out by columns")
    head = bytearray(_LOCAL_BYTES)
    source.read_into([memoryview(head)], chunk.offset + place)
    lengths = int.from_bytes(head[26:28], "little") + int.from_bytes(head[28:30], "little")
    return chunk.offset + place + _LOCAL_BYTES + lengths


def _in_rows(size: Sequence[int], stride: Sequence[int]) -> bool:
    return prod(size) <= 1 or all(
        count == 1 or step == prod(size[place + 1 :])
        for place, (count, step) in enumerate(zip(size, stride, strict=True))
    )
