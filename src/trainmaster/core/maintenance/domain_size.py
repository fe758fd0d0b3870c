"""The domain size that costs least.

Small domains make many stops, and each stop interrupts the gangs in it; large domains hold much capacity out. The sum
over a cycle is U-shaped:

    interruptions   sum over gangs of  J x L x hits(J, n)       host-hours a cycle
    held out        size x T                                    host-hours a cycle

for gangs of J hosts that lose L at each hit, a cycle T, and n = ceil(N / size) stops over N hosts. Hits are exact for
gangs that are runs of neighbours at an offset of chance (ends of the fleet joined) and domains that are even runs: each
of the J - 1 joints of a gang is a boundary with chance n/N, so it meets 1 + (J - 1) n/N domains; less the chance that
both its ends fall into one domain from two sides, which bounds it by n. For d = N/n this is 1 + (J - 1)/d, and its
minimum lies at the root of L x sum J (J - 1) / T.

What is held out. A train takes out one domain at a time, and its buffer is held back for the whole cycle: guarantees
are given on what is left of the fleet, and nothing that is guaranteed may use the rest between two stops. So it costs
size x T however long a stop lasts. That is what the product counts (`rest=False`). With `rest=True` the buffer is worth
as much as all other hosts between stops, and only the stops themselves count: n x N/n x S = N x S for stops of S,
which no size changes. Nothing rises then, and the largest domain that the buffer allows (`size_limit`) is best.

Stops follow one another, so n x S <= T; smaller domains do not fit into the cycle.

Limits: L is the same for every gang and hit; stops do not last longer for larger domains; failures make no difference
(they hit whatever the size is). `twin/domain_cost.py` lives through the same cycles under the engine.
"""

import math
from collections.abc import Iterator
from typing import Final, Literal

from trainmaster.core.base.time import HOUR, Duration
from trainmaster.core.base.value import Value

SIZE_COUNT: Final = 7
"""Sizes that a short answer shows: the best, and three on each side."""


class GangClass(Value):
    """Gangs of one size."""

    hosts: int
    """Of each."""
    count: int = 1


class SizeModel(Value):
    """What the cost depends on."""

    hosts: int
    gangs: tuple[GangClass, ...]
    cycle: Duration
    """In which every host has its stop."""
    lost: Duration
    """By a gang at each hit: to save or to redo what was not saved, and to re-form."""
    stop: Duration
    """How long a stop lasts, on average."""
    size_limit: int = 0
    """The most hosts that the buffer lets out at once; 0: all of them."""
    rest: bool = False
    """Between two stops the buffer is worth as much as all other hosts."""


class SizeCost(Value):
    """What one size costs in a cycle, in host-hours."""

    size: int
    """The most hosts of a domain."""
    stops: int
    hits: float
    """Interruptions of gangs in a cycle."""
    interruptions_host_h: float
    held_out_host_h: float
    total_host_h: float
    share: float
    """Of what the whole fleet could do in a cycle."""
    fits: bool
    """The stops fit into the cycle, and the domain into the buffer."""


class BestSize(Value):
    """The size that costs least of those that fit, and what decided."""

    cost: SizeCost
    decided_by: Literal["cost", "cycle", "limit"]
    """`cycle`: smaller ones would cost less but do not fit; `limit`: larger ones would."""
    square_root: float
    """Of the closed form, for comparison; 0 where nothing rises with the size."""
    size_least: int
    """The smallest that fits into the cycle."""


class SizeProblem(ValueError):
    """A model that has no answer: what is wrong, why, what to change."""

    def __init__(self, what: str, why: str, fix: str) -> None:
        self.what, self.why, self.fix = what, why, fix
        super().__init__(f"{what}: {why}; {fix}")


def check(model: SizeModel) -> None:
    """Raises `SizeProblem` for a model without an answer."""
    used = sum(gang.hosts * gang.count for gang in model.gangs)
    if model.hosts < 1:
        raise SizeProblem("no hosts", f"the fleet has {model.hosts}", "give it one at least")
    if not model.gangs or min(min(gang.hosts, gang.count) for gang in model.gangs) < 1:
        raise SizeProblem("no jobs", "without jobs no stop interrupts anything", "name jobs of one host or more")
    if used > model.hosts:
        why = f"they take {used:,} hosts; the fleet has {model.hosts:,}"
        raise SizeProblem("the jobs do not fit", why, "take fewer or smaller jobs")
    if min(model.cycle, model.lost, model.stop) <= 0:
        raise SizeProblem("a duration is zero", "cycle, loss and stop all take time", "give each more than nothing")
    if model.size_limit < 0:
        raise SizeProblem("the buffer is below zero", f"{model.size_limit} hosts", "use 0 for no limit")
    least = size_least(model)
    if least > (model.size_limit or model.hosts):
        why = "even one stop for the whole fleet takes longer than the cycle"
        if least <= model.hosts:
            why = f"domains below {least:,} hosts need more time than the cycle has"
            why += f"; the buffer lets {model.size_limit:,} out"
        raise SizeProblem("no size fits", why, "make stops shorter, the cycle longer, or the buffer larger")


