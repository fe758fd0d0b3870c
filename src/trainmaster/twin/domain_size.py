"""The cost of a domain size, simulated: one train, its stops, and the gangs that they interrupt.

The closed form in `core/maintenance/domain_size.py` is an average; here one cycle after another is lived through. Gangs
lie as runs of neighbours in an order of chance with gaps of chance, turned by a chance offset. Stops are due at even
times and last as long as chance has it: half of the mean for certain, the rest exponential. A stop that finds another
one under way waits for its end. A gang that is hit loses what it did since its last save (uniform) and the time to
re-form (exponential), half of the mean each; one that is hit while it re-forms begins again, so close stops cost less
than the sum. Its hosts are replaced by those of domains that had their stop, so each domain hits it once.

Paired seeds: placement, the length of the i-th stop and the k-th restart of a gang have streams of their own, so every
size meets the same luck, and differences of sizes are much more certain than the costs themselves.

Limits: no failures, no gangs that come and go within a cycle, the same loss for all gangs on average.
"""

from collections.abc import Sequence
from typing import Final

from trainmaster.core.base.seed import Stream
from trainmaster.core.base.time import HOUR, Duration, Instant, after
from trainmaster.core.base.value import Value
from trainmaster.core.maintenance.domain_size import SizeModel, stop_count
from trainmaster.twin.kernel import Kernel, Timer

_BACK, _END, _DUE = 0, 1, 2
"""Priorities at equal times: what ends goes first."""


class SimulatedCost(Value):
    """What a size cost, in host-hours a cycle, on average over the cycles of one seed."""

    size: int
    seed: int
    hits: float
    interruptions_host_h: float
    held_out_host_h: float
    total_host_h: float
    late: Duration
    """By which the last stop of the worst cycle ended after the cycle."""


class SimulatedSize(Value):
    """What a size cost over all seeds, in host-hours a cycle."""

    size: int
    seeds: int
    mean_host_h: float
    low_host_h: float
    """Of the cheapest seed."""
    high_host_h: float
    """Of the dearest seed."""
    interruptions_host_h: float
    held_out_host_h: float
    late: Duration


def simulate_cost(size: int, seed: int, model: SizeModel, cycles: int = 1) -> SimulatedCost:
    """Lives through the cycles. The model must have passed `domain_size.check`; a size that does not fit overruns."""
    assert 1 <= size <= model.hosts, size
    assert cycles >= 1, cycles
    lived = [_Cycle(model, size, seed, number) for number in range(cycles)]
    for each in lived:
        each.run()
    interruptions = sum(each.lost for each in lived) / cycles / HOUR
    held_out = sum(each.held_out() for each in lived) / cycles / HOUR
    return SimulatedCost(
        size=size,
        seed=seed,
        hits=sum(each.hits for each in lived) / cycles,
        interruptions_host_h=interruptions,
        held_out_host_h=held_out,
        total_host_h=interruptions + held_out,
        late=Duration(max(each.late() for each in lived)),
    )


def simulate(sizes: Sequence[int], seeds: Sequence[int], model: SizeModel, cycles: int = 1) -> list[SimulatedSize]:
    """Every size with the same seeds."""
    assert seeds
    found = []
    for size in sizes:
        costs = [simulate_cost(size, seed, model, cycles) for seed in seeds]
        totals = [each.total_host_h for each in costs]
        found.append(
            SimulatedSize(
                size=size,
                seeds=len(seeds),
                mean_host_h=sum(totals) / len(seeds),
                low_host_h=min(totals),
                high_host_h=max(totals),
                interruptions_host_h=sum(each.interruptions_host_h for each in costs) / len(seeds),
                held_out_host_h=sum(each.held_out_host_h for each in costs) / len(seeds),
                late=Duration(max(each.late for each in costs)),
            )
        )
    return found


class _Gang:
    """A gang in a cycle: where it lies, and since when it is down."""

    __slots__ = ("back", "chance", "down_since", "first", "hosts")

    def __init__(self, hosts: int, first: int, chance: Stream) -> None:
        self.hosts, self.first, self.chance = hosts, first, chance
        self.down_since = Instant(0)
        self.back: Timer | None = None
        """None: the gang runs."""


