"""What came first, over all ranks.

Remarks are ordered by time; those without one keep their place in their file. A clock without a date (the log says
05:14:30 and no day) can be compared within a day only, so then all are. An exception that came after the first
time-out is a consequence of it: handlers fail too.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from trainmaster.core.diagnosis.evidence import Evidence, Remark, What
from trainmaster.core.diagnosis.stamp import clock_text

_DAY: Final = 86_400_000_000
FAULTS: Final = (What.HARDWARE, What.EXCEPTION, What.OUT_OF_MEMORY, What.KILLED, What.PORT_TAKEN)
"""What explains the rest, if it came first."""


def in_order(remarks: Iterable[Remark]) -> list[Remark]:
    """By time, where all have one; else those with a time first, each file in its own order."""
    rows = list(remarks)
    by_day = any(each.at_us is not None and each.at_us < _DAY for each in rows)

    def key(each: Remark) -> tuple[bool, int, int]:
        at = each.at_us
        return (at is None, (at % _DAY if by_day else at) if at is not None else 0, each.order)

    return sorted(rows, key=key)


def faults(evidence: Evidence) -> list[Remark]:
    """What could explain the rest, the first one first; hardware before what it makes others say at that moment."""
    return in_order(each for each in evidence.remarks if each.what in FAULTS)


def first_time_out(evidence: Evidence) -> int | None:
    """When the first watchdog spoke."""
    times = [
        call.at_us
        for standing in evidence.standings
        if standing.source == "watchdog" and standing.timed_out
        for call in standing.calls
        if call.at_us is not None
    ]
    return min(times, default=None)


def is_consequence(remark: Remark, time_out_us: int | None) -> bool:
    """Whether it came after the first time-out."""
    return remark.at_us is not None and time_out_us is not None and remark.at_us > time_out_us


def told(remark: Remark, evidence: Evidence) -> str:
    """A remark as the first cause: who, when, what, where."""
    host = remark.host or evidence.host_of(remark.rank)
    who = f"rank {remark.rank}" if remark.rank is not None else ""
    who = f"{who} on {host}" if who and host else who or host
    at = f" at {clock_text(remark.at_us)}" if remark.at_us is not None else ""
    place = f" ({remark.location})" if remark.location else f" ({remark.place})" if remark.place else ""
    return f"{who}{at}: {remark.text}{place}".lstrip() if who or at else f"{remark.text}{place}"


def ranks_of(remarks: Sequence[Remark]) -> tuple[int, ...]:
    return tuple(sorted({each.rank for each in remarks if each.rank is not None}))
