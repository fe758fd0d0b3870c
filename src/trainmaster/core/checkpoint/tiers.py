"""Several tiers: copies in own memory, in a peer's memory, in storage, each with an interval of its own.

A tier is cheaper than the next one and survives less: own memory a rank that dies, a peer's memory the loss of a host,
storage everything. A failure is of the class of the cheapest tier that survives it, and throws the job back to its
newest copy in that tier or a dearer one. Intervals are nested: every n-th save of a tier goes to the next one as well.

The expected time is exact for failures without memory, by one rule that is applied tier by tier. Of a stretch of time
we carry (T, P): how long it takes until it is done or is ended by a failure that this tier doesn't survive, and the
chance that it is done. A bare stretch a has ((1 - e^(-La))/L, e^(-La)) for the sum L of all rates. m stretches in a row
have (T (1 - P^m)/(1 - P), P^m). What survives the failures of one more class tries again after each of those, with a
restart that is itself a stretch of the same kind. The dearest tier survives everything, so its P is 1 and its T the
answer. For one tier this is Daly's formula. A Markov chain over all places would give the same with a linear system.

`best` looks for the least waste: for given counts a search over the interval (one valley), and for each count a walk
that doubles its step while it gains. Young's intervals are only where it starts.

Limits: classes of failures are independent and have constant rates; a lag counts as restart (see `interval`), which is
exact for one tier and right to first order for several.
"""

import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Final

from trainmaster.core.base.value import Value

_GOLDEN: Final = (math.sqrt(5) - 1) / 2
_NARROW: Final = 1e-6
_COUNT_LIMIT: Final = 1 << 20


class Tier(Value):
    """A place for copies. Times in seconds."""

    name: str
    failures_per_s: float
    """Of the failures that this tier survives and no cheaper one does."""
    stall_s: float
    """That a save into it costs the job, beyond the save into the cheaper tiers."""
    restart_s: float
    """From a failure to the next step, when restored from here."""
    lag_s: float = 0.0
    """From the end of the stall until the copy is whole."""


class Schedule(Value):
    """How often each tier is saved into."""

    interval_s: float
    """Work between two saves into the cheapest tier."""
    counts: tuple[int, ...] = ()
    """For each dearer tier: every how many saves of the tier before it."""

    def intervals_s(self) -> tuple[float, ...]:
        """Of every tier, cheapest first."""
        found = [self.interval_s]
        for count in self.counts:
            found.append(found[-1] * count)
        return tuple(found)


def efficiency(schedule: Schedule, tiers: Sequence[Tier]) -> float:
    """The share of the time that is work which lasts, from 0 to 1. Tiers: cheapest first."""
    assert len(schedule.counts) == len(tiers) - 1, (schedule, len(tiers))
    assert schedule.interval_s > 0, schedule
    total = sum(tier.failures_per_s for tier in tiers)
    if total <= 0:
        stalls = sum(tier.stall_s / length for tier, length in zip(tiers, schedule.intervals_s(), strict=True))
        return 1 / (1 + stalls)
    stretch = _bare(schedule.interval_s + tiers[0].stall_s, total)
    stretch = _survive(stretch, tiers, 0, total)
    for place, count in enumerate(schedule.counts, 1):
        stretch = _row(stretch, count)
        save = _bare(tiers[place].stall_s, total)
        for cheaper in range(place):
            save = _survive(save, tiers, cheaper, total)
        stretch = (stretch[0] + stretch[1] * save[0], stretch[1] * save[1])
        stretch = _survive(stretch, tiers, place, total)
    return schedule.intervals_s()[-1] / stretch[0] if stretch[0] < math.inf else 0.0


def _bare(length_s: float, total: float) -> tuple[float, float]:
    exponent = length_s * total
    return -math.expm1(-exponent) / total, math.exp(-exponent)


def _row(stretch: tuple[float, float], count: int) -> tuple[float, float]:
    took, chance = stretch
    if chance >= 1:
        return took * count, 1.0
    whole = chance**count
    return took * (1 - whole) / (1 - chance), whole


def _survive(stretch: tuple[float, float], tiers: Sequence[Tier], place: int, total: float) -> tuple[float, float]:
    """The same stretch, where failures of the class `place` lead to a restart and another try."""
    here = tiers[place].failures_per_s
    if here <= 0:
        return stretch
    beyond = sum(tier.failures_per_s for tier in tiers[place + 1 :])
    took, chance = stretch
    thrown_back = (1 - chance) * here / (here + beyond)
    tried_s, done = _bare(tiers[place].restart_s + tiers[place].lag_s, total)
    ends = 1 - (1 - done) * (total - beyond) / total  # a restart is begun anew until it is done, or worse comes
    if ends <= 0:
        return math.inf, 0.0
    again = thrown_back * done / ends
    if again >= 1:
        return math.inf, 0.0
    return (took + thrown_back * tried_s / ends) / (1 - again), chance / (1 - again)


def best(tiers: Sequence[Tier], least_s: float = 0.0) -> Schedule:
    """The schedule that wastes least, with no interval below `least_s` or below the lag of its tier. A tier that no
    failure needs is not worth a save: leave it out, or give it a rate."""
    assert all(tier.failures_per_s > 0 for tier in tiers), tiers
    assert least_s >= 0, least_s
    starts = [max(math.sqrt(2 * tier.stall_s / tier.failures_per_s), tier.lag_s, least_s, 1e-6) for tier in tiers]
    counts = [max(round(dear / cheap), 1) for cheap, dear in pairwise(starts)]

    def tuned(counts: tuple[int, ...]) -> tuple[float, Schedule]:
        return _tuned(tiers, counts, least_s)

    found = tuned(tuple(counts))
    while True:
        before = found
        for place in range(len(counts)):
            found = _walk(found, place, tuned)
        if found[0] <= before[0]:
            return found[1]


def _walk(
    found: tuple[float, Schedule], place: int, tuned: Callable[[tuple[int, ...]], tuple[float, Schedule]]
) -> tuple[float, Schedule]:
    """Moves one count while that gains, in steps that double, up and then down."""
    for way in (1, -1):
        step = 1
        while True:
            counts = list(found[1].counts)
            counts[place] = counts[place] + way * step
            tried = tuned(tuple(counts)) if 1 <= counts[place] <= _COUNT_LIMIT else None
            if tried is not None and tried[0] > found[0]:
                found, step = tried, 2 * step
            elif step > 1:
                step = 1
            else:
                break
    return found


def _tuned(tiers: Sequence[Tier], counts: tuple[int, ...], least_s: float) -> tuple[float, Schedule]:
    """The best interval for given counts, by golden section over its logarithm."""
    low, nested = max(least_s, tiers[0].lag_s, 1e-6), 1
    for tier, count in zip(tiers[1:], counts, strict=True):
        nested *= count
        low = max(low, tier.lag_s / nested)
    high = max(2 / sum(tier.failures_per_s for tier in tiers), 2 * low)
    left, right = math.log(low), math.log(high)

    def at(place: float) -> float:
        return efficiency(Schedule(interval_s=math.exp(place), counts=counts), tiers)

    one, two = right - _GOLDEN * (right - left), left + _GOLDEN * (right - left)
    first, second = at(one), at(two)
    while right - left > _NARROW:
        if first >= second:
            right, two, second = two, one, first
            one = right - _GOLDEN * (right - left)
            first = at(one)
        else:
            left, one, first = one, two, second
            two = left + _GOLDEN * (right - left)
            second = at(two)
    ends = [(at(place), place) for place in (math.log(low), (left + right) / 2)]
    value, place = max(ends)
    return value, Schedule(interval_s=math.exp(place), counts=counts)
