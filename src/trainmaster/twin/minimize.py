"""From a history in which something breaks to the few inputs that break it.

`ddmin` is delta debugging (Zeller and Hildebrandt 2002): it tries parts of the inputs and what is left without them, in
ever finer parts, and ends with a set of which no single one can be left out. A test is a whole simulated history, and
it counts only if the same invariant breaks (the same words, names and numbers aside): another defect on the way would
lead astray. Then hosts are left out in the same way, then inputs once more, and the end is put where it breaks.

The watcher looks at the whole state after so many events, and more often the fewer inputs there are, so that a test
costs about as much as the events that it has, and a small history is looked at after every event.
"""

import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final, TypeVar

from trainmaster.core.base.ids import HostId
from trainmaster.core.base.time import SECOND, Duration, Instant, in_seconds
from trainmaster.core.base.value import Value
from trainmaster.core.effects import AnyEffect
from trainmaster.core.events import AnyEvent
from trainmaster.core.words import sentence
from trainmaster.twin.inputs import Input, Inputs
from trainmaster.twin.run import Options, Run
from trainmaster.twin.scenario import Scenario
from trainmaster.twin.world import World

T = TypeVar("T")

STORY: Final = 60
"""Events that are told, the last ones before it breaks."""


def ddmin(items: Sequence[T], fails: Callable[[tuple[T, ...]], bool]) -> tuple[T, ...]:
    """The fewest of the items with which it still fails, in their order: without any single one it does not.

    All items together must fail. Nothing is assumed of `fails` but that it answers alike each time.
    """
    left, parts = tuple(items), 2
    while len(left) > 1:
        size = -(-len(left) // parts)
        chunks = [left[start : start + size] for start in range(0, len(left), size)]
        for place, chunk in enumerate(chunks):
            rest = tuple(item for other, part in enumerate(chunks) if other != place for item in part)
            if len(chunks) > 2 and fails(chunk):
                left, parts = chunk, 2
                break
            if fails(rest):
                left, parts = rest, max(parts - 1, 2)
                break
        else:
            if size == 1:
                return left
            parts = min(2 * parts, len(left))
    return () if left and fails(()) else left


class Break(Value):
    """The first time that something is not as it must be."""

    sentence: str
    signature: str
    """The same for the same rule, whatever the names and numbers are."""
    at: Instant
    event: int


class Minimal(Value):
    simulated: bool = True
    """Never a measurement of a real fleet."""
    scenario: str
    seed: int
    broken: Break
    inputs: tuple[Input, ...]
    inputs_before: int
    hosts: tuple[HostId, ...]
    hosts_before: int
    duration_s: float
    watch_every: int
    runs: int
    """Histories that were simulated for it."""
    complete: bool
    """False: the number of runs was spent, so that less might do."""
    story: tuple[str, ...]
    """Events in words, the last ones before it broke."""


class NothingBreaks(Exception):
    """The run has nothing to be minimized."""


class NotTheSame(Exception):
    """With all of its inputs given by name, the history is another one. A defect of the twin."""


class _Broken(Exception):
    """Something broke; the rest of the history does not matter."""


class _History:
    """One history up to where it breaks."""

    def __init__(
        self, scenario: Scenario, every: int, only: frozenset[str] | None, hosts: frozenset[HostId] | None
    ) -> None:
        self.inputs = Inputs(only)
        self.found: Break | None = None
        self.story: list[str] = []
        run = Run(scenario, Options(whole_every=every), world=World(scenario, inputs=self.inputs, hosts=hosts))
        self._run, self._heard = run, list[AnyEvent]()
        handle, watcher, world = run.world.handle, run.watcher, run.world
        assert watcher is not None

        def kept(event: AnyEvent) -> tuple[AnyEffect, ...]:
            self._heard.append(event)
            return handle(event)

        def watch(event: AnyEvent, effects: tuple[AnyEffect, ...]) -> None:
            watcher.watch(event, effects)
            if watcher.count:
                raise _Broken

        world.handle, world.watch = kept, watch
        try:
            with suppress(_Broken):
                run.run()
        except Exception as error:  # noqa: BLE001  (whatever stops the engine, it stopped here)
            self._break(f"the engine stops: {type(error).__name__}: {error}")
        if watcher.found and self.found is None:
            self._break(watcher.found[0].partition(": ")[2])

    def _break(self, text: str) -> None:
        world = self._run.world
        self.found = Break(sentence=text, signature=signature(text), at=world.kernel.now, event=world.engine.index)

    def told(self) -> tuple[str, ...]:
        """The last events, in words, with the time since the beginning."""
        began, first = self._run.world.began, max(len(self._heard) - STORY, 0)
        rows = enumerate(self._heard[first:], first + 1)
        return tuple(f"{in_seconds(event.at - began):10.1f} s  {index}: {sentence(event)}" for index, event in rows)


def signature(text: str) -> str:
    """A sentence without names and numbers; the number of the invariant at its beginning stays."""
    number, colon, rest = text.partition(": ")
    if not (colon and number.isdigit()):
        number, rest = "", text
    words = re.sub(r"\([^()]*\)|\[[^\[\]]*\]|\{[^{}]*\}", "*", rest)
    return f"{number}:" + re.sub(r"\S*[\d/*]\S*", "*", words)


class _Search:
    def __init__(self, scenario: Scenario, every: int, most: int, told: Callable[[str], None]) -> None:
        self.scenario, self.every, self.most, self.tell = scenario, every, most, told
        self.runs = 1
        self.first = _History(scenario, every, None, None)
        self._known: dict[tuple[tuple[str, ...], tuple[HostId, ...]], bool] = {}

    def look_every(self, names: Sequence[str]) -> int:
        return max(1, self.every * len(names) // max(len(self.first.inputs.seen), 1))

    def history(self, names: tuple[str, ...], hosts: tuple[HostId, ...], duration: Duration) -> _History:
        self.runs += 1
        everyone = len(hosts) == len(self.scenario.fleet.hosts)
        only = None if everyone else frozenset(hosts)
        return _History(self.scenario.but(duration=duration), self.look_every(names), frozenset(names), only)

    def same(self, found: Break | None) -> bool:
        first = self.first.found
        return found is not None and first is not None and found.signature == first.signature

    def breaks(self, names: tuple[str, ...], hosts: tuple[HostId, ...], duration: Duration) -> bool:
        """Whether it still breaks; what was tried is known, and when all runs are spent, nothing more is tried."""
        key = (names, hosts)
        if key not in self._known and self.runs < self.most:
            self._known[key] = self.same(self.history(names, hosts, duration).found)
            self.tell(f"run {self.runs}: {len(names):,} inputs, {len(hosts):,} hosts")
        return self._known.get(key, False)


def minimize(scenario: Scenario, every: int, most: int, told: Callable[[str], None] = lambda text: None) -> Minimal:
    """The smallest history, of the scenario and its seed, that breaks as the whole one does, by at most `most` runs.

    The whole state is looked at after `every` events of the whole history. Raises `NothingBreaks` or `NotTheSame`.
    """
    search = _Search(scenario, every, most, told)
    found = search.first.found
    if found is None:
        raise NothingBreaks
    duration = Duration(found.at - search.first._run.world.began + SECOND)
    everyone = tuple(host.id for host in scenario.fleet.hosts)
    names = tuple(dict.fromkeys(one.name for one in search.first.inputs.seen))
    if not search.same(search.history(names, everyone, duration).found):
        raise NotTheSame(found.sentence)
    hosts = everyone
    names = ddmin(names, lambda some: search.breaks(some, everyone, duration))
    if not scenario.trains:  # their domains are of the whole fleet
        kept = names
        hosts = ddmin(hosts, lambda some: bool(some) and search.breaks(kept, some, duration))
        left = hosts
        names = ddmin(names, lambda some: search.breaks(some, left, duration))
    last = search.history(names, hosts, duration)
    assert last.found is not None
    return Minimal(
        scenario=scenario.name,
        seed=scenario.seed,
        broken=last.found,
        inputs=tuple({one.name: one for one in last.inputs.seen}.values()),
        inputs_before=len(set(search.first.inputs.seen)),
        hosts=hosts,
        hosts_before=len(everyone),
        duration_s=in_seconds(last.found.at - last._run.world.began) + 1.0,
        watch_every=search.look_every(names),
        runs=search.runs,
        complete=search.runs < most,
        story=last.told(),
    )
