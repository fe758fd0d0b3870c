"""The choice of an interval: from what saves, restarts and failures cost, to a number of steps and a sentence.

The interval that wastes least (`interval` for one tier, `tiers` for several) is rounded to whole steps, whichever side
wastes less, and kept inside of bounds:

    at least a step, and the lag of a copy: one save is whole before the next begins
    at most `MOST_S`: what the rate of failures does not know (a power cut, a mistake) should not cost more than that

Costs are medians of the last few measurements, so that one slow save does not move the choice. A choice stands until
another one is better by `PAYS` of the time: around the top the curve is flat, and a number that changes with each save
explains nothing. Before anything was measured the first save comes after `TRIAL_STEPS`, to measure what one costs.

Rejected: a fixed interval in minutes (right for one fleet, one model, one storage); Young's rule with a rate from a
table (off by the root of what the table is off, and stalls change with every model); choosing anew at each save.
"""

import math
import statistics
from collections.abc import Sequence
from itertools import pairwise
from typing import Final, Literal

from trainmaster.core.base.value import Value
from trainmaster.core.checkpoint import interval, tiers
from trainmaster.core.checkpoint.rate import Rate
from trainmaster.core.checkpoint.tiers import Schedule, Tier

MOST_S: Final = 14_400.0
PAYS: Final = 0.0002
RECENT: Final = 9
"""Measurements that count; of an odd number the median is one of them."""
TRIAL_STEPS: Final = 10

Bound = Literal["waste", "step", "lag", "most"]
"""What decided: the least waste, or a bound that does not let it be."""


class TierChoice(Value):
    """How often one tier is saved into."""

    name: str
    every_steps: int
    interval_s: float
    """Work between two saves, as whole steps."""
    wanted_s: float
    """That would waste least, without bounds and steps."""
    stall_s: float
    restart_s: float
    lag_s: float
    mttf_s: float
    """Of the failures for which this tier is needed."""
    bound: Bound


class Choice(Value):
    """What was chosen, and what decided."""

    tiers: tuple[TierChoice, ...]
    """Cheapest first; the last one is storage."""
    step_s: float
    efficiency: float
    """The share of the time that is work which lasts, as expected."""
    at_half: float
    at_twice: float
    """The same at half and at twice the interval, for how much the choice matters."""
    sentence: str

    @property
    def every_steps(self) -> int:
        """Of storage."""
        return self.tiers[-1].every_steps


class ChoiceProblem(ValueError):
    """Costs or rates that have no answer: what is wrong, why, what to change."""

    def __init__(self, what: str, why: str, fix: str) -> None:
        self.what, self.why, self.fix = what, why, fix
        super().__init__(f"{what}: {why}; {fix}")


def usual(measured: Sequence[float]) -> float | None:
    """The median of the newest measurements; None: nothing was measured."""
    return statistics.median(measured[-RECENT:]) if measured else None


def check(wanted: Sequence[Tier], step_s: float) -> None:
    """Raises `ChoiceProblem` where no interval makes sense."""
    for tier in wanted:
        numbers = (tier.failures_per_s, tier.stall_s, tier.restart_s, tier.lag_s)
        if not all(math.isfinite(number) and number >= 0 for number in numbers):
            raise ChoiceProblem(f"a cost of {tier.name} is below zero", f"{numbers}", "give durations and a rate")
        if tier.failures_per_s <= 0:
            why = "without failures no save is worth its stall"
            raise ChoiceProblem(f"nothing fails that {tier.name} is for", why, "give it a rate, or leave it out")
    if not wanted or not 0 < step_s < math.inf:
        raise ChoiceProblem("a step takes no time", "the interval is a number of steps", "give the time of a step")
    total = sum(tier.failures_per_s for tier in wanted)
    longest = max(tier.restart_s + tier.lag_s for tier in wanted) + sum(tier.stall_s for tier in wanted) + step_s
    if longest * total > 20:
        why = f"a restart with a step and a save takes {longest:,.0f} s, and a failure comes every {1 / total:,.0f} s"
        raise ChoiceProblem("the job would not get on", why, "make restarts shorter, or use fewer hosts")


def choose(wanted: Sequence[Tier], step_s: float, rate: Rate, hosts: int, before: Choice | None = None) -> Choice:
    """The choice for these tiers, cheapest first; `before` itself where nothing better is to be had. `rate` and `hosts`
    are told in the sentence. Raises `ChoiceProblem` where nothing can be chosen."""
    check(wanted, step_s)
    ideal = _ideal(wanted)
    counts, most = _bounded_counts(wanted, ideal)
    steps, bound = _steps(wanted, ideal, counts, most, step_s)
    schedule = Schedule(interval_s=steps * step_s, counts=counts)
    found = tiers.efficiency(schedule, wanted)
    if before is not None and _stands(before, wanted, step_s, found, most):
        return before
    rows = _rows(wanted, ideal, schedule, steps, bound)
    half, twice = (tiers.efficiency(schedule.but(interval_s=schedule.interval_s * by), wanted) for by in (0.5, 2.0))
    return Choice(
        tiers=rows,
        step_s=step_s,
        efficiency=found,
        at_half=half,
        at_twice=twice,
        sentence=_sentence(rows, found, half, twice, rate, hosts),
    )


def _ideal(wanted: Sequence[Tier]) -> Schedule:
    """Without bounds and steps."""
    if len(wanted) == 1:
        return Schedule(interval_s=interval.exact_s(wanted[0].stall_s, 1 / wanted[0].failures_per_s))
    return tiers.best([tier.but(lag_s=0.0, restart_s=tier.restart_s + tier.lag_s) for tier in wanted])


