"""The clock of the simulated world: events a second, with timers that start themselves again, each with its own period.

Peer: SimPy with the same timers, one process a timer, in the same run. `ratio` is ours over the peer's; the goal is 2.
Once with 3,072 timers (one for each host of a large pod), once with 100. Both sides are checked to have come to the
same place: the next event is due at the same microsecond.
"""

from collections.abc import Generator, Iterator, Sequence
from importlib.metadata import version

import simpy

from bench.figure import Figure, interleaved, timed
from trainmaster.core.base.seed import Stream
from trainmaster.core.base.time import Instant
from trainmaster.twin.kernel import Kernel

EVENTS = 200_000
GOAL = 2.0
MEAN_PERIOD = 1_000_000


def periods(timers: int) -> Sequence[int]:
    """Even numbers of microseconds; a run ends at an odd one, where the two sides would differ in who comes first."""
    stream = Stream.of(1, "bench", "periods")
    return [2 * (MEAN_PERIOD // 10 + stream.integer(MEAN_PERIOD * 8 // 10)) for _ in range(timers)]


def kernel(waits: Sequence[int], until: int) -> tuple[float, int | None]:
    """Seconds that it takes, and when the next event would be."""
    world = Kernel(Instant(0))
    after = world.after

    def fire(wait: int) -> None:
        after(wait, fire, wait)

    for wait in waits:
        after(wait, fire, wait)
    return timed(lambda: world.run(Instant(until))), world.next_at()


def peer(waits: Sequence[int], until: int) -> tuple[float, int | None]:
    world = simpy.Environment()
    timeout = world.timeout

    def process(wait: int) -> Generator[simpy.Timeout, None, None]:
        while True:
            yield timeout(wait)

    for wait in waits:
        world.process(process(wait))
    taken = timed(lambda: world.run(until))
    world.step()  # SimPy puts the end of a run back into its queue
    return taken, int(world.peek())


def _figure(name: str, timers: int) -> Figure:
    waits = periods(timers)
    until = EVENTS * MEAN_PERIOD // timers + 1 | 1
    events = sum(until // wait for wait in waits)
    assert kernel(waits, until)[1] == peer(waits, until)[1]
    ours, theirs = interleaved(
        lambda: events / kernel(waits, until)[0], lambda: events / peer(waits, until)[0], rounds=9
    )
    return Figure(
        bench="twin",
        figure=name,
        value=round(ours),
        unit="events/s",
        better="higher",
        peer=round(theirs),
        ratio=round(ours / theirs, 2),
        goal=f"ratio at least {GOAL:g}",
        holds=ours / theirs >= GOAL,
        note=f"{timers:,} timers, {events:,} events; the peer is SimPy {version('simpy')}",
    )


def figures() -> Iterator[Figure]:
    yield _figure("twin.kernel_events_per_s", 3_072)
    yield _figure("twin.kernel_events_per_s_100", 100)
