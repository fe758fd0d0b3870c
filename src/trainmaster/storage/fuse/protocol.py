"""The kernel's FUSE protocol, version 7.31 and later, as bytes.

Nothing here does anything: functions take bytes apart and put them together, so that tests can compare them with a
table. The layouts are those of `linux/fuse.h`, which are frozen: newer kernels add fields at the end, and answers of
the size that an older minor version had stay valid. Little-endian hosts only (x86-64, ARM): the kernel speaks its own
byte order.

A request is a header, a fixed part that depends on the operation, and names (ended by a zero byte) or bytes. Header and
fixed part of a write are 80 bytes, so a reader that gives the kernel 80 bytes and then a page-aligned buffer finds what
is to be written aligned.
"""

import errno
import struct
from collections.abc import Iterator
from enum import IntEnum, IntFlag
from typing import Final, NamedTuple

MAJOR: Final = 7
MINOR: Final = 40
MINOR_LEAST: Final = 31
REQUEST_BYTES: Final = 1 << 20
"""The most that one read or write carries."""
PREFIX_BYTES: Final = 80
"""Header and fixed part of a write."""
RESENT: Final = 1 << 63
"""Set in the number of a request that the kernel sends once more (`NOTIFY_RESEND`)."""
NOTIFY_RESEND: Final = 7
NAME_BYTES_MAX: Final = 255


class Operation(IntEnum):
    LOOKUP = 1
    FORGET = 2
    GETATTR = 3
    SETATTR = 4
    READLINK = 5
    SYMLINK = 6
    MKNOD = 8
    MKDIR = 9
    UNLINK = 10
    RMDIR = 11
    RENAME = 12
    LINK = 13
    OPEN = 14
    READ = 15
    WRITE = 16
    STATFS = 17
    RELEASE = 18
    FSYNC = 20
    SETXATTR = 21
    GETXATTR = 22
    LISTXATTR = 23
    REMOVEXATTR = 24
    FLUSH = 25
    INIT = 26
    OPENDIR = 27
    READDIR = 28
    RELEASEDIR = 29
    FSYNCDIR = 30
    CREATE = 35
    INTERRUPT = 36
    DESTROY = 38
    IOCTL = 39
    BATCH_FORGET = 42
    FALLOCATE = 43
    READDIRPLUS = 44
    RENAME2 = 45
    LSEEK = 46
    COPY_FILE_RANGE = 47


SILENT: Final = frozenset({Operation.FORGET, Operation.BATCH_FORGET, Operation.INTERRUPT})
"""What the kernel wants no answer to. An interrupted operation is finished all the same."""


class Feature(IntFlag):
    """What kernel and file system agree on at the start; bits of 32 on travel in a second word."""

    ASYNC_READ = 1 << 0
    ATOMIC_O_TRUNC = 1 << 3
    BIG_WRITES = 1 << 5
    READDIRPLUS = 1 << 13
    READDIRPLUS_AUTO = 1 << 14
    ASYNC_DIO = 1 << 15
    PARALLEL_DIROPS = 1 << 18
    MAX_PAGES = 1 << 22
    HANDLE_KILLPRIV_V2 = 1 << 28
    INIT_EXT = 1 << 30
    DIRECT_IO_ALLOW_MMAP = 1 << 36
    PASSTHROUGH = 1 << 37
    HAS_RESEND = 1 << 39


WANTED: Final = (
    Feature.ASYNC_READ
    | Feature.ATOMIC_O_TRUNC
    | Feature.BIG_WRITES
    | Feature.READDIRPLUS
    | Feature.READDIRPLUS_AUTO
    | Feature.ASYNC_DIO
    | Feature.PARALLEL_DIROPS
    | Feature.MAX_PAGES
    | Feature.HANDLE_KILLPRIV_V2  # else every write asks for an attribute first
    | Feature.INIT_EXT
    | Feature.DIRECT_IO_ALLOW_MMAP
)
"""Without the kernel's write-back cache: it loses appends, and with it the kernel does no passthrough."""


class OpenFlag(IntFlag):
    """How the kernel is to treat an open file."""

    DIRECT_IO = 1 << 0
    KEEP_CACHE = 1 << 1
    PASSTHROUGH = 1 << 7


