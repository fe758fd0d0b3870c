"""Who writes slowly: a save ends with its slowest writer, so the slowest one has a name.

A writer is slow if it needed three times as long as the median of all writers for the same number of bytes, and the
whole save waited for it. Below a second nothing is said: a small file is all latency. Two writers have no median that
is not half their own, so of two nobody is slow.
"""

import statistics
from collections.abc import Sequence
from typing import Final

from trainmaster.core.base.value import Value
from trainmaster.core.checkpoint.listing import Problem

_FACTOR: Final = 3
_SHORTEST: Final = 1_000_000


class Pace(Value):
    """How long a writer took, in microseconds, for how much."""

    writer: str
    size_bytes: int
    duration: int

    def rate(self) -> float:
        """Bytes a second."""
        return 1e6 * self.size_bytes / max(self.duration, 1)


def slow_writers(paces: Sequence[Pace]) -> tuple[Problem, ...]:
    """Those that held the others up, slowest first."""
    if len(paces) < 3:
        return ()
    usual = statistics.median(pace.rate() for pace in paces)
    slow = [pace for pace in paces if pace.duration >= _SHORTEST and pace.rate() * _FACTOR <= usual]
    return tuple(_slow(pace, usual) for pace in sorted(slow, key=lambda pace: -pace.duration))


def _slow(pace: Pace, usual: float) -> Problem:
    rate = round(pace.rate() / (1 << 20))
    sentence = (
        f"{pace.writer} wrote its {pace.size_bytes >> 20} MiB at {rate} MiB/s, the others at "
        f"{round(usual / (1 << 20))} MiB/s: the save waited {pace.duration / 1e6:.1f} s for it"
    )
    return Problem(token="slow-writer", sentence=sentence, numbers={"rate_mib": rate, "duration": pace.duration})
