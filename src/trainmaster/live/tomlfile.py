"""Reading a TOML file that a person wrote: every problem at once, each with file, line, key, reason and fix.

A `Table` hands out the values of its keys, checked; what is wrong is noted in a list that all tables of the file share,
and a harmless stand-in is returned, so that reading goes on. `finish` then notes the keys that nobody asked for, with
the nearest known one, because a misspelt key that is ignored is a setting that its author believes in. (msgspec could
convert a whole file in one call, but stops at the first problem.) The line of a key is found by a scan of the text that
knows headers and `key =`; where it is not sure, a problem has no line.
"""

import difflib
import re
import tomllib
from collections.abc import Iterable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from trainmaster.core.base.time import Instant
from trainmaster.core.base.value import Value

KeyPath = tuple[str | int, ...]
_ABSENT: Final = datetime.min


class FileProblem(Value):
    """One thing that is wrong in a file."""

    line: int | None
    key: str
    """Dotted, with the number of the table where there are several: `cluster[2].hosts[1].platform`. Empty: the file."""
    reason: str
    fix: str

    def __str__(self) -> str:
        line = f"line {self.line}: " if self.line else ""
        key = f"{self.key}: " if self.key else ""
        return f"{line}{key}{self.reason}; {self.fix}"


class FileError(Exception):
    """A file that cannot be used. For the person who wrote it."""

    def __init__(self, file: Path, kind: str, problems: Iterable[FileProblem]) -> None:
        self.file, self.kind, self.problems = file, kind, tuple(problems)
        assert self.problems
        super().__init__(f"{file}: " + " | ".join(str(problem) for problem in self.problems))


class Document:
    """A TOML file that is being read. Raises `FileError` if it is missing or is no TOML."""

    def __init__(self, file: Path, kind: str) -> None:
        self.file, self.kind = file, kind
        self.problems: list[FileProblem] = []
        self.text = _read(file, kind)
        try:
            self.root = Table(self, (), tomllib.loads(self.text))
        except tomllib.TOMLDecodeError as error:
            found = re.fullmatch(r"(.*) \(at line (\d+), column \d+\)", str(error))
            line, reason = (int(found.group(2)), found.group(1)) if found else (None, str(error))
            problem = FileProblem(line=line, key="", reason=f"this is not TOML: {reason}", fix="see https://toml.io")
            raise FileError(file, kind, [problem]) from error
        except RecursionError:
            fix = "no file of ours is nested deeper than a few levels"
            problem = FileProblem(line=None, key="", reason="its brackets are nested too deeply to be read", fix=fix)
            raise FileError(file, kind, [problem]) from None

    def change(self, words: Iterable[str]) -> None:
        """Puts other values in place of those of the file, before anything is read: `twin.job[2].hosts=64`, with keys
        as problems name them, and values as in TOML. Raises `FileError`."""
        for word in words:
            key, equals, text = word.partition("=")
            parts = re.findall(r"[^.\[\]]+", key)
            if not equals or not parts or dotted(_path(parts)) != key.strip():
                self.note((), f"{word!r} is no KEY=VALUE", "write it as twin.job[2].hosts=64")
            else:
                self._put(_path(parts), _value(text.strip()))
        self.finish()

    def _put(self, path: KeyPath, value: Any) -> None:
        here: Any = self.root._content
        for depth, part in enumerate(path[:-1]):
            if isinstance(here, dict):
                here.setdefault(part, {})
            if not _has(here, part):
                self.note(path[: depth + 1], "there is no such table in the file", "tables of one name count from 1")
                return
            here = here[part]
        if isinstance(here, dict) or _has(here, path[-1]):
            here[path[-1]] = value
        else:
            self.note(path, "there is no such key", "name a key of a table: twin.job[2].hosts=64")

    def note(self, path: KeyPath, reason: str, fix: str) -> None:
        """Notes a problem of the key at `path`; what follows from an earlier problem of the same key is left out."""
        if any(problem.key == dotted(path) for problem in self.problems):
            return
        self.problems.append(FileProblem(line=line_of(self.text, path), key=dotted(path), reason=reason, fix=fix))

    def check_schema(self, expected: str) -> None:
        found = self.root.text("schema", expected)
        if found != expected:
            self.note(("schema",), f"this is {found!r}", f'a {self.kind} has schema = "{expected}"')

    def finish(self) -> None:
        """Raises `FileError` if anything was noted."""
        if self.problems:
            order = sorted(self.problems, key=lambda problem: (problem.line or 0, problem.key))
            raise FileError(self.file, self.kind, order)