class Valid(IntFlag):
    """Which fields of a request to change attributes count."""

    MODE = 1 << 0
    UID = 1 << 1
    GID = 1 << 2
    SIZE = 1 << 3
    ATIME = 1 << 4
    MTIME = 1 << 5
    ATIME_NOW = 1 << 7
    MTIME_NOW = 1 << 8
    CTIME = 1 << 10
    KILL_SUIDGID = 1 << 11


_HEADER: Final = struct.Struct("<IIQQIIIHH")
_ANSWER: Final = struct.Struct("<IiQ")
_ATTRIBUTES: Final = struct.Struct("<6Q10I")
_ENTRY: Final = struct.Struct("<4Q2I")
_ATTR_HEAD: Final = struct.Struct("<QII")
_TRANSFER: Final = struct.Struct("<QQIIQII")
_OPENED: Final = struct.Struct("<QIi")
_SETATTR: Final = struct.Struct("<II6Q8I")
_DIRENT: Final = struct.Struct("<QQII")
_STATFS: Final = struct.Struct("<5Q4I24x")
_INIT_OUT: Final = struct.Struct("<IIIIHHIIHHII24x")
_COPY: Final = struct.Struct("<7Q")
_FALLOCATE: Final = struct.Struct("<3QII")
_PAIR: Final = struct.Struct("<II")
_QUAD: Final = struct.Struct("<Q")
HEADER_BYTES: Final = _HEADER.size
ANSWER_BYTES: Final = _ANSWER.size
ENTRY_BYTES: Final = _ENTRY.size + _ATTRIBUTES.size


class Header(NamedTuple):
    length: int
    operation: int
    unique: int
    node: int
    uid: int
    gid: int
    pid: int


class Attributes(NamedTuple):
    """What `stat` shows. Times in nanoseconds since 1970."""

    node: int
    size: int
    blocks: int
    atime: int
    mtime: int
    ctime: int
    mode: int
    links: int
    uid: int
    gid: int
    rdev: int


class Change(NamedTuple):
    """A request to change attributes. Times in nanoseconds."""

    valid: int
    size: int
    atime: int
    mtime: int
    mode: int
    uid: int
    gid: int


class Transfer(NamedTuple):
    """A read or a write."""

    handle: int
    offset: int
    size: int
    flags: int
    """Flags of the open file (`O_APPEND` and so on)."""


def header(data: bytes | bytearray | memoryview) -> Header:
    return Header(*_HEADER.unpack_from(data)[:7])


def answer(unique: int, size: int) -> bytes:
    """The head of an answer that carries `size` bytes more."""
    return _ANSWER.pack(ANSWER_BYTES + size, 0, unique)


def refusal(unique: int, number: int) -> bytes:
    """The answer with an error of the system (`errno.*`)."""
    assert number > 0, number
    return _ANSWER.pack(ANSWER_BYTES, -number, unique)


def notice(kind: int) -> bytes:
    """A message that answers nothing."""
    return _ANSWER.pack(ANSWER_BYTES, kind, 0)


# --- the start


class Start(NamedTuple):
    """What the kernel offers."""

    major: int
    minor: int
    read_ahead: int
    features: int


def start(body: bytes) -> Start:
    major, minor, read_ahead, flags = struct.unpack_from("<4I", body)
    more = struct.unpack_from("<I", body, 16)[0] if len(body) >= 20 and flags & Feature.INIT_EXT else 0
    return Start(major, minor, read_ahead, flags | more << 32)


