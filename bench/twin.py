"""The clock of the simulated world: events a second, with timers that start themselves again, each with its own period.

Peer: SimPy with the same timers, one process a timer, in the same run. `ratio` is ours over the peer's; the goal is 2.
Once with 3,072 timers (one for each host of a large pod), once with 100. Both sides are checked to have come to the
same place: the next event is due at the same microsecond.

Then whole fleets under the very engine, watched: a day of `scenarios/two-clusters.toml` (2 x 3,072 hosts, a million
operations), and a year of both clusters with 2,000 disruptive operations a day and the jobs of 256 GPUs and more. Both
in seconds of processor on one core. No peer simulates a planner. BENCH_TWIN_SCALE=0.01 in the environment lets a
hundredth of the time pass, and then the figure is what the whole would take at that pace.
"""

import os
from collections.abc import Generator, Iterator, Sequence
from importlib.metadata import version
from pathlib import Path

import simpy

from bench.figure import Figure, interleaved, timed
from trainmaster.cli.scenariofile import load
from trainmaster.cli.twin_meter import Meter
from trainmaster.core.base.seed import Stream
from trainmaster.core.base.time import Duration, Instant
from trainmaster.twin.kernel import Kernel
from trainmaster.twin.run import Options, Run
from trainmaster.twin.scenario import DAY, Scenario

EVENTS = 200_000
GOAL = 2.0
MEAN_PERIOD = 1_000_000
SCENARIO = Path(__file__).parents[1] / "scenarios" / "two-clusters.toml"
DAY_GOAL_S, YEAR_GOAL_S = 120.0, 60.0


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
    scale = float(os.environ.get("BENCH_TWIN_SCALE", "1"))
    yield day(scale)
    yield year(scale)


def day(scale: float) -> Figure:
    """A day with a million operations."""
    return _fleet("twin.day_million_operations_s", load(SCENARIO), 1, scale, DAY_GOAL_S)


def year(scale: float) -> Figure:
    """A year of disruptive operations, failures and large jobs. Without the trains, which would bring as many
    operations again: the load is what is stated."""
    scenario = load(SCENARIO)
    mix = scenario.operations.but(per_day=2_000, disruptive_per_day=2_000)
    jobs = tuple(job for job in scenario.jobs if job.hosts >= 32)
    return _fleet(
        "twin.year_two_clusters_s",
        scenario.but(operations=mix, jobs=jobs, trains=(), releases=()),
        365,
        scale,
        YEAR_GOAL_S,
    )


def _fleet(name: str, scenario: Scenario, days: int, scale: float, goal_s: float) -> Figure:
    chosen = scenario.but(duration=Duration(round(days * DAY * scale)))
    report = Run(chosen, Options(), Meter()).run()
    assert report.invariants_broken == 0, report.broken
    whole_s = report.cpu_s / scale
    slow = f", from {scale:g} of it" if scale != 1 else ""
    return Figure(
        bench="twin",
        figure=name,
        value=round(whole_s, 1),
        unit="s",
        better="lower",
        goal=f"under {goal_s:g} s on one core",
        holds=whole_s < goal_s,
        note=(
            f"simulated{slow}: {report.operations_done:,} operations done, {report.disruptive:,} disruptive requested,"
            f" {report.wide:,} wider than a unit, {report.events:,} events of {report.us_per_event:g} us,"
            f" {report.failures['failures']:,} failures, {report.peak_memory_mib} MiB"
        ),
    )
