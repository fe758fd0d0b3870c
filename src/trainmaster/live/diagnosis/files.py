"""Files that a diagnosis reads: dumps as pickles or JSON, logs, tables; plain or compressed; directories of them.

A pickle is a program: loading one with `pickle.load` runs whatever it names. Dumps of the flight recorder consist of
containers, numbers and text alone, which need no name at all, so the reader here refuses every name (`find_class`) and
every reference outside (`persistent_load`), and says so. What is too large, cut off or of another kind is refused with
its place and what to give instead; nothing is guessed. Beside files that can be read, such a one is skipped and named:
ranks that die early leave empty logs and cut dumps, and the others tell why.
"""

import bz2
import gzip
import io
import lzma
import os
import pickle
import stat
import sys
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from trainmaster.core.diagnosis.evidence import Evidence, Unusable, joined
from trainmaster.core.diagnosis.read import read_text, read_tree

LIMIT_BYTES: Final = 512 * 1024 * 1024
FILES_MAX: Final = 100_000
_ABSENT: Final = "there is no such file"
_PACKED: Final = ((b"\x1f\x8b", gzip.open), (b"\xfd7zXZ\x00", lzma.open), (b"BZh", bz2.open))


class Named(pickle.UnpicklingError):
    """A pickle names something that would be run or imported."""


class PlainUnpickler(pickle.Unpickler):
    """Loads containers, numbers, text and bytes; whatever has a name raises `Named`."""

    def find_class(self, module: str, name: str) -> Any:
        raise Named(f"it names {module}.{name}, and a dump of the flight recorder names nothing")

    def persistent_load(self, pid: Any) -> Any:
        raise Named("it refers to something outside of itself")


def evidence(names: Sequence[str]) -> Evidence:
    """The evidence in all files; `-` is standard input, directories stand for the files in them.

    What is unusable is listed in `skipped`. Raises `Unusable` if nothing is left, or for a name that does not exist.
    """
    parts: list[Evidence] = []
    troubles: list[Unusable] = []
    for given in names:
        try:
            files = _files(given)
        except Unusable as error:
            troubles.append(error)
            continue
        for name in files:
            try:
                parts.append(_one(name, len(parts)))
            except Unusable as error:
                if error.reason == _ABSENT:
                    raise
                troubles.append(error)
    if troubles and not parts:
        raise troubles[0]
    return joined((*parts, Evidence(skipped=tuple(f"{each.place}: {each.reason}" for each in troubles))))


def _files(name: str) -> list[str]:
    if name == "-" or not os.path.isdir(name):
        return [name]
    try:
        found = sorted(path for path in Path(name).iterdir() if path.is_file() and _is_evidence(path.name))
    except OSError as error:
        raise Unusable(name, error.strerror or str(error), "check whether you may read it") from error
    if not found:
        raise Unusable(name, "the directory holds no files", "give the directory with the dumps")
    if len(found) > FILES_MAX:
        raise Unusable(name, f"it holds {len(found)} files", f"give at most {FILES_MAX}")
    return [str(path) for path in found]


def _is_evidence(name: str) -> bool:
    """Of a directory's files; notes that people put beside them are left out."""
    return not name.startswith((".", "README")) and not name.endswith(".md")


def _one(name: str, number: int) -> Evidence:
    data = sys.stdin.buffer.read(LIMIT_BYTES + 1) if name == "-" else _content(Path(name))
    if len(data) > LIMIT_BYTES:
        raise Unusable(name, f"it is larger than {LIMIT_BYTES >> 20} MiB", "give its end: tail -c 100M")
    if _is_pickle(data):
        return read_tree(name, unpickled(name, data))
    if b"\0" in data[:4096] and not data.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise Unusable(name, "it is neither text nor a pickle", "give dumps, logs, output of ncclras, or tables")
    encoding = "utf-16" if data.startswith((b"\xff\xfe", b"\xfe\xff")) else "utf-8"
    return read_text(name, data.decode(encoding, "replace"), number)


def _content(path: Path) -> bytes:
    """The bytes of a file, unpacked. Raises `Unusable`."""
    try:
        mode = path.stat().st_mode
        if not (stat.S_ISREG(mode) or stat.S_ISFIFO(mode)):
            raise Unusable(str(path), "it is no file", "save what it gives into a file")
        with path.open("rb") as file:
            data = file.read(LIMIT_BYTES + 1)
        for magic, opener in _PACKED:
            if data.startswith(magic):
                with opener(io.BytesIO(data)) as packed:
                    return packed.read(LIMIT_BYTES + 1)
    except FileNotFoundError as error:
        raise Unusable(str(path), _ABSENT, "check the path") from error
    except (EOFError, zlib.error, lzma.LZMAError) as error:
        raise Unusable(str(path), f"it can't be unpacked: {error}", "check that the file is whole") from error
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise Unusable(str(path), why, "check the path, and whether you may read it") from error
    return data


def _is_pickle(data: bytes) -> bool:
    return len(data) > 2 and data[0] == 0x80 and 2 <= data[1] <= 5


def unpickled(name: str, data: bytes) -> object:
    """What a pickle holds, if that is plain data. Raises `Unusable`."""
    try:
        return PlainUnpickler(io.BytesIO(data)).load()
    except Named as error:
        raise Unusable(
            name, f"refused: {error}; loading it could run a program", "ask where this file is from"
        ) from error
    except (pickle.UnpicklingError, EOFError, ValueError, TypeError, IndexError, KeyError, AttributeError,
            OverflowError, MemoryError, RecursionError) as error:  # fmt: skip
        said = f"it is a damaged or cut pickle ({type(error).__name__}: {error})"
        raise Unusable(name, said, "copy the whole dump again") from error
