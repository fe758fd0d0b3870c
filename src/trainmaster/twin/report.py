"""What a simulated run tells: figures for people and programs. All of it is simulated, and says so."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol, TypeVar

import msgspec

from trainmaster.core.base.ids import HostId
from trainmaster.core.base.time import HOUR, in_seconds
from trainmaster.core.base.value import Value
from trainmaster.twin.report_trains import RolloutReport, SkewReport, TrainReport, last_cycles, rollouts, skew, trains

if TYPE_CHECKING:
    from trainmaster.twin.run import Run

K = TypeVar("K")


class Clocks(Protocol):
    """What tells how long a run takes here. The twin has no clock: what it measures with decides nothing."""

    def wall_ns(self) -> int: ...

    def processor_ns(self) -> int: ...

    def peak_mib(self) -> int:
        """The most memory that the process has had."""
        ...


class NoClocks:
    """Nothing is measured."""

    def wall_ns(self) -> int:
        return 0

    def processor_ns(self) -> int:
        return 0

    def peak_mib(self) -> int:
        return 0


class Cost(msgspec.Struct):
    """Mutable count of events of a type, and what the engine took for them."""

    events: int = 0
    ns: int = 0


class Before(Value):
    """What had happened when the run began, in a world that goes on from another one."""

    counts: dict[str, int]
    visited: dict[HostId, int]
    requested: int


class Sample(Value):
    """The fleet at an instant."""

    at_s: float
    books: dict[str, tuple[int, int, int, int]]
    """Units by book: in service and not promised, promised or leaving, out planned, out failed."""
    operations: int
    """That have not ended."""
    queued_jobs: int
    training_hosts: int


class EventCost(Value):
    events: int
    us_each: float | None
    """Microseconds of the engine; None: not measured."""


class Wait(Value):
    operations: float
    """Average number that waits."""
    hours: float


class Watched(Value):
    """What was watched, how often, and what it cost."""

    events: int
    """Looked at one by one, incrementally."""
    whole_states: int
    whole_state_s: float


class RunReport(Value):
    simulated: bool = True
    """Never a measurement of a real fleet."""
    scenario: str
    seed: int
    simulated_s: float
    wall_s: float
    cpu_s: float
    peak_memory_mib: int
    events: int
    us_per_event: float
    """Everything: world, engine, watchers."""
    events_by_type: dict[str, EventCost]
    operations_requested: int
    operations_done: int
    operations_by_outcome: dict[str, int]
    operations_by_kind: dict[str, dict[str, int]]
    """Kind, then outcome; upgrades of all components are one kind."""
    operations_by_source: dict[str, int]
    scope_widths: dict[str, int]
    disruptive: int
    wide: int
    kinds: int
    components: int
    kinds_used: int
    """Kinds and components of which at least one operation was requested."""
    left_out: tuple[str, ...]
    """Kinds and components whose work could never be allowed in this fleet."""
    unfinished: int
    oldest_unfinished_h: float
    invariants_broken: int
    broken: tuple[str, ...]
    watched: Watched
    hosts_visited: int
    visits: int
    hosts_missed: int
    """With trains: units that the last whole cycle of their train visited, and missed. Without: compute hosts with a
    visit that ended in a return, and without one."""
    trains: dict[str, TrainReport]
    rollouts: dict[str, RolloutReport]
    versions: dict[str, SkewReport]
    """By component that had releases."""
    failures: dict[str, int]
    jobs: dict[str, int]
    """By how they ended; `live` have not."""
    interruptions: dict[str, int]
    interruptions_by_job: dict[str, dict[str, int]]
    """Job, then cause: stops of trains, other planned hand-overs, lost hosts."""
    lost_gpu_s_by_cause: dict[str, int]
    trained_gpu_s: int
    waits_by_reason: dict[str, Wait]
    """By samples at even times."""
    samples: tuple[Sample, ...]
    log_hash: str


def make(run: "Run", wall_s: float, cpu_s: float, digest: str, peak_mib: int) -> RunReport:
    """The report of a run that has ended."""
    world, requests, watcher = run.world, run.requests, run.watcher
    maintenance = world.engine.state.maintenance
    visited, missed = _visited(run)
    live = maintenance.operations.values()
    now = world.kernel.now
    trained_us, saved_us = world.gangs.under_way_gpu_us()
    lost_us = world.gangs.lost_gpu_us | {"save": world.gangs.lost_gpu_us.get("save", 0) + saved_us}
    events = sum(cost.events for cost in run.costs.values())
    counts = _since(maintenance.counts, run.before.counts)
    outcomes = operations_by_outcome(counts)
    return RunReport(
        scenario=run.scenario.name,
        seed=run.scenario.seed,
        simulated_s=run.simulated_s(),
        wall_s=round(wall_s, 3),
        cpu_s=round(cpu_s, 3),
        peak_memory_mib=peak_mib,
        events=events,
        us_per_event=round(cpu_s * 1e6 / max(events, 1), 2),
        events_by_type=_events(run),
        operations_requested=maintenance.requested - run.before.requested,
        operations_done=outcomes.get("done", 0),
        operations_by_outcome=outcomes,
        operations_by_kind=operations_by_kind(counts),
        operations_by_source=dict(world.requested_by),
        scope_widths=dict(requests.widths),
        disruptive=requests.requested["disruptive"],
        wide=requests.requested["wide"],
        kinds=len(run.scenario.catalogue.kinds),
        components=len(run.scenario.catalogue.components),
        kinds_used=len(requests.names),
        left_out=requests.left_out,
        unfinished=len(live),
        oldest_unfinished_h=round(max((now - one.requested_at for one in live), default=0) / HOUR, 2),
        invariants_broken=watcher.count if watcher is not None else 0,
        broken=tuple(watcher.found) if watcher is not None else (),
        watched=Watched(
            events=watcher.events if watcher is not None else 0,
            whole_states=watcher.whole if watcher is not None else 0,
            whole_state_s=round(watcher.whole_s, 3) if watcher is not None else 0.0,
        ),
        hosts_visited=len(visited),
        visits=sum(_since(maintenance.visited, run.before.visited).values()),
        hosts_missed=len(missed),
        trains=trains(world, run.train_waits),
        rollouts=rollouts(world),
        versions=skew(world),
        failures=dict(world.counts),
        jobs=world.gangs.jobs_ended | {"live": len(world.gangs.by_job)},
        interruptions=sums(world.gangs.interruptions),
        interruptions_by_job={job: row for job, row in world.gangs.interruptions.items() if row},
        lost_gpu_s_by_cause={cause: lost // 1_000_000 for cause, lost in lost_us.items() if lost},
        trained_gpu_s=(world.gangs.trained_gpu_us + trained_us) // 1_000_000,
        waits_by_reason=_waits(run),
        samples=tuple(run.samples),
        log_hash=digest,
    )


def _visited(run: "Run") -> tuple[list[HostId], list[HostId]]:
    if run.scenario.trains:
        return last_cycles(run.world)
    visits = _since(run.world.engine.state.maintenance.visited, run.before.visited)
    compute = [host.id for host in run.scenario.fleet.hosts if host.kind == "compute"]
    return [host for host in compute if visits.get(host)], [host for host in compute if not visits.get(host)]


def _since(now: Mapping[K, int], before: Mapping[K, int]) -> dict[K, int]:
    """What was added to counts."""
    return {key: count - before.get(key, 0) for key, count in now.items() if count > before.get(key, 0)}


def _events(run: "Run") -> dict[str, EventCost]:
    profiled = run.options.profiled
    rows = sorted(run.costs.items(), key=lambda row: -row[1].events)
    return {
        kind.__name__: EventCost(
            events=cost.events, us_each=round(cost.ns / cost.events / 1000, 2) if profiled and cost.events else None
        )
        for kind, cost in rows
    }


def operations_by_outcome(counts: dict[str, int]) -> dict[str, int]:
    """Of the counts of ended operations, those by outcome."""
    return {key: count for key, count in sorted(counts.items()) if "/" not in key}


def operations_by_kind(counts: dict[str, int]) -> dict[str, dict[str, int]]:
    """Of the counts of ended operations, those by kind, then by outcome."""
    found: dict[str, dict[str, int]] = {}
    for key, count in sorted(counts.items()):
        kind, slash, outcome = key.partition("/")
        if slash:
            found.setdefault(kind, {})[outcome] = count
    return found


def sums(rows: dict[str, dict[str, int]]) -> dict[str, int]:
    """All rows together, by cause."""
    total: dict[str, int] = {}
    for row in rows.values():
        for cause, count in row.items():
            total[cause] = total.get(cause, 0) + count
    return total


def _waits(run: "Run") -> dict[str, Wait]:
    samples = max(len(run.samples), 1)
    hours = in_seconds(run.scenario.duration) / 3600 / samples
    rows = sorted(run.waits.items(), key=lambda row: -row[1])
    return {token: Wait(operations=round(count / samples, 3), hours=round(count * hours, 2)) for token, count in rows}
