"""Files that health reads: logs and captures, plain or compressed, as they are found on hosts and in tickets.

A file that is no text is not guessed at, and one that is too large is read from its end, where the newest lines are;
both are said, because what was not read is not healthy. Bytes that are not UTF-8 are replaced: a serial number in
another encoding must not hide the line about the GPU.
"""

import bz2
import gzip
import lzma
import stat
import sys
import zlib
from pathlib import Path
from typing import Final, NamedTuple

from trainmaster.core.health.finding import Finding
from trainmaster.core.health.words import UNKNOWN

LIMIT_BYTES: Final = 256 * 1024 * 1024
_ODD_SHARE: Final = 0.1
"""A text with more control characters than this is none."""


class Unreadable(Exception):
    """A file that cannot be read at all: what, why, what next."""

    def __init__(self, what: str, why: str, fix: str) -> None:
        self.what, self.why, self.fix = what, why, fix
        super().__init__(f"{what}: {why}")


class Content(NamedTuple):
    text: str
    notes: tuple[Finding, ...]
    """What could not be read of it."""


def content(name: str, limit: int = LIMIT_BYTES) -> Content:
    """The text of a file; `-` is standard input. Raises `Unreadable`."""
    data, left_out = _stdin(limit) if name == "-" else _bytes(Path(name), limit)
    notes = []
    if left_out:
        notes.append(_note(name, f"{left_out} was not read: only {limit // 1024 // 1024} MiB were"))
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        return Content(data.decode("utf-16", "replace"), tuple(notes))
    if _is_binary(data):
        return Content("", (_note(name, "this is no text: it is binary"),))
    return Content(data.replace(b"\0", b"").decode("utf-8", "replace"), tuple(notes))


def _bytes(path: Path, limit: int) -> tuple[bytes, str]:
    """The content, and in words what is not in it."""
    try:
        mode = path.stat().st_mode
        if stat.S_ISDIR(mode):
            raise Unreadable(f"cannot read {path}", "it is a directory", f"give its files: {path}/*")
        if stat.S_ISCHR(mode) or stat.S_ISBLK(mode):
            raise Unreadable(
                f"cannot read {path}", "it is a device, which has no end", "save it first: dmesg > dmesg.log"
            )
        with path.open("rb") as file:
            magic = file.read(6)
        if magic.startswith(b"\x1f\x8b"):
            with gzip.open(path) as packed:
                return _packed(path, packed, limit)
        if magic.startswith(b"\xfd7zXZ\x00"):
            with lzma.open(path) as xz:
                return _packed(path, xz, limit)
        if magic.startswith(b"BZh"):
            with bz2.open(path) as bz:
                return _packed(path, bz, limit)
        if magic.startswith(b"(\xb5/\xfd"):
            raise Unreadable(f"cannot read {path}", "it is packed with zstd", f"unpack it: zstd -d {path}")
        with path.open("rb") as file:
            size = path.stat().st_size if stat.S_ISREG(mode) else 0
            if size > limit:
                file.seek(size - limit)
                return file.read(limit), f"the first {size - limit} bytes"
            data = file.read(limit + 1)
            return data[:limit], "the rest" if len(data) > limit else ""
    except FileNotFoundError as error:
        raise Unreadable(f"cannot read {path}", "the file does not exist", "check the path") from error
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise Unreadable(f"cannot read {path}", why, "check the path, and whether you may read it") from error


def _packed(path: Path, file: "gzip.GzipFile | bz2.BZ2File | lzma.LZMAFile", limit: int) -> tuple[bytes, str]:
    """As much as can be unpacked: the end of a packed file may be missing."""
    parts: list[bytes] = []
    size = 0
    try:
        while size <= limit and (part := file.read(1 << 20)):
            parts.append(part)
            size += len(part)
    except (EOFError, OSError, zlib.error, lzma.LZMAError) as error:
        if not parts:
            raise Unreadable(f"cannot unpack {path}", str(error), "check that the file is whole") from error
        return b"".join(parts)[:limit], "the end (the packed file is cut off or damaged)"
    return b"".join(parts)[:limit], "the rest" if size > limit else ""


def _stdin(limit: int) -> tuple[bytes, str]:
    buffer = getattr(sys.stdin, "buffer", None)
    data = buffer.read(limit + 1) if buffer is not None else sys.stdin.read(limit + 1).encode()
    return data[:limit], "the rest" if len(data) > limit else ""


def _is_binary(data: bytes) -> bool:
    """Whether a sample of the beginning holds too many control characters. Runs of NUL, which a crash leaves in logs,
    are no part of it."""
    sample = data[:65_536].replace(b"\0", b"")
    if data and not sample:
        return True
    odd = sum(byte < 9 or 13 < byte < 27 or 27 < byte < 32 or byte == 127 for byte in sample)
    return odd > _ODD_SHARE * len(sample) or len(sample) < 0.5 * len(data[:65_536])


def _note(name: str, summary: str) -> Finding:
    return Finding(
        unit="host",
        verdict=UNKNOWN.verdict,
        remedy=UNKNOWN.remedy,
        rule="not-read",
        summary=summary,
        file=name,
        confidence="low",
        next_evidence=("the log or capture as text",),
    )
