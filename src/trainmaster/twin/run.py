"""A run of a scenario: builds the world, lets time pass, watches, measures, reports.

What it takes here is measured with clocks that the caller brings; it goes into the report and decides nothing.
"""

import gc
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import blake2b
from typing import Final

from trainmaster.core.base.time import HOUR, Duration, Instant, after, in_seconds
from trainmaster.core.base.value import Value, encode
from trainmaster.core.effects import AnyEffect
from trainmaster.core.events import AnyEvent
from trainmaster.core.maintenance.train import TrainState
from trainmaster.twin.report import Before, Clocks, Cost, NoClocks, RunReport, Sample, make
from trainmaster.twin.requests import Requests
from trainmaster.twin.scenario import Scenario
from trainmaster.twin.watch import Watcher
from trainmaster.twin.world import World

SAMPLES: Final = 240
WHOLE_EVERY: Final = 200_000


class Options(Value):
    whole_every: int = WHOLE_EVERY
    """The whole state is looked at after so many events; 0: nothing is watched at all."""
    hashed: bool = False
    """A hash over all events, to compare two runs."""
    profiled: bool = False
    """Time by type of event."""


USUAL: Final = Options()

YOUNG: Final = 100_000
"""Objects that come before the collector looks for circles. A world makes none; it has a million that stay, and walking
them again and again was a twentieth of a run."""


@contextmanager
def _few_collections() -> Iterator[None]:
    before = gc.get_threshold()
    gc.set_threshold(YOUNG, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)


class Run:
    def __init__(
        self,
        scenario: Scenario,
        options: Options = USUAL,
        clocks: Clocks | None = None,
        told: Callable[[float, "Run"], None] | None = None,
        world: World | None = None,
    ) -> None:
        """`told` is called now and then with the part that is done. `world`: one that was made of the scenario."""
        self.scenario, self.options, self.told = scenario, options, told
        self.clocks: Clocks = clocks or NoClocks()
        self.world = world or World(scenario)
        self.requests = Requests(self.world)
        self.watcher = Watcher(self.world, options.whole_every, self.clocks) if options.whole_every else None
        if self.watcher is not None:
            self.world.watch = self.watcher.watch
        self.samples: list[Sample] = []
        self.costs: dict[type, Cost] = {}
        """By type of event."""
        self.waits: dict[str, int] = {}
        self.train_waits: dict[tuple[str, str], float] = {}
        """Hours in which a train stood, by its name and by what forbade its stop."""
        self._hash = blake2b(digest_size=16)
        self._gap = Duration(max(scenario.duration // SAMPLES, 1))
        self._end = after(self.world.began, scenario.duration)
        maintenance = self.world.engine.state.maintenance
        self.before = Before(
            counts=dict(maintenance.counts), visited=dict(maintenance.visited), requested=maintenance.requested
        )
        self.attach()

    def run(self) -> RunReport:
        wall, processor = self.clocks.wall_ns(), self.clocks.processor_ns()
        with _few_collections():
            self.world.start()
            self.requests.start()
            self.world.kernel.after(self._gap, self._sample, None)
            self.world.kernel.run(self._end)
            if self.watcher is not None:
                self.watcher.look()
        wall_s = (self.clocks.wall_ns() - wall) / 1e9
        cpu_s = (self.clocks.processor_ns() - processor) / 1e9
        digest = self._hash.hexdigest() if self.options.hashed else ""
        return make(self, wall_s, cpu_s, digest, self.clocks.peak_mib())

    def simulated_s(self) -> float:
        return in_seconds(self.world.kernel.now - self.world.began)

    def _sample(self, _: None) -> None:
        engine = self.world.engine
        account = engine._derived.planner.ledger.account()
        operations = engine.state.maintenance.operations
        reasons = [operation.reason for operation in operations.values()]
        for token, count in Counter([reason.token for reason in reasons if reason is not None]).items():
            self.waits[token.value] = self.waits.get(token.value, 0) + count
        for name, train in engine.state.maintenance.trains.items():
            if train.state is TrainState.WAITING and train.reason is not None:
                key = (str(name), train.reason.token.value)
                self.train_waits[key] = self.train_waits.get(key, 0.0) + self._gap / HOUR
        books = {
            book.name: (book.in_service - book.promised, book.promised, book.out_planned, book.out_failed)
            for book in account.books
        }
        self.samples.append(
            Sample(
                at_s=self.simulated_s(),
                books=books,
                operations=len(operations),
                queued_jobs=len(engine.state.queue),
                training_hosts=sum(len(gang.hosts) for gang in self.world.gangs.by_job.values() if gang.trains),
            )
        )
        if self.told is not None:
            self.told((self.world.kernel.now - self.world.began) / self.scenario.duration, self)
        following = Instant(self.world.kernel.now + self._gap)
        if following <= self._end:
            self.world.kernel.at(following, self._sample, None)

    def attach(self) -> None:
        """Puts what counts, times and hashes events between world and engine."""
        handle, costs, hashed = self.world.engine.handle, self.costs, self._hash
        hashes, clock = self.options.hashed, self.clocks.processor_ns
        measured = hashes or self.options.profiled

        def counted(event: AnyEvent) -> tuple[AnyEffect, ...]:
            kind = type(event)
            cost = costs.get(kind)
            if cost is None:
                cost = costs[kind] = Cost()
            cost.events += 1
            if not measured:
                return handle(event)
            if hashes:
                hashed.update(encode(event))
            start = clock()
            effects = handle(event)
            cost.ns += clock() - start
            return effects

        self.world.handle = counted
