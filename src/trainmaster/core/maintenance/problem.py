"""A problem of a catalogue: how bad, where, what, and what to do."""

import difflib
from collections.abc import Sequence
from typing import Literal

from trainmaster.core.base.value import Value

Path = tuple[str | int, ...]


class Problem(Value):
    severity: Literal["error", "warning"]
    path: Path
    """Where in the declaration: ("component", 2, "after")."""
    place: str
    """The same in words: `component gpu-driver: after`."""
    reason: str
    fix: str


def error(path: Path, place: str, reason: str, fix: str) -> Problem:
    assert reason
    assert fix
    return Problem(severity="error", path=path, place=place, reason=reason, fix=fix)


def warning(path: Path, place: str, reason: str, fix: str) -> Problem:
    assert reason
    assert fix
    return Problem(severity="warning", path=path, place=place, reason=reason, fix=fix)


def unknown_component(path: Path, place: str, name: str, known: Sequence[str]) -> Problem:
    near = difflib.get_close_matches(name, known, n=1)
    fix = f"did you mean {near[0]}?" if near else "declare the component, or remove the name"
    return error(path, place, f"there is no component {name!r}", fix)