def size_least(model: SizeModel) -> int:
    """The smallest size whose stops fit into the cycle; above all hosts if none does."""
    stops = model.cycle // model.stop
    return -(-model.hosts // stops) if stops else model.hosts + 1


def stop_count(hosts: int, size: int) -> int:
    """Stops of a cycle: hosts over size, rounded up."""
    assert size >= 1, size
    return -(-hosts // size)


def mean_hits(hosts: int, gang_hosts: int, stops: int) -> float:
    """Domains that a gang meets on average: a run of neighbours at a random offset, domains that are even runs."""
    assert 1 <= gang_hosts <= hosts, (gang_hosts, hosts)
    assert 1 <= stops <= hosts, (stops, hosts)
    small, larger = divmod(hosts, stops)
    gap = hosts - gang_hosts
    both_ends = larger * max(0, small - gap) + (stops - larger) * max(0, small - gap - 1)
    return 1 + ((gang_hosts - 1) * stops - both_ends) / hosts


def cost(model: SizeModel, size: int) -> SizeCost:
    """What a size costs, whether it fits or not."""
    assert 1 <= size <= model.hosts, size
    stops = stop_count(model.hosts, size)
    found = [(gang, mean_hits(model.hosts, gang.hosts, stops)) for gang in model.gangs]
    interruptions = sum(gang.count * gang.hosts * hits for gang, hits in found) * model.lost / HOUR
    held_out = (model.hosts * model.stop if model.rest else size * model.cycle) / HOUR
    return SizeCost(
        size=size,
        stops=stops,
        hits=sum(gang.count * hits for gang, hits in found),
        interruptions_host_h=interruptions,
        held_out_host_h=held_out,
        total_host_h=interruptions + held_out,
        share=(interruptions + held_out) / (model.hosts * model.cycle / HOUR),
        fits=stops * model.stop <= model.cycle and size <= (model.size_limit or model.hosts),
    )


def best(model: SizeModel) -> BestSize:
    """The best size of those that fit. Raises `SizeProblem` if there is none."""
    check(model)
    all_costs = [cost(model, size) for size in _sizes_worth_trying(model.hosts)]
    free = min(all_costs, key=_rank)
    chosen = min((each for each in all_costs if each.fits), key=_rank)  # the smallest that fits is among them
    decided: Literal["cost", "cycle", "limit"] = "cost"
    if free.size != chosen.size:
        decided = "cycle" if free.size < chosen.size else "limit"
    root = 0.0 if model.rest else contiguous_root(model)
    return BestSize(cost=chosen, decided_by=decided, square_root=root, size_least=size_least(model))


def contiguous_root(model: SizeModel) -> float:
    """The minimum of size x T + L x sum J (J - 1) / size: gangs that are runs of neighbours, no rounding."""
    pairs = sum(gang.count * gang.hosts * (gang.hosts - 1) for gang in model.gangs)
    return math.sqrt(pairs * model.lost / model.cycle)


def every_stop_root(hosts: int, gang_hosts: int, lost: Duration, cycle: Duration) -> float:
    """The same where every stop interrupts one gang of this size: a fleet that is full of them."""
    assert hosts >= gang_hosts >= 1, (hosts, gang_hosts)
    return math.sqrt(hosts * gang_hosts * lost / cycle)


def sizes_around(model: SizeModel, middle: int, reach: float = 2.5, count: int = SIZE_COUNT) -> tuple[int, ...]:
    """Sizes from middle / reach to middle x reach in even ratios, each once, the middle among them."""
    assert reach > 1, reach
    assert count >= 3, count
    half = count // 2
    sizes = {round(middle * reach ** (step / half)) for step in range(-half, half + 1)}
    return tuple(sorted({min(max(size, 1), model.hosts) for size in sizes}))


def _sizes_worth_trying(hosts: int) -> Iterator[int]:
    """The smallest size of each number of stops: a larger one with as many stops holds more out for nothing. About two
    roots of the hosts."""
    size = 1
    while True:
        yield size
        stops = stop_count(hosts, size)
        if stops == 1:
            return
        size = -(-hosts // (stops - 1))


def _rank(each: SizeCost) -> tuple[float, int]:
    return each.total_host_h, each.size