class Table:
    """A table of the document. Getters note what is wrong and return the default instead."""

    def __init__(self, document: Document, path: KeyPath, content: dict[str, Any]) -> None:
        self.document, self.path, self._content = document, path, content
        self._known: set[str] = set()

    def text(self, key: str, default: str | None = None, may_be_empty: bool = True) -> str:
        """A string; required if there is no default."""
        if not may_be_empty and self._content.get(key) == "":
            self.note(key, "it is empty", "write something between the quotes")
        return str(self._get(key, str, "a string in quotes", default, ""))

    def integer(self, key: str, default: int | None, low: int, high: int) -> int:
        """A whole number from `low` to `high`; required if the default is None."""
        value = int(self._get(key, int, "a whole number", default, low))
        return int(self._in_range(key, value, low, high))

    def number(self, key: str, default: float | None, low: float, high: float) -> float:
        """A number from `low` to `high`; required if the default is None."""
        value = self._get(key, (int, float), "a number", default, low)
        return float(self._in_range(key, value, low, high))

    def flag(self, key: str, default: bool = False) -> bool:
        """true or false."""
        self._known.add(key)
        value = self._content.get(key, default)
        if not isinstance(value, bool):
            self.note(key, f"this is {_kind_of(value)}", "write true or false")
            return default
        return value

    def is_off(self, key: str) -> bool:
        """Whether a key that has a value of another kind otherwise is `false`."""
        self._known.add(key)
        return self._content.get(key) is False

    def choice(self, key: str, default: str | None, allowed: Sequence[str]) -> str:
        value = self.text(key, default)
        if key in self._content and isinstance(self._content[key], str) and value not in allowed:
            self.note(key, f"{value!r} is not known", _suggest(value, allowed, quote='"'))
            return allowed[0]
        return value

    def texts(self, key: str, default: tuple[str, ...] | None = None) -> tuple[str, ...]:
        """A list of strings; required if there is no default."""
        value = self._get(key, list, 'a list of strings, such as ["a", "b"]', default, ())
        if any(not isinstance(item, str) for item in value):
            self.note(key, "not all items are strings", "put each item in quotes")
            return ()
        return tuple(value)

    def numbers(self, key: str, default: tuple[float, ...]) -> tuple[float, ...]:
        """A list of numbers."""
        value = self._get(key, list, "a list of numbers, such as [1, 10, 100]", default, ())
        if any(not isinstance(item, int | float) or isinstance(item, bool) for item in value):
            self.note(key, "not all items are numbers", "write them without quotes")
            return default
        return tuple(float(item) for item in value)

    def instant(self, key: str) -> Instant | None:
        """A date and time with its offset; None if absent."""
        value = self._get(key, datetime, "a date and time with its offset: 2026-12-01T02:00:00Z", _ABSENT, _ABSENT)
        if value is _ABSENT:
            return None
        if value.tzinfo is None:
            self.note(key, "a time without an offset is another one in each place", "add Z for UTC, or +01:00")
            return None
        return Instant(round(value.timestamp() * 1_000_000))

    def mapping(self, key: str) -> dict[str, str]:
        """A table of strings; empty if absent."""
        value: dict[str, Any] = self._get(key, dict, f"a table: [{key}]", {}, {})
        for name, item in value.items():
            if not isinstance(item, str):
                shown = str(item).lower() if isinstance(item, bool) else str(item)
                self.document.note((*self.path, key, name), "not a string", f'write {name} = "{shown}"')
        return {name: item for name, item in value.items() if isinstance(item, str)}

    def table(self, key: str) -> "Table":
        """A sub-table; empty if absent."""
        return Table(self.document, (*self.path, key), self._get(key, dict, f"a table: [{key}]", {}, {}))

    def tables(self, key: str) -> list["Table"]:
        """Sub-tables written as [[key]]; none if absent."""
        value = self._get(key, list, f"tables written as [[{key}]]", [], [])
        if any(not isinstance(item, dict) for item in value):
            self.note(key, "not all items are tables", f"write [[{key}]] above each")
            return []
        return [Table(self.document, (*self.path, key, index), item) for index, item in enumerate(value)]

    def has(self, key: str) -> bool:
        return key in self._content

    def note(self, key: str, reason: str, fix: str) -> None:
        self.document.note((*self.path, key), reason, fix)

    def finish(self) -> None:
        """Notes the keys that no getter asked for. Call it after the last getter."""
        for key in self._content.keys() - self._known:
            self.note(key, "this key is not known", _suggest(key, sorted(self._known)))

    def _get(self, key: str, kind: type | tuple[type, ...], words: str, default: Any, stand_in: Any) -> Any:
        self._known.add(key)
        if key not in self._content:
            if default is None:
                self.note(key, "this key is missing", f"add {key}, {words}")
                return stand_in
            return default
        value = self._content[key]
        if not isinstance(value, kind) or isinstance(value, bool):
            self.note(key, f"this is {_kind_of(value)}", f"write {words}")
            return default if default is not None else stand_in
        return value

    def _in_range(self, key: str, value: float, low: float, high: float) -> float:
        if key in self._content and not low <= value <= high:  # NaN is out of range too
            self.note(key, f"{value} is out of range", f"use {low} to {high}")
            return low
        return value


