"""Files that health reads: logs and captures, plain or compressed, as they are found on hosts and in tickets.

One that can't be read is a finding like others, *unknown*, with its reason: the other files of the call are judged all
the same. What is neither a file nor a pipe is refused, and a pipe is not waited for without end.

A file that is no text is not guessed at, and one that is too large is read from its end, where the newest lines are;
both are said, because what was not read is not healthy. Bytes that are not UTF-8 are replaced: a serial number in
another encoding must not hide the line about the GPU.
"""

import bz2
import gzip
import io
import lzma
import os
import select
import stat
import sys
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple

from trainmaster.core.health.finding import Finding
from trainmaster.core.health.words import UNKNOWN

LIMIT_BYTES: Final = 256 * 1024 * 1024
PATIENCE_S: Final = 10.0
"""So long is waited for the next bytes of a pipe."""
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


def contents(names: Sequence[str], limit: int = LIMIT_BYTES) -> tuple[list[tuple[str, str]], list[Finding]]:
    """The texts of files by name, and what could not be read of them. The same file twice is one."""
    texts: list[tuple[str, str]] = []
    notes: list[Finding] = []
    once: dict[str, str] = {}
    for name in names:
        once.setdefault(name if name == "-" else os.path.realpath(name), name)
    for name in once.values():
        try:
            text, its = content(name, limit)
        except Unreadable as error:
            its = (_note(name, str(error), error.fix),)
            text = ""
        notes += its
        if text.strip() or not its:
            texts.append((name, text))
    return texts, notes


def content(name: str, limit: int = LIMIT_BYTES) -> Content:
    """The text of a file; `-` is standard input. Raises `Unreadable`."""
    data, left_out = _stdin(limit) if name == "-" else _bytes(Path(name), limit)
    notes = []
    if left_out:
        notes.append(_note(name, f"{left_out} was not read; {_size(len(data))} were"))
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        return Content(data.decode("utf-16", "replace"), tuple(notes))
    if _is_binary(data):
        return Content("", (_note(name, "this is no text: it is binary"),))
    return Content(data.replace(b"\0", b"").decode("utf-8", "replace"), tuple(notes))


def _bytes(path: Path, limit: int) -> tuple[bytes, str]:
    """The content, and in words what is not in it."""
    try:
        mode = path.stat().st_mode
        if stat.S_ISREG(mode):
            with path.open("rb") as file:
                return _of_file(path, file, limit)
        if stat.S_ISFIFO(mode):
            data, left_out = _pipe(path, limit)
            unpacked, cut = _of_file(path, io.BytesIO(data), limit)
            return unpacked, cut or left_out
        if stat.S_ISCHR(mode) and path.stat().st_rdev == Path(os.devnull).stat().st_rdev:
            return b"", ""
        raise _no_file(path, mode)
    except FileNotFoundError as error:
        raise Unreadable(f"cannot read {path}", "the file does not exist", "check the path") from error
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise Unreadable(f"cannot read {path}", why, "check the path, and whether you may read it") from error


def _no_file(path: Path, mode: int) -> Unreadable:
    """What is neither a file nor a pipe may hang whoever reads it."""
    if stat.S_ISDIR(mode):
        return Unreadable(f"cannot read {path}", "it is a directory", f"give its files: {path}/*")
    if stat.S_ISSOCK(mode):
        return Unreadable(f"cannot read {path}", "it is a socket", "give a file, or - for standard input")
    return Unreadable(f"cannot read {path}", "it is a device, which has no end", "save it first: dmesg > dmesg.log")


def _pipe(path: Path, limit: int) -> tuple[bytes, str]:
    """What comes through a pipe. It is not waited for without end: whoever was to write may be gone."""
    what, fix = f"cannot read {path}", "start what writes to it first, or give - and the pipe as standard input"
    parts: list[bytes] = []
    size = 0
    pipe = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        while size <= limit:
            try:
                part = os.read(pipe, 1 << 20)
            except BlockingIOError:
                if select.select([pipe], [], [], PATIENCE_S)[0]:
                    continue
                if parts:
                    return b"".join(parts), f"the rest, which did not come within {PATIENCE_S:g} s,"
                raise Unreadable(what, f"it is a pipe, and nothing came within {PATIENCE_S:g} s", fix) from None
            if not part:
                break
            parts.append(part)
            size += len(part)
    finally:
        os.close(pipe)
    if not parts:
        raise Unreadable(what, "it is a pipe that nobody writes to", fix)
    return b"".join(parts)[:limit], "the rest" if size > limit else ""


def _of_file(path: Path, file: BinaryIO, limit: int) -> tuple[bytes, str]:
    """The content of what can be read from any place, unpacked."""
    magic = file.read(6)
    size = file.seek(0, os.SEEK_END)
    file.seek(0)
    if magic.startswith(b"\x1f\x8b"):
        return _packed(path, gzip.GzipFile(fileobj=file), limit)
    if magic.startswith(b"\xfd7zXZ\x00"):
        return _packed(path, lzma.LZMAFile(file), limit)
    if magic.startswith(b"BZh"):
        return _packed(path, bz2.BZ2File(file), limit)
    if magic.startswith(b"(\xb5/\xfd"):
        raise Unreadable(f"cannot read {path}", "it is packed with zstd", f"unpack it: zstd -d {path}")
    if size > limit:
        file.seek(size - limit)
        return file.read(limit), f"the first {size - limit} bytes"
    data = file.read(limit + 1)  # files of the kernel have no size
    return data[:limit], "the rest" if len(data) > limit else ""


def _packed(path: Path, file: "gzip.GzipFile | bz2.BZ2File | lzma.LZMAFile", limit: int) -> tuple[bytes, str]:
    """As much as can be unpacked: the end of a packed file may be missing."""
    parts: list[bytes] = []
    size = 0
    try:
        while size <= limit and (part := file.read1(1 << 20)):
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


def _size(count: int) -> str:
    return f"{count} bytes" if count < 1 << 20 else f"{count >> 20} MiB"


def _note(name: str, summary: str, fix: str = "the log or capture as text") -> Finding:
    return Finding(
        unit="host",
        verdict=UNKNOWN.verdict,
        remedy=UNKNOWN.remedy,
        rule="not-read",
        summary=summary,
        file=name,
        confidence="low",
        next_evidence=(fix,),
    )