def started(offered: Start, features: int) -> bytes:
    """The answer. `features` are those wanted; what the kernel does not offer is left out."""
    agreed = features & offered.features
    depth = 1 if agreed & Feature.PASSTHROUGH else 0
    head = (MAJOR, min(MINOR, offered.minor), max(offered.read_ahead, REQUEST_BYTES), agreed & 0xFFFFFFFF)
    return _INIT_OUT.pack(*head, 64, 48, REQUEST_BYTES, 1, REQUEST_BYTES // 4096, 0, agreed >> 32, depth)


# --- what requests say


def names(body: bytes, skipped: int = 0) -> list[bytes]:
    """The names at the end of a request, behind `skipped` bytes. Raises `OSError` for one that is too long."""
    found = body[skipped:].split(b"\0")[:-1]
    if any(len(name) > NAME_BYTES_MAX for name in found):
        raise OSError(errno.ENAMETOOLONG, "a name has more than 255 bytes")
    return found


def name(body: bytes, skipped: int = 0) -> bytes:
    return names(body, skipped)[0]


def numbers(body: bytes, count: int) -> tuple[int, ...]:
    """The first `count` words of 32 bits."""
    return struct.unpack_from(f"<{count}I", body)


def quads(body: bytes, count: int) -> tuple[int, ...]:
    """The first `count` words of 64 bits."""
    return struct.unpack_from(f"<{count}Q", body)


def change(body: bytes) -> Change:
    valid, _, _, size, _, atime, mtime, _, atime_ns, mtime_ns, _, mode, _, uid, gid, _ = _SETATTR.unpack_from(body)
    return Change(valid, size, _instant(atime, atime_ns), _instant(mtime, mtime_ns), mode, uid, gid)


def _instant(seconds: int, nanoseconds: int) -> int:
    """Times before 1970 are negative, though the field is not."""
    return (seconds - (1 << 64 if seconds >> 63 else 0)) * 1_000_000_000 + nanoseconds


def transfer(body: bytes | bytearray | memoryview, at: int = 0) -> Transfer:
    handle, offset, size, _, _, flags, _ = _TRANSFER.unpack_from(body, at)
    return Transfer(handle, offset, size, flags)


def forgotten(body: bytes) -> Iterator[int]:
    """The nodes of a batch of which the kernel lets go."""
    count = numbers(body, 1)[0]
    for at in range(8, 8 + 16 * count, 16):
        yield _QUAD.unpack_from(body, at)[0]


class Copy(NamedTuple):
    source: int
    source_offset: int
    target: int
    target_offset: int
    size: int


def copying(body: bytes) -> Copy:
    source, source_offset, _, target, target_offset, size, _ = _COPY.unpack_from(body)
    return Copy(source, source_offset, target, target_offset, size)


class Reservation(NamedTuple):
    handle: int
    offset: int
    size: int
    mode: int


def reservation(body: bytes) -> Reservation:
    return Reservation(*_FALLOCATE.unpack_from(body)[:4])


# --- what answers say


def attributes(found: Attributes) -> bytes:
    seconds, rest = zip(*(divmod(at, 1_000_000_000) for at in found[3:6]), strict=True)
    past = [each & 0xFFFFFFFFFFFFFFFF for each in seconds]
    owner = (found.mode, found.links, found.uid, found.gid, found.rdev)
    return _ATTRIBUTES.pack(found.node, found.size, found.blocks, *past, *rest, *owner, 4096, 0)


def attributes_out(found: Attributes, cache_ns: int) -> bytes:
    """The answer to a question for attributes, which the kernel may believe for so long."""
    return _ATTR_HEAD.pack(cache_ns // 1_000_000_000, cache_ns % 1_000_000_000, 0) + attributes(found)


def entry(found: Attributes, cache_ns: int) -> bytes:
    """A name's file."""
    seconds, rest = divmod(cache_ns, 1_000_000_000)
    return _ENTRY.pack(found.node, 0, seconds, seconds, rest, rest) + attributes(found)


def no_entry(cache_ns: int) -> bytes:
    """There is no such name, and the kernel may believe it for so long."""
    seconds, rest = divmod(cache_ns, 1_000_000_000)
    return _ENTRY.pack(0, 0, seconds, 0, rest, 0) + bytes(_ATTRIBUTES.size)


def opened(handle: int, flags: int, backing: int = 0) -> bytes:
    return _OPENED.pack(handle, flags, backing)


def written(size: int) -> bytes:
    return _PAIR.pack(size, 0)


def offset(at: int) -> bytes:
    return _QUAD.pack(at)


def attribute_size(size: int) -> bytes:
    return _PAIR.pack(size, 0)


def statistics(blocks: int, free: int, available: int, files: int, files_free: int, block_size: int) -> bytes:
    return _STATFS.pack(blocks, free, available, files, files_free, block_size, NAME_BYTES_MAX, block_size, 0)


def directory_entry(node: int, mode: int, cookie: int, called: bytes) -> bytes:
    """A line of a directory, padded to eight bytes; `cookie` is where to go on behind it."""
    padding = -len(called) % 8
    return _DIRENT.pack(node, cookie, len(called), mode >> 12 & 15) + called + bytes(padding)
