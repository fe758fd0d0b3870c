"""What a probe declares of itself, and what it raises."""

from typing import Final, NamedTuple

DEFAULT: Final = "unknown"


class Probe(NamedTuple):
    """One probe."""

    name: str
    what: str
    """What it looks at, for people."""
    unreadable: str
    """What it means if that is there and can't be read, as a sentence."""
    module: str
    deadline_s: float = 5.0
    """For each item. What takes longer hangs."""
    period_s: float = 60.0
    kind: str = "host"
    """Of the unit that an item is: `gpu`, `fs`, `disk`; `host`: it has no items."""
    verdict: str = "unknown"
    """Of something that can't be read: `unknown`, or `skipped` where nothing depends on it."""


class Skipped(Exception):
    """There is nothing to look at, and why."""
