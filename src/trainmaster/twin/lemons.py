"""The experiment on lemons: how many of the planted ones are found, how many good hosts are taken for one, and what
taking them out does for large jobs.

Each seed is a fleet that lives three times, with the same faults: lemons are kept; those that history finds are taken
out; all are known and taken out before the first day. The last is no policy but the ceiling: what knowing everything
would give. Differences are taken seed by seed.

Published (Kokolis et al., 2025, as quoted): 1.2 per cent of the hosts of RSC-1 were lemons, over 85 per cent of those
that were found were, and the failures of jobs of 512 GPUs and more fell from 14 to 4 per cent. The fleet here is scaled
so that the first figure comes out with lemons kept; the second is what has to be seen.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from statistics import fmean, median, stdev
from typing import Final

from trainmaster.core.base.time import DAY
from trainmaster.core.base.value import Value
from trainmaster.core.health.conduct import OffenderLimits
from trainmaster.core.health.policy import Index
from trainmaster.twin.faults import Stagehand
from trainmaster.twin.lemon_world import START, Counts, Host, LemonFleet, LemonWorld, Policy
from trainmaster.twin.paired import t_quantile

POLICIES: Final[tuple[Policy, ...]] = ("kept", "found", "known")
PUBLISHED_BEFORE: Final = 0.14
PUBLISHED_AFTER: Final = 0.04
BANDS: Final = (10.0, 31.6, 100.0, 316.0, 1000.1)
"""Lemons by how many times as often as others they break."""


class Band(Value):
    """Lemons of about one badness."""

    low: float
    high: float
    planted: int
    found: int


class Row(Value):
    """One seed."""

    seed: int
    planted: int
    found: int
    false_alarms: int
    kept_share: float
    """Large jobs that a host killed, of all that ended."""
    found_share: float
    known_share: float


class Estimate(Value):
    """A mean over the seeds, with the 95 % interval of the mean and the standard deviation of a seed."""

    mean: float
    low: float
    high: float
    deviation: float


class LemonReport(Value):
    """Simulated, all of it."""

    fleet: LemonFleet
    seeds: tuple[int, ...]
    rows: tuple[Row, ...]
    planted: int
    found: int
    false_alarms: int
    """Good hosts that were taken out for good."""
    recall: float
    recall_low: float
    """95 % interval (Wilson)."""
    recall_high: float
    precision: float
    precision_low: float
    precision_high: float
    bands: tuple[Band, ...]
    roots: tuple[tuple[str, int, int], ...]
    """By root cause: planted, found."""
    found_by: tuple[tuple[str, int], ...]
    """What condemned them: history at a fault, or the daily survey."""
    days_to_find: float
    """Median, from the first day of the world."""
    kept_share: Estimate
    found_share: Estimate
    known_share: Estimate
    factor: Estimate
    """Share with lemons kept, by share with those found taken out; geometric mean."""
    ceiling: Estimate
    """The same if all are known."""
    published_factor: float
    touched_share: float
    """Jobs that had a lemon among their hosts, with lemons kept."""
    faults_per_thousand_host_days: float
    """With lemons kept."""
    false_actions: int
    """Hosts taken out for what is no fault of a host. Must be 0."""
    lines: int
    """That were played to the readers."""


def experiment(
    fleet: LemonFleet,
    seeds: Sequence[int],
    index: Index,
    limits: OffenderLimits,
    told: Callable[[int, int], object] = lambda done, total: None,
) -> LemonReport:
    """Lives through all seeds. `told(done, total)` is called after each world."""
    assert seeds
    stagehand = Stagehand(index)
    rows: list[Row] = []
    lemons: list[Host] = []
    false_alarms = 0
    every: dict[Policy, list[Counts]] = {policy: [] for policy in POLICIES}
    for number, seed in enumerate(seeds):
        for place, policy in enumerate(POLICIES):
            world = LemonWorld(fleet, seed, stagehand, policy, limits)
            every[policy].append(world.run())
            told(number * len(POLICIES) + place + 1, len(seeds) * len(POLICIES))
            if policy == "found":
                its = [host for host in world.hosts if host.root is not None]
                wrong = sum(host.removed_at is not None and host.root is None for host in world.hosts)
                lemons += its
                false_alarms += wrong
                found = sum(host.removed_at is not None for host in its)
                planted = len(its)
        shares = [_share(every[policy][-1]) for policy in POLICIES]
        rows.append(
            Row(
                seed=seed, planted=planted, found=found, false_alarms=wrong,
                kept_share=shares[0], found_share=shares[1], known_share=shares[2],
            )
        )  # fmt: skip
    return _report(fleet, seeds, rows, lemons, false_alarms, every, stagehand.lines)


def _share(counts: Counts) -> float:
    return counts.failed.get("large", 0) / max(1, counts.ended.get("large", 0))


def _report(
    fleet: LemonFleet,
    seeds: Sequence[int],
    rows: Sequence[Row],
    lemons: Sequence[Host],
    false_alarms: int,
    every: dict[Policy, list[Counts]],
    lines: int,
) -> LemonReport:
    caught = [host for host in lemons if host.removed_at is not None]
    recall, precision = _wilson(len(caught), len(lemons)), _wilson(len(caught), len(caught) + false_alarms)
    kept = every["kept"]
    days = [(host.removed_at - START) / DAY for host in caught if host.removed_at is not None]
    return LemonReport(
        fleet=fleet,
        seeds=tuple(seeds),
        rows=tuple(rows),
        planted=len(lemons),
        found=len(caught),
        false_alarms=false_alarms,
        recall=recall[0],
        recall_low=recall[1],
        recall_high=recall[2],
        precision=precision[0],
        precision_low=precision[1],
        precision_high=precision[2],
        bands=tuple(
            Band(low=low, high=high, planted=len(its := _between(lemons, low, high)), found=_caught(its))
            for low, high in pairwise(BANDS)
        ),
        roots=tuple(_by_root(lemons)),
        found_by=tuple((by, sum(host.removed_by == by for host in caught)) for by in ("history", "survey")),
        days_to_find=median(days) if days else 0.0,
        kept_share=_estimate([row.kept_share for row in rows]),
        found_share=_estimate([row.found_share for row in rows]),
        known_share=_estimate([row.known_share for row in rows]),
        factor=_ratio([(row.kept_share, row.found_share) for row in rows]),
        ceiling=_ratio([(row.kept_share, row.known_share) for row in rows]),
        published_factor=PUBLISHED_BEFORE / PUBLISHED_AFTER,
        touched_share=sum(each.touched for each in kept) / sum(sum(each.ended.values()) for each in kept),
        faults_per_thousand_host_days=1000 * sum(each.faults for each in kept) / sum(each.host_days for each in kept),
        false_actions=sum(each.false_actions for its in every.values() for each in its),
        lines=lines,
    )


def _between(lemons: Iterable[Host], low: float, high: float) -> list[Host]:
    return [host for host in lemons if low <= host.factor < high]


def _caught(lemons: Iterable[Host]) -> int:
    return sum(host.removed_at is not None for host in lemons)


def _by_root(lemons: Sequence[Host]) -> Iterable[tuple[str, int, int]]:
    names = sorted({host.root.name for host in lemons if host.root is not None})
    for name in names:
        its = [host for host in lemons if host.root is not None and host.root.name == name]
        yield name, len(its), _caught(its)


def _wilson(hits: int, count: int) -> tuple[float, float, float]:
    """A share with its 95 % interval (Wilson 1927). Of nothing: unknown, from 0 to 1."""
    if count == 0:
        return 0.0, 0.0, 1.0
    z, share = 1.959964, hits / count
    middle = (share + z * z / (2 * count)) / (1 + z * z / count)
    reach = z * math.sqrt(share * (1 - share) / count + z * z / (4 * count * count)) / (1 + z * z / count)
    return share, max(0.0, middle - reach), min(1.0, middle + reach)


def _estimate(values: Sequence[float]) -> Estimate:
    mean, deviation = fmean(values), stdev(values) if len(values) > 1 else 0.0
    reach = t_quantile(0.975, len(values) - 1) * deviation / math.sqrt(len(values)) if len(values) > 1 else 0.0
    return Estimate(mean=mean, low=mean - reach, high=mean + reach, deviation=deviation)


def _ratio(pairs: Sequence[tuple[float, float]]) -> Estimate:
    """Geometric mean of the ratios of pairs; a seed without failures tells none."""
    logs = [math.log(before / after) for before, after in pairs if before > 0 and after > 0]
    if not logs:
        return Estimate(mean=1.0, low=1.0, high=1.0, deviation=0.0)
    found = _estimate(logs)
    return Estimate(
        mean=math.exp(found.mean), low=math.exp(found.low), high=math.exp(found.high),
        deviation=stdev(before / after for before, after in pairs if after > 0) if len(logs) > 1 else 0.0,
    )  # fmt: skip
