"""The kernel's protocol, compared with the C structures of `linux/fuse.h`: their fields in their order, laid out as the
compiler does."""

import ctypes
import errno
from collections.abc import Callable

import pytest

from trainmaster.storage.fuse import protocol
from trainmaster.storage.fuse.protocol import Attributes, Feature, Operation, Start, Valid

U16, U32, U64, S32 = ctypes.c_uint16, ctypes.c_uint32, ctypes.c_uint64, ctypes.c_int32


def structure(*fields: tuple[str, type]) -> type[ctypes.Structure]:
    return type("Structure", (ctypes.Structure,), {"_fields_": list(fields)})


def words(kind: type, names: str) -> list[tuple[str, type]]:
    return [(name, kind) for name in names.split()]


IN_HEADER = structure(
    *words(U32, "len opcode"), *words(U64, "unique nodeid"), *words(U32, "uid gid pid"), *words(U16, "extlen padding")
)
OUT_HEADER = structure(("len", U32), ("error", S32), ("unique", U64))
ATTR = structure(
    *words(U64, "ino size blocks atime mtime ctime"),
    *words(U32, "atimensec mtimensec ctimensec mode nlink uid gid rdev blksize flags"),
)
ENTRY_OUT = structure(
    *words(U64, "nodeid generation entry_valid attr_valid"),
    *words(U32, "entry_valid_nsec attr_valid_nsec"),
    ("attr", ATTR),
)
ATTR_OUT = structure(("attr_valid", U64), *words(U32, "attr_valid_nsec dummy"), ("attr", ATTR))
INIT_IN = structure(*words(U32, "major minor max_readahead flags flags2"), ("unused", U32 * 11))
INIT_OUT = structure(
    *words(U32, "major minor max_readahead flags"),
    *words(U16, "max_background congestion_threshold"),
    *words(U32, "max_write time_gran"),
    *words(U16, "max_pages map_alignment"),
    *words(U32, "flags2 max_stack_depth"),
    ("unused", U32 * 6),
)
OPEN_OUT = structure(("fh", U64), ("open_flags", U32), ("backing_id", S32))
SETATTR_IN = structure(
    *words(U32, "valid padding"),
    *words(U64, "fh size lock_owner atime mtime ctime"),
    *words(U32, "atimensec mtimensec ctimensec mode unused4 uid gid unused5"),
)
WRITE_IN = structure(
    *words(U64, "fh offset"), *words(U32, "size write_flags"), ("lock_owner", U64), *words(U32, "flags padding")
)
STATFS_OUT = structure(
    *words(U64, "blocks bfree bavail files ffree"), *words(U32, "bsize namelen frsize padding"), ("spare", U32 * 6)
)
COPY_IN = structure(*words(U64, "fh_in off_in nodeid_out fh_out off_out len flags"))
FALLOCATE_IN = structure(*words(U64, "fh offset length"), *words(U32, "mode padding"))
DIRENT = structure(*words(U64, "ino off"), *words(U32, "namelen type"))

FOUND = Attributes(7, 8, 9, 10_000_000_011, 12_000_000_013, 14_000_000_015, 0o100644, 2, 3, 4, 5)
ATTR_OF_FOUND = ATTR(7, 8, 9, 10, 12, 14, 11, 13, 15, 0o100644, 2, 3, 4, 5, 4096, 0)


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        (protocol.answer(5, 3), OUT_HEADER(19, 0, 5)),
        (protocol.refusal(5, errno.ENOENT), OUT_HEADER(16, -2, 5)),
        (protocol.notice(7), OUT_HEADER(16, 7, 0)),
        (protocol.attributes(FOUND), ATTR_OF_FOUND),
        (protocol.attributes_out(FOUND, 1_500_000_000), ATTR_OUT(1, 500_000_000, 0, ATTR_OF_FOUND)),
        (protocol.entry(FOUND, 2_000_000_001), ENTRY_OUT(7, 0, 2, 2, 1, 1, ATTR_OF_FOUND)),
        (protocol.no_entry(2_000_000_001), ENTRY_OUT(0, 0, 2, 0, 1, 0, ATTR())),
        (protocol.opened(9, 128, 3), OPEN_OUT(9, 128, 3)),
        (protocol.written(4), (U32 * 2)(4, 0)),
        (protocol.attribute_size(4), (U32 * 2)(4, 0)),
        (protocol.offset(1 << 40), (U64 * 1)(1 << 40)),
        (protocol.statistics(1, 2, 3, 4, 5, 6), STATFS_OUT(1, 2, 3, 4, 5, 6, 255, 6, 0)),
        (protocol.directory_entry(9, 0o040755, 3, b"abc"), bytes(DIRENT(9, 3, 3, 4)) + b"abc" + bytes(5)),
        (protocol.directory_entry(9, 0o100644, 3, b"abcdefgh"), bytes(DIRENT(9, 3, 8, 8)) + b"abcdefgh"),
    ],
)
def test_what_is_said(made: bytes, expected: ctypes.Structure | bytes) -> None:
    assert made == bytes(expected)


