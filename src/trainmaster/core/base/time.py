"""Time is a whole number of microseconds.

An *instant* counts from 1970-01-01 UTC, a *duration* is a difference of two instants. Integers compare and add
exactly, and replay the same everywhere. Microseconds rather than nanoseconds because an instant then stays below 2**53
and survives every JSON reader, browsers included. The core never asks what time it is: the instant of an event is a
field of the event.
"""

from typing import Final, NewType

Instant = NewType("Instant", int)
Duration = NewType("Duration", int)

MICROSECOND: Final = Duration(1)
MILLISECOND: Final = Duration(1_000)
SECOND: Final = Duration(1_000_000)
MINUTE: Final = Duration(60_000_000)
HOUR: Final = Duration(3_600_000_000)
DAY: Final = Duration(24 * HOUR)


def seconds(value: float) -> Duration:
    """A duration from seconds, rounded to the nearest microsecond."""
    return Duration(round(value * 1_000_000))


def in_seconds(value: int) -> float:
    """Seconds of a duration (or of the difference of two instants)."""
    return value / 1_000_000


def after(start: Instant, duration: int) -> Instant:
    """The instant that lies `duration` after `start`."""
    return start + duration  # type: ignore[return-value]  # a call of the type would cost as much as this one
