"""Stacks of many ranks, grouped by equal ones: a thousand that wait are one line, and the one that doesn't stands out.

Two forms are read: JSON of `py-spy dump --json`, and what `faulthandler` writes. Compared are the frames of the main
thread, function and file and line; other threads (readers, watchdogs) are counted only. Groups are sorted by size, the
smallest first, because that is what one looks for.
"""

import re
from collections.abc import Iterable
from typing import Any, Final

import msgspec

from trainmaster.core.base.value import Value

SIGNAL_ABOVE_RTMIN: Final = 7
"""The signal at which a rank writes its stacks, counted from SIGRTMIN."""
FRAMES_MAX: Final = 40
_FRAME: Final = re.compile(r'^\s+File "([^"]{1,300})", line (\d+|\?\?\?) in (.{1,200})$')
_THREAD: Final = re.compile(r"^(?:Current thread|Thread) 0x[0-9a-f]+.*:$")


class Stack(Value):
    """The main thread of a rank."""

    rank: int
    host: str
    state: str = ""
    """Letter of /proc."""
    frames: tuple[str, ...] = ()
    """Innermost first: `wait (gloo.py:12)`."""
    threads: int = 0
    """Other threads."""
    trouble: str = ""
    """Why there are no frames."""


class StackGroup(Value):
    """Ranks whose stacks are equal."""

    ranks: tuple[int, ...]
    hosts: tuple[str, ...]
    frames: tuple[str, ...]
    states: str
    trouble: str = ""


class HostStacks(Value):
    """The answer of an agent to the question `stacks`."""

    host: str
    stacks: tuple[Stack, ...]


class JobStacks(Value):
    """Stacks of a job's ranks, the smallest group first."""

    job: str
    attempt: str
    epoch: int
    groups: tuple[StackGroup, ...]
    silent_hosts: tuple[str, ...]


def from_py_spy(data: bytes) -> tuple[tuple[str, ...], int] | None:
    """(frames of the main thread, other threads) from `py-spy dump --json`; None: it is none."""
    try:
        threads: Any = msgspec.json.decode(data)
    except msgspec.DecodeError:
        return None
    if not isinstance(threads, list) or not threads or not all(isinstance(thread, dict) for thread in threads):
        return None
    main = next((thread for thread in threads if thread.get("thread_name") == "MainThread"), threads[-1])
    frames = main.get("frames")
    rows = [frame for frame in frames if isinstance(frame, dict)] if isinstance(frames, list) else []
    texts = [
        _text(row.get("name", "?"), row.get("short_filename") or row.get("filename", "?"), row.get("line", 0))
        for row in rows
    ]
    return tuple(texts[:FRAMES_MAX]), len(threads) - 1


def from_faulthandler(text: str) -> tuple[tuple[str, ...], int] | None:
    """The same from what `faulthandler` wrote; the main thread stands last."""
    threads: list[list[str]] = []
    for line in text.splitlines():
        frame = _FRAME.match(line)
        if _THREAD.match(line):
            threads.append([])
        elif frame and threads and len(threads[-1]) < FRAMES_MAX:
            threads[-1].append(_text(frame.group(3), frame.group(1), frame.group(2)))
    return (tuple(threads[-1]), len(threads) - 1) if threads else None


def _text(name: object, file: object, line: object) -> str:
    path = str(file)
    parts = path.split("/")
    return f"{str(name)[:100]} ({'/'.join(parts[-3:])[-100:]}:{line})"


def grouped(stacks: Iterable[Stack]) -> tuple[StackGroup, ...]:
    """Ranks with equal stacks together, the smallest group first."""
    found: dict[tuple[tuple[str, ...], str], list[Stack]] = {}
    for stack in stacks:
        found.setdefault((stack.frames, stack.trouble), []).append(stack)
    groups = [
        StackGroup(
            ranks=tuple(sorted(each.rank for each in members)),
            hosts=tuple(sorted({each.host for each in members})),
            frames=frames,
            states="".join(sorted({each.state for each in members})),
            trouble=trouble,
        )
        for (frames, trouble), members in found.items()
    ]
    return tuple(sorted(groups, key=lambda group: (len(group.ranks), group.ranks)))