def _has(here: Any, part: str | int) -> bool:
    """Whether a table, or a list of tables, has this part."""
    return part in here if isinstance(here, dict) else isinstance(part, int) and part < len(here)


def _path(parts: Sequence[str]) -> KeyPath:
    """The inverse of `dotted`, as far as its words are parted."""
    return tuple(int(part) - 1 if part.isdigit() and int(part) > 0 else part.strip() for part in parts)


def _value(text: str) -> Any:
    """As TOML has it; what is none stands for itself, so that words need no quotes in a shell."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def dotted(path: KeyPath) -> str:
    """`cluster[2].name`: tables of one name are counted from 1."""
    return "".join(f"[{part + 1}]" if isinstance(part, int) else f".{part}" for part in path).removeprefix(".")


def line_of(text: str, path: KeyPath) -> int | None:
    """The line (from 1) of a key; of the innermost table that holds it if the key itself stands nowhere."""
    counts: dict[tuple[str, ...], int] = {}
    here: KeyPath = ()
    nearest, depth = None, 0
    for number, line in enumerate(text.splitlines(), 1):
        header = re.match(r"\s*(\[\[?)\s*([^\[\]]+?)\s*\]", line)
        key = re.match(r"""\s*["']?([A-Za-z0-9_-]+)["']?\s*[=.]""", line)
        if header:
            names = tuple(part.strip(" \"'") for part in header.group(2).split("."))
            if header.group(1) == "[[":
                counts = {name: count for name, count in counts.items() if name[: len(names)] != names or name == names}
                counts[names] = counts.get(names, -1) + 1
            here = _numbered(names, counts)
            found = here
        elif key:
            found = (*here, key.group(1))
        else:
            continue
        if found == path:
            return number
        if len(found) > depth and path[: len(found)] == found:
            nearest, depth = number, len(found)
    return nearest


def _numbered(names: tuple[str, ...], counts: dict[tuple[str, ...], int]) -> KeyPath:
    """The path of a header: behind each name that has several tables, the number of the latest."""
    path: KeyPath = ()
    for length in range(1, len(names) + 1):
        path = (*path, names[length - 1])
        if names[:length] in counts:
            path = (*path, counts[names[:length]])
    return path


def _read(file: Path, kind: str) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        reason, fix, cause = "the file does not exist", "check the path", error
    except UnicodeDecodeError as other:
        reason, fix, cause = "the file is not UTF-8 text", "save it as UTF-8", other  # type: ignore[assignment]
    except OSError as other:
        reason, fix, cause = f"the file cannot be read ({other.strerror})", "check the path", other  # type: ignore[assignment]
    raise FileError(file, kind, [FileProblem(line=None, key="", reason=reason, fix=fix)]) from cause


def _kind_of(value: object) -> str:
    kinds = {bool: "true or false", str: "a string", int: "a whole number", float: "a number", list: "a list"}
    return kinds.get(type(value), "a table" if isinstance(value, dict) else "a date or time")


def _suggest(word: str, known: Sequence[str], quote: str = "") -> str:
    near = difflib.get_close_matches(word, known, n=1)
    if near:
        return f"did you mean {quote}{near[0]}{quote}?"
    return f"known are {', '.join(known)}" if known else "remove it"
