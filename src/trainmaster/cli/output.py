"""What commands print: one set of values, six forms.

Data goes to stdout, talk to stderr. `json`, `jsonl` and `yaml` carry the values themselves with raw units
(microseconds, counts) under a schema name; `table` and `wide` are for people: durations and ages in words, states as
words that colour only repeats; `name` is one name a line, for other commands. Nothing is cut to the terminal's width: a
cut host list is a wrong one. The writers are our own, since a table library costs more time to import than all the rest
of a command.
"""

import os
import re
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec

from trainmaster.cli.errors import WrongUsage
from trainmaster.core.base.hostlist import natural_key

_GREEN, _YELLOW, _RED, _GREY = "32", "33", "31", "90"
_PAINT: Final = {
    **dict.fromkeys(("ready", "running", "finished", "ok", "done", "complete", "published"), _GREEN),
    **dict.fromkeys(("draining", "verifying", "launching", "re-forming", "queued", "waiting", "watch"), _YELLOW),
    **dict.fromkeys(("out", "failed", "bad", "repair", "rma", "torn", "silent", "lost"), _RED),
    **dict.fromkeys(("unknown", "expected", "skipped", "retired", "cancelled"), _GREY),
}


class Column:
    """A column of a table.

    `value` gives the raw value of an item, which sorts; `text` turns it into words (default: as it is). `wide` columns
    are shown by `-o wide` or when named. `state` columns are coloured by their word.
    """

    def __init__(
        self,
        name: str,
        value: Callable[[Any], Any],
        text: Callable[[Any], str] | None = None,
        wide: bool = False,
        state: bool = False,
    ) -> None:
        self.name, self.value, self.wide, self.state = name, value, wide, state
        self.text = text or _plain


class Output:
    """Prints in the form that the user asked for."""

    def __init__(self, form: str, columns: tuple[str, ...], sort: str, header: bool, color: str) -> None:
        self.form, self.columns, self.sort, self.header = form, columns, sort, header
        self.color = wants_color(color)

    def listing(
        self,
        kind: str,
        items: Sequence[Any],
        columns: Sequence[Column],
        extra: Mapping[str, Any] | None = None,
        empty: str = "",
    ) -> None:
        """Prints items of a kind. The first column is the name; `extra` stands beside the items of json and yaml;
        `empty` is said where people look and there is none."""
        chosen = self._chosen(columns)
        ordered = self._sorted(items, columns)
        schema = f"trainmaster.{kind}/v1"
        match self.form:
            case "table" | "wide":
                if not ordered:
                    say(empty or f"no {kind}s")
                else:
                    self._table(ordered, chosen)
            case "name":
                _write("".join(f"{columns[0].value(item)}\n" for item in ordered))
            case "jsonl":
                _write("".join(_json({"schema": schema, **_built(item)}) + "\n" for item in ordered))
            case _:
                self._tree({"schema": schema, **(extra or {}), "items": [_built(item) for item in ordered]})

    def one(self, kind: str, item: Any, fields: Sequence[Column]) -> None:
        """Prints one thing: a line a field, or the value itself with its schema."""
        match self.form:
            case "table" | "wide":
                shown = [field for field in fields if self.form == "wide" or not field.wide]
                if self.columns:
                    shown = self._chosen(fields)
                width = max(len(field.name) for field in shown)
                for field in shown:
                    text = self._paint(field, field.text(field.value(item)))
                    _write(f"{field.name + ':':<{width + 1}}  {text}".rstrip() + "\n")
            case "name":
                if not fields:
                    raise WrongUsage(f"a {kind} has no name", "-o name prints the names of things", "use -o json")
                _write(f"{fields[0].value(item)}\n")
            case "jsonl":
                _write(_json({"schema": f"trainmaster.{kind}/v1", **_built(item)}) + "\n")
            case _:
                self._tree({"schema": f"trainmaster.{kind}/v1", **_built(item)})

    def _chosen(self, columns: Sequence[Column]) -> list[Column]:
        if not self.columns:
            return [column for column in columns if self.form == "wide" or not column.wide]
        return [_column(name, columns) for name in self.columns]

    def _sorted(self, items: Sequence[Any], columns: Sequence[Column]) -> list[Any]:
        if not self.sort:
            return list(items)
        column = _column(self.sort.removeprefix("-").lower(), columns)
        return sorted(items, key=lambda item: _sort_key(column.value(item)), reverse=self.sort.startswith("-"))

    def _table(self, items: Sequence[Any], columns: Sequence[Column]) -> None:
        values = [[column.value(item) for column in columns] for item in items]
        rows = [[column.text(value) for column, value in zip(columns, row, strict=True)] for row in values]
        heads = [column.name.upper() for column in columns] if self.header else [""] * len(columns)
        widths = [max(len(head), *(len(row[i]) for row in rows)) for i, head in enumerate(heads)]
        right = [all(isinstance(row[i], int | float) for row in values) for i in range(len(columns))]
        lines = [[_pad(head, w, r) for head, w, r in zip(heads, widths, right, strict=True)]] if self.header else []
        for row in rows:
            cells = zip(columns, row, widths, right, strict=True)
            lines.append([self._paint(column, _pad(text, w, r)) for column, text, w, r in cells])
        _write("".join("  ".join(line).rstrip() + "\n" for line in lines))

    def _paint(self, column: Column, text: str) -> str:
        code = _PAINT.get(text.strip().partition(" ")[0], "") if column.state and self.color else ""
        return f"\033[{code}m{text}\033[0m" if code else text

    def _tree(self, tree: dict[str, Any]) -> None:
        if self.form == "yaml":
            _write("\n".join(_yaml(tree)) + "\n")
        else:
            _write(msgspec.json.format(_json(tree), indent=2) + "\n")