@pytest.mark.parametrize(
    ("read", "body", "expected"),
    [
        (protocol.header, IN_HEADER(80, 16, 3, 4, 5, 6, 7, 0, 0), (80, 16, 3, 4, 5, 6, 7)),
        (protocol.transfer, WRITE_IN(1, 1 << 40, 3, 4, 5, 6, 0), (1, 1 << 40, 3, 6)),
        (
            protocol.change,
            SETATTR_IN(Valid.SIZE | Valid.MTIME, 0, 9, 8, 0, 1, 2, 3, 4, 5, 6, 0o644, 0, 11, 12, 0),
            (Valid.SIZE | Valid.MTIME, 8, 1_000_000_004, 2_000_000_005, 0o644, 11, 12),
        ),
        (
            protocol.change,
            SETATTR_IN(Valid.MTIME, 0, 0, 0, 0, 0, (1 << 64) - 1),
            (Valid.MTIME, 0, 0, -(10**9), 0, 0, 0),
        ),
        (protocol.copying, COPY_IN(1, 2, 3, 4, 5, 6, 7), (1, 2, 4, 5, 6)),
        (protocol.reservation, FALLOCATE_IN(1, 2, 3, 4, 0), (1, 2, 3, 4)),
        (protocol.start, INIT_IN(7, 45, 131072, 1 << 30 | 1, 32), (7, 45, 131072, 1 | 1 << 30 | 1 << 37)),
        (protocol.start, INIT_IN(7, 45, 131072, 1, 32), (7, 45, 131072, 1)),  # the second word counts if announced
    ],
)
def test_what_is_heard(read: Callable[[bytes], object], body: ctypes.Structure, expected: tuple[int, ...]) -> None:
    assert read(bytes(body)) == expected


def test_times_before_1970_come_back_as_they_went() -> None:
    made = ATTR.from_buffer_copy(protocol.attributes(FOUND._replace(mtime=-1)))
    assert (made.mtime, made.mtimensec) == ((1 << 64) - 1, 999_999_999)


def test_names() -> None:
    """1. One, behind a fixed part. 2. Two. 3. Of 255 bytes. 4. Of 256."""
    assert protocol.name(b"12345678abc\0", 8) == b"abc"
    assert protocol.names(b"old\0new\0") == [b"old", b"new"]
    assert protocol.name(b"x" * 255 + b"\0") == b"x" * 255
    with pytest.raises(OSError, match="255") as caught:
        protocol.name(b"x" * 256 + b"\0")
    assert caught.value.errno == errno.ENAMETOOLONG


def test_a_batch_of_nodes_that_are_let_go() -> None:
    body = bytes((U32 * 2)(2, 0)) + bytes((U64 * 4)(5, 1, 6, 9))
    assert list(protocol.forgotten(body)) == [5, 6]


@pytest.mark.parametrize(
    ("offered", "agreed"),
    [
        (Start(7, 31, 131072, Feature.ASYNC_READ | 1 << 1), Feature.ASYNC_READ),
        (Start(7, 99, 1 << 22, (1 << 64) - 1), protocol.WANTED | Feature.PASSTHROUGH),
    ],
)
def test_the_start(offered: Start, agreed: int) -> None:
    """1. What both have is agreed. 2. Nothing else is. 3. The version is the lower one. 4. Requests have a mebibyte."""
    data = protocol.started(offered, protocol.WANTED | Feature.PASSTHROUGH)
    made = INIT_OUT.from_buffer_copy(data)
    assert len(data) == 64 == ctypes.sizeof(INIT_OUT)
    assert made.flags | made.flags2 << 32 == agreed
    assert made.minor == min(offered.minor, protocol.MINOR)
    assert made.max_stack_depth == (1 if agreed & Feature.PASSTHROUGH else 0)
    assert (made.max_write, made.max_pages * 4096) == (1 << 20, 1 << 20)
    assert made.max_readahead >= 1 << 20


def test_a_write_finds_its_bytes_at_a_page() -> None:
    assert ctypes.sizeof(IN_HEADER) + ctypes.sizeof(WRITE_IN) == protocol.PREFIX_BYTES
    assert ctypes.sizeof(ENTRY_OUT) == protocol.ENTRY_BYTES
    assert {Operation.FORGET, Operation.BATCH_FORGET, Operation.INTERRUPT} == protocol.SILENT
