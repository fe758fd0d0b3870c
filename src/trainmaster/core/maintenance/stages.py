"""Who gets a new version when: a rollout's stages and the hosts drawn for them.

A strategy expands to a growing tuple of host counts; stage k has all hosts up to the k-th count, so stages contain each
other. The last stage is the whole pool. Percentages are of the pool and round up (1 % of 40 hosts is 1 host); a stage
that would not grow is left out.

Hosts are drawn at random within the pool, by a stream of the rollout's own: a stage that is one rack, or the hosts that
happened to be idle, says nothing about the rest. With strata (pods) each stage has its share of every one, give or take
two hosts: the order within a stratum is random, and strata are merged at even distances from a random start.

Pool and strata are fixed when the rollout begins; a host that joins the fleet later gets its version at its
installation. The order is derived (`Plan`): it is rebuilt from the spec and the seed, never stored.
"""

from collections.abc import Iterator
from fractions import Fraction
from math import ceil
from typing import Final, Literal

from trainmaster.core.base.ids import ComponentName, HostId, RolloutId
from trainmaster.core.base.seed import Stream
from trainmaster.core.base.time import HOUR, Duration
from trainmaster.core.base.value import Value
from trainmaster.core.maintenance.evidence import Criteria, criteria_problems, exact

DAY: Final = Duration(24 * HOUR)


class Percentages(Value, tag="percentages"):
    """Stages as percentages of the pool, growing."""

    percents: tuple[float, ...] = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 100.0)


class Fixed(Value, tag="fixed"):
    """Each stage has this many hosts more than the last one."""

    hosts: int


class Exponential(Value, tag="exponential"):
    """Each stage has `factor` times the hosts of the last one."""

    first: int = 1
    factor: float = 2.0


Strategy = Percentages | Fixed | Exponential

OnFailure = Literal["roll-back", "hold"]
"""What becomes of hosts that carry a rejected version: they get the former one back, or stay out for a person."""


class RolloutSpec(Value):
    """A version that is to come to all hosts of a pool."""

    component: ComponentName
    version: str
    pool: tuple[HostId, ...]
    strata: tuple[str, ...] = ()
    """The pod of each host of the pool, in the same order; empty: the pool is one stratum."""
    canary: int = 0
    """Hosts of a stage before those of the strategy; 0: the strategy's first stage is the canary."""
    stages: Strategy = Percentages()
    criteria: Criteria = Criteria()
    soak: Duration = Duration(12 * HOUR)
    """Loaded time that a stage's hosts must have had on average in that stage: its minimum exposure is this times
    their number."""
    unproven_percent: float = 10.0
    """Share of the pool that may carry the version at most before it is proven. 100: no proof is asked for (a pool too
    small to ever give one); failures still reject."""
    stage_limit: Duration = Duration(14 * DAY)
    """A stage that has not passed by then is held for a person."""
    on_failure: OnFailure = "roll-back"


def spec_problems(spec: RolloutSpec) -> list[str]:
    """Sentences about a spec that cannot be carried out; empty if it can."""
    return [*criteria_problems(spec.criteria), *_pool_problems(spec), *_stage_problems(spec.stages), *_limits(spec)]


def _pool_problems(spec: RolloutSpec) -> Iterator[str]:
    if not spec.pool:
        yield "the pool is empty; name the hosts that are to get the version"
    if len(set(spec.pool)) != len(spec.pool):
        yield "the pool names a host twice"
    if spec.strata and len(spec.strata) != len(spec.pool):
        yield f"{len(spec.strata)} strata are given for {len(spec.pool)} hosts; give one a host, or none"


def _stage_problems(stages: Strategy) -> Iterator[str]:
    if isinstance(stages, Percentages):
        growing = all(a < b for a, b in zip(stages.percents, stages.percents[1:], strict=False))
        if not stages.percents or not growing or stages.percents[0] <= 0 or stages.percents[-1] > 100:
            yield f"percents are {list(stages.percents)}; they grow, from above 0 to at most 100"
    elif isinstance(stages, Fixed):
        if stages.hosts < 1:
            yield f"a fixed stage has {stages.hosts} hosts; it has at least 1"
    elif stages.first < 1 or not 1 < stages.factor <= 1000:
        yield f"stages start at {stages.first} hosts and grow by {stages.factor:g}; at least 1, by more than 1"