class _Cycle:
    """One cycle of the train."""

    def __init__(self, model: SizeModel, size: int, seed: int, number: int) -> None:
        self.model, self.size, self.seed, self.number = model, size, seed, number
        self.stops = stop_count(model.hosts, size)
        self.bounds: Final = [model.hosts * stop // self.stops for stop in range(self.stops + 1)]
        self.gangs_of: list[list[_Gang]] = [[] for _ in range(self.stops)]
        for gang in self._placed():
            for stop in self._met(gang):
                self.gangs_of[stop].append(gang)
        self.kernel = Kernel(Instant(0))
        self.waiting: list[int] = []
        self.under_way = -1
        self.last_end = 0
        self.lost = self.out_time = self.hits = 0

    def run(self) -> None:
        for stop in range(self.stops):
            self.kernel.at(Instant(self.model.cycle * stop // self.stops), self._due, stop, _DUE)
        while self.kernel.step():
            pass
        assert self.under_way < 0
        assert not self.waiting, self.waiting

    def held_out(self) -> int:
        """Host-microseconds: of the stops alone if the buffer works between them, else of the buffer all the time."""
        if self.model.rest:
            return self.out_time
        return self.size * (self.model.cycle + self.late())

    def late(self) -> int:
        return max(0, self.last_end - self.model.cycle)

    def _placed(self) -> list[_Gang]:
        """All gangs: shuffled, with gaps that share the free hosts, turned by an offset."""
        chance = Stream.of(self.seed, "placement", str(self.number))
        sizes = [gang.hosts for gang in self.model.gangs for _ in range(gang.count)]
        free = self.model.hosts - sum(sizes)
        assert free >= 0, free
        turn = chance.integer(self.model.hosts)
        cuts = sorted(chance.integer(free + 1) for _ in sizes)
        gangs, before = [], 0
        for place, (index, cut) in enumerate(zip(chance.permutation(len(sizes)), cuts, strict=True)):
            restarts = Stream.of(self.seed, "restarts", str(self.number), str(place))
            gangs.append(_Gang(sizes[index], (turn + cut + before) % self.model.hosts, restarts))
            before += sizes[index]
        return gangs

    def _met(self, gang: _Gang) -> set[int]:
        """The stops whose domains hold hosts of the gang; it may reach over the end of the fleet."""
        last = gang.first + gang.hosts - 1
        first, end = self._stop_of(gang.first), self._stop_of(last % self.model.hosts)
        if last < self.model.hosts:
            return set(range(first, end + 1))
        return set(range(first, self.stops)) | set(range(end + 1))

    def _stop_of(self, host: int) -> int:
        """The domain of a host; domains are even, so the guess is off by one at most."""
        stop = (host * self.stops + self.stops - 1) // self.model.hosts
        while self.bounds[stop] > host:
            stop -= 1
        return stop

    def _due(self, stop: int) -> None:
        if self.under_way >= 0:
            self.waiting.append(stop)
        else:
            self._begin(stop)

    def _begin(self, stop: int) -> None:
        self.under_way = stop
        mean = self.model.stop
        chance = Stream.of(self.seed, "stop", str(self.number), str(stop))
        length = mean // 2 + round(chance.exponential(mean - mean // 2))
        self.out_time += (self.bounds[stop + 1] - self.bounds[stop]) * length
        self.kernel.after(length, self._end, stop, _END)
        for gang in self.gangs_of[stop]:
            self._hit(gang)

    def _end(self, stop: int) -> None:
        assert self.under_way == stop, (self.under_way, stop)
        self.under_way, self.last_end = -1, self.kernel.now
        if self.waiting:
            self._begin(self.waiting.pop(0))

    def _hit(self, gang: _Gang) -> None:
        self.hits += 1
        mean = self.model.lost
        redone = round(gang.chance.uniform() * mean)
        down = redone + round(gang.chance.exponential(mean - mean // 2)) if mean > 1 else mean
        back_at = after(self.kernel.now, down)
        if gang.back is None:
            gang.down_since = self.kernel.now
        else:
            back_at = max(back_at, gang.back[0])
            self.kernel.cancel(gang.back)
        gang.back = self.kernel.at(back_at, self._back, gang, _BACK)

    def _back(self, gang: _Gang) -> None:
        self.lost += gang.hosts * (self.kernel.now - gang.down_since)
        gang.back = None
