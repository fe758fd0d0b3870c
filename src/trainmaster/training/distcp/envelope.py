"""The envelope of a tensor: what `torch.save` writes around its elements.

An item of a distributed checkpoint is a zip archive of its own, made by `torch.save`: a pickle of ten lines that says
type and shape, the elements, a version. `torch.save` copies the elements through a stream to make it, one tensor after
the other, with the interpreter's lock held most of the time; here only what stands before and behind them is made, and
the elements go from where they are to the disk.

The archive is stored, not compressed, and its entries are those that `torch.load` looks for, in the order of
`torch.save`, with the elements at a multiple of 64 bytes. One field differs: the zip's own checksum of the elements is
0. `torch.load` does not look at it, and ours lie in the index, by block.
"""

import functools
import io
import pickle
import struct
from typing import Any, Final

import torch

from trainmaster.storage.checksum import crc32

ALIGNMENT: Final = 64
_ROOT: Final = "archive"
_LIMIT: Final = 0xFFFFFFFF
_LOCAL: Final = struct.Struct("<IHHHHHIIIHH")
_CENTRAL: Final = struct.Struct("<IHHHHHHIIIHHHHHII")
_END: Final = struct.Struct("<IHHHHIIH")
_END64: Final = struct.Struct("<IQHHIIQQQQ")
_LOCATOR64: Final = struct.Struct("<IIQI")
_DOS_DATE: Final = 0x21  # 1980-01-01: two saves of one state are equal to the byte


class _Entry:
    __slots__ = ("crc", "name", "offset", "size")

    def __init__(self, name: str, size: int, crc: int, offset: int) -> None:
        self.name, self.size, self.crc, self.offset = name.encode(), size, crc, offset


@functools.lru_cache(maxsize=4096)
def envelope(dtype: torch.dtype, shape: torch.Size) -> tuple[bytes, bytes]:
    """What stands before and behind the elements of a contiguous tensor of this form on the CPU."""
    form = torch.empty(shape, dtype=dtype)  # never touched, so it takes addresses and no memory
    before = bytearray()
    entries = [_append(before, "data.pkl", _described(form)), _append(before, "byteorder", b"little")]
    payload_bytes = form.numel() * form.element_size()
    entries.append(_open(before, "data/0", payload_bytes))
    start = len(before) + payload_bytes
    behind = bytearray()
    entries.append(_append(behind, "version", b"3\n", start))
    behind += _directory(entries, start + len(behind))
    return bytes(before), bytes(behind)


class _Pickler(pickle.Pickler):
    """Names the elements of a tensor instead of writing them, as `torch.save` does."""

    def persistent_id(self, value: Any) -> Any:
        if isinstance(value, torch.storage.TypedStorage):
            return ("storage", getattr(torch, value._pickle_storage_type()), "0", "cpu", value._size())
        if isinstance(value, torch.UntypedStorage):
            return ("storage", torch.UntypedStorage, "0", "cpu", value.nbytes())
        return None


def _described(form: torch.Tensor) -> bytes:
    stream = io.BytesIO()
    _Pickler(stream, protocol=2).dump(form)
    return stream.getvalue()


def _append(archive: bytearray, name: str, data: bytes, base: int = 0) -> _Entry:
    entry = _Entry(f"{_ROOT}/{name}", len(data), crc32(data), base + len(archive))
    archive += _local(entry, b"") + data
    return entry


def _open(archive: bytearray, name: str, size: int) -> _Entry:
    """Begins an entry whose content follows, at a multiple of the alignment."""
    entry = _Entry(f"{_ROOT}/{name}", size, 0, len(archive))
    extra = struct.pack("<HHQQ", 1, 16, size, size) if size >= _LIMIT else b""
    filled = (len(archive) + _LOCAL.size + len(entry.name) + len(extra) + 4) % ALIGNMENT
    padding = -filled % ALIGNMENT
    archive += _local(entry, extra + struct.pack("<HH", 0x4246, padding) + bytes(padding))
    assert len(archive) % ALIGNMENT == 0
    return entry


def _local(entry: _Entry, extra: bytes) -> bytes:
    size = min(entry.size, _LIMIT)
    head = _LOCAL.pack(
        0x04034B50, 45, 0x0800, 0, 0, _DOS_DATE, entry.crc, size, size, len(entry.name), len(extra)
    )  # fmt: skip
    return head + entry.name + extra


def _directory(entries: list[_Entry], at: int) -> bytes:
    """The directory of an archive, which begins at byte `at` of it, and the end of the archive."""
    central = b"".join(_central(entry) for entry in entries)
    count, small_at = len(entries), min(at, _LIMIT)
    end = _END.pack(0x06054B50, 0, 0, count, count, len(central), small_at, 0)
    if at < _LIMIT:
        return central + end
    end64 = _END64.pack(0x06064B50, 44, 45, 45, 0, 0, count, count, len(central), at)
    return central + end64 + _LOCATOR64.pack(0x07064B50, 0, at + len(central), 1) + end


def _central(entry: _Entry) -> bytes:
    """Fields that do not fit into 32 bits stand in an extra field, in this order and only those."""
    large = [value for value in (entry.size, entry.size, entry.offset) if value >= _LIMIT]
    extra = struct.pack(f"<HH{len(large)}Q", 1, 8 * len(large), *large) if large else b""
    size, offset = min(entry.size, _LIMIT), min(entry.offset, _LIMIT)
    head = _CENTRAL.pack(
        0x02014B50, 45, 45, 0x0800, 0, 0, _DOS_DATE, entry.crc, size, size, len(entry.name), len(extra), 0, 0, 0, 0,
        offset,
    )  # fmt: skip
    return head + entry.name + extra