def _limits(spec: RolloutSpec) -> Iterator[str]:
    if spec.canary < 0:
        yield f"the canary has {spec.canary} hosts; it has at least 1, or 0 for the strategy's first stage"
    if not 0 < spec.unproven_percent <= 100:
        yield f"unproven_percent is {spec.unproven_percent:g}; it is above 0 and at most 100"
    if spec.soak < 0 or spec.stage_limit <= spec.soak:
        hours = f"{spec.soak / HOUR:g} h and {spec.stage_limit / HOUR:g} h"
        yield f"soak and stage_limit are {hours}; the limit must leave time for the soak"


def stage_counts(spec: RolloutSpec) -> tuple[int, ...]:
    """Hosts that carry the version when each stage is complete: strictly growing, the last is the pool."""
    pool = len(spec.pool)
    assert pool > 0, spec.component
    counts: list[int] = []
    for count in (spec.canary, *_wanted(spec.stages, pool), pool):
        if min(count, pool) > (counts[-1] if counts else 0):
            counts.append(min(count, pool))
    return tuple(counts)


def _wanted(stages: Strategy, pool: int) -> Iterator[int]:
    if isinstance(stages, Percentages):
        for percent in stages.percents:
            yield ceil(exact(percent) * pool / 100)
    elif isinstance(stages, Fixed):
        yield from range(stages.hosts, pool, stages.hosts)
    else:
        count = Fraction(stages.first)
        while count < pool:
            yield ceil(count)
            count *= exact(stages.factor)


class Plan:
    """Which host is in which stage. Derived from the spec and the seed; not part of the state."""

    def __init__(self, rollout: RolloutId, spec: RolloutSpec, seed: int) -> None:
        self.counts = stage_counts(spec)
        self.order = _drawn(spec, Stream.of(seed, "rollout", rollout))
        self.rank = {host: place for place, host in enumerate(self.order)}
        assert len(self.rank) == len(spec.pool), "the pool names a host twice"
        self._stratum = dict(zip(spec.pool, spec.strata, strict=True)) if spec.strata else {}
        self._peers: dict[str, tuple[HostId, ...]] = {"": self.order}

    def stage_hosts(self, stage: int) -> tuple[HostId, ...]:
        """Hosts that may carry the version in this stage (from 0), those of earlier stages first."""
        return self.order[: self.counts[stage]]

    def new_hosts(self, stage: int) -> tuple[HostId, ...]:
        """Hosts that this stage adds."""
        return self.order[self.counts[stage - 1] if stage else 0 : self.counts[stage]]

    def is_on_trial(self, host: HostId, stage: int) -> bool:
        """Whether the host may get the version in this stage; a host outside the pool never."""
        rank = self.rank.get(host)
        return rank is not None and rank < self.counts[stage]

    def peers(self, host: HostId) -> tuple[HostId, ...]:
        """The hosts of its stratum, itself among them."""
        name = self._stratum.get(host, "")
        if name not in self._peers:
            self._peers[name] = tuple(other for other, stratum in self._stratum.items() if stratum == name)
        return self._peers[name]

    def stage_of(self, host: HostId) -> int:
        """The stage that brings the version to this host of the pool."""
        rank = self.rank[host]
        return next(stage for stage, count in enumerate(self.counts) if rank < count)


def _drawn(spec: RolloutSpec, stream: Stream) -> tuple[HostId, ...]:
    strata: dict[str, list[HostId]] = {}
    for host, stratum in zip(spec.pool, spec.strata or ("",) * len(spec.pool), strict=True):
        strata.setdefault(stratum, []).append(host)
    placed: list[tuple[float, int, HostId]] = []
    for number, stratum in enumerate(sorted(strata)):
        hosts = stream.shuffled(strata[stratum])
        start = stream.uniform()
        placed += [((place + start) / len(hosts), number, host) for place, host in enumerate(hosts)]
    return tuple(host for _, _, host in sorted(placed))