def _bounded_counts(wanted: Sequence[Tier], ideal: Schedule) -> tuple[tuple[int, ...], float]:
    """The counts of the dearer tiers, so that none is left for longer than `MOST_S`, and the most for the cheapest."""
    counts, nested = list(ideal.counts), math.prod(ideal.counts)
    base_s = max(min(ideal.interval_s, MOST_S), max(tier.lag_s for tier in wanted) / max(nested, 1))
    for place in range(len(counts)):
        left = max(int(MOST_S / base_s), 1)
        counts[place] = max(min(counts[place], left), 1)
        base_s *= counts[place]
    return tuple(counts), MOST_S / math.prod(counts)


def _least(wanted: Sequence[Tier], counts: Sequence[int]) -> float:
    """The shortest interval of the cheapest tier at which every copy is whole before the next one begins."""
    least, nested = wanted[0].lag_s, 1
    for tier, count in zip(wanted[1:], counts, strict=True):
        nested *= count
        least = max(least, tier.lag_s / nested)
    return least


def _steps(
    wanted: Sequence[Tier], ideal: Schedule, counts: tuple[int, ...], most_s: float, step_s: float
) -> tuple[int, Bound]:
    """Of the cheapest tier. Both neighbours are tried; a bound that binds is named."""
    least = max(math.ceil(_least(wanted, counts) / step_s - 1e-9), 1)
    most = max(int(most_s / step_s + 1e-9), least)
    around = {math.floor(ideal.interval_s / step_s), math.ceil(ideal.interval_s / step_s)}
    free = max(around)
    tried = sorted({min(max(steps, least), most) for steps in around})

    def worth(steps: int) -> float:
        return tiers.efficiency(Schedule(interval_s=steps * step_s, counts=counts), wanted)

    steps = max(tried, key=worth)
    if free < least:
        return steps, "lag" if least > 1 else "step"
    return steps, "most" if min(around) > most else "waste"


def _stands(before: Choice, wanted: Sequence[Tier], step_s: float, found: float, most_s: float) -> bool:
    """Whether the choice before is as good, by what is known now."""
    if [row.name for row in before.tiers] != [tier.name for tier in wanted]:
        return False
    every = [row.every_steps for row in before.tiers]
    counts = tuple(dear // cheap for cheap, dear in pairwise(every))
    if every[0] * step_s < _least(wanted, counts) - 1e-9 or every[-1] * step_s > max(MOST_S, step_s) * 1.05:
        return False
    standing = Schedule(interval_s=every[0] * step_s, counts=counts)
    return tiers.efficiency(standing, wanted) >= found - PAYS


def _rows(
    wanted: Sequence[Tier], ideal: Schedule, schedule: Schedule, steps: int, bound: Bound
) -> tuple[TierChoice, ...]:
    rows: list[TierChoice] = []
    for place, (tier, length_s, wanted_s) in enumerate(
        zip(wanted, schedule.intervals_s(), ideal.intervals_s(), strict=True)
    ):
        row = TierChoice(
            name=tier.name,
            every_steps=steps * math.prod(schedule.counts[:place]),
            interval_s=length_s,
            wanted_s=wanted_s,
            stall_s=tier.stall_s,
            restart_s=tier.restart_s,
            lag_s=tier.lag_s,
            mttf_s=1 / tier.failures_per_s,
            bound=bound,
        )
        rows.append(row)
    return tuple(rows)


_BOUNDS: Final[dict[Bound, str]] = {
    "waste": "",
    "step": "less than a step can't be",
    "lag": "more often can't be, since a copy must be whole before the next one begins",
    "most": "rarer would waste less, but no more than that is put at risk",
}


def _sentence(rows: Sequence[TierChoice], found: float, half: float, twice: float, rate: Rate, hosts: int) -> str:
    parts = []
    for row in rows:
        every = "every step" if row.every_steps == 1 else f"every {row.every_steps:,} steps"
        where = f"{row.name}: " if len(rows) > 1 else ""
        parts.append(
            f"{where}{every} ({_time(row.interval_s)}), since a save holds the job up for {_time(row.stall_s)}"
            f" and a failure comes every {_time(row.mttf_s)}"
        )
    text = "; ".join(parts) + f" ({_source(rate, hosts)})"
    text += f"; {_share(found)} of the time is then work that lasts,"
    text += f" {_share(half)} at half and {_share(twice)} at twice the interval"
    limits = _BOUNDS[rows[0].bound]
    return f"{text}; {limits}" if limits else text


def _source(rate: Rate, hosts: int) -> str:
    on = f"on {hosts:,} host" + ("s" if hosts != 1 else "")
    per_thousand = rate.per_host_day * 1000
    number = f"{per_thousand:,.0f}" if per_thousand >= 100 else f"{per_thousand:.3g}"
    each = f"{number} failures in 1,000 host-days"
    seen = f"{rate.failures:,} failure" + ("s" if rate.failures != 1 else "")
    seen += f" in {rate.host_days:,.0f} host-days" if rate.host_days >= 10 else f" in {rate.host_days:.3g} host-days"
    if rate.source == "published":
        return f"{on}, by the published rate of {each}: nothing was seen yet"
    if rate.source == "given":
        return f"{on}, at {each}, as given"
    if rate.source == "mixed":
        return f"{on}, at {each}, from {seen} and the published rates"
    return f"{on}, at {each}, from {seen}"


def _share(value: float) -> str:
    """Rounded down, so that nothing less than all is told as all."""
    return f"{math.floor(value * 10_000) / 100:.2f} %"


def _time(value: float) -> str:
    """`0.4 s`, `12 s`, `13 min`, `3.1 h`, `2.4 d`."""
    for size, unit in ((86_400.0, "d"), (3_600.0, "h"), (60.0, "min")):
        if value >= 2 * size:
            return f"{value / size:.3g} {unit}"
    return f"{value:.3g} s"