def say(text: str) -> None:
    """Talk, on stderr."""
    sys.stderr.write(text + "\n")


def wants_color(setting: str) -> bool:
    if setting != "auto":
        return setting == "always"
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def instant_text(at: int | None, now: int | None = None) -> str:
    """An instant (microseconds) in UTC with its age beside it: `2026-07-30 12:00:00Z (3 min ago)`."""
    if not at:
        return "never"
    age = (now if now is not None else time.time_ns() // 1000) - at
    words = f"{duration_text(age)} ago" if age >= 0 else f"in {duration_text(-age)}"
    return f"{time.strftime('%Y-%m-%d %H:%M:%SZ', time.gmtime(at // 1_000_000))} ({words})"


def duration_text(duration: int) -> str:
    """A duration (microseconds) in one or two units: `450 ms`, `12 s`, `3 min 5 s`, `2 d 4 h`."""
    if duration < 1_000_000:
        return f"{duration // 1000} ms"
    total = duration // 1_000_000
    for size, name, small, small_name in ((86400, "d", 3600, "h"), (3600, "h", 60, "min"), (60, "min", 1, "s")):
        if total >= size:
            rest = total % size // small
            return f"{total // size} {name}" + (f" {rest} {small_name}" if rest else "")
    return f"{total} s"


def _column(name: str, columns: Sequence[Column]) -> Column:
    for column in columns:
        if column.name.lower() == name:
            return column
    raise WrongUsage(f"no column {name!r}", fix=f"use one of {', '.join(column.name.lower() for column in columns)}")


def _sort_key(value: Any) -> tuple[bool, bool, Any]:
    """None last; numbers before text; text in natural order."""
    if value is None:
        return (True, False, 0)
    if isinstance(value, int | float):
        return (False, False, value)
    return (False, True, natural_key(str(value)))


def _plain(value: Any) -> str:
    if value is None or value == "":
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4g}"
    return str(value)


def _pad(text: str, width: int, right: bool) -> str:
    return text.rjust(width) if right else text.ljust(width)


def _built(item: Any) -> dict[str, Any]:
    tree = msgspec.to_builtins(item)
    assert isinstance(tree, dict), type(item)
    return tree


def _json(tree: Any) -> str:
    return msgspec.json.encode(tree).decode()


def _yaml(tree: Any, indent: str = "") -> list[str]:
    """YAML of builtins: block style, strings in JSON's quotes unless they are plain words."""
    if isinstance(tree, dict) and tree:
        lines = []
        for key, value in tree.items():
            lines += _yaml_entry(f"{indent}{_yaml_scalar(key)}:", value, indent + "  ")
        return lines
    if isinstance(tree, list | tuple) and tree:
        lines = []
        for value in tree:
            first, *rest = _yaml(value, indent + "  ")
            lines += [f"{indent}- {first.lstrip()}", *rest]
        return lines
    return [indent + _yaml_scalar(tree)]


def _yaml_entry(head: str, value: Any, indent: str) -> list[str]:
    if isinstance(value, dict | list | tuple) and value:
        return [head, *_yaml(value, indent)]
    return [f"{head} {_yaml_scalar(value)}"]


def _yaml_scalar(value: Any) -> str:
    plain = isinstance(value, str) and re.fullmatch(r"[A-Za-z][A-Za-z0-9_./-]*", value)
    if plain and value.lower() not in ("true", "false", "yes", "no", "on", "off", "null", "y", "n"):
        return str(value)
    return _json(value)


def _write(text: str) -> None:
    sys.stdout.write(text)
