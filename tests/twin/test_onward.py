"""Worlds that go on from a snapshot: of any moment of another world, with everything that was under way."""

from pathlib import Path

import pytest

from tests.twin.logs import hours
from trainmaster.cli.scenariofile import load
from trainmaster.core.base.ids import HostId, JobId, KindName, Owner
from trainmaster.core.base.time import HOUR, MINUTE, Duration, seconds
from trainmaster.core.engine import Engine
from trainmaster.core.events import AnyEvent, DrainRequested, OperationRequested
from trainmaster.core.fleet.lifecycle import HostState
from trainmaster.core.maintenance.events import OperationSpec
from trainmaster.core.maintenance.operation import OperationState
from trainmaster.core.recovery.attempt import AttemptState
from trainmaster.core.scheduling.job import JobState
from trainmaster.twin.onward import LONG, Onward, scenario_of, shape_of
from trainmaster.twin.report import NoClocks
from trainmaster.twin.run import Options, Run
from trainmaster.twin.watch import Watcher

SMALL = Path(__file__).with_name("small.toml")
OFTEN = Options(whole_every=0)
ME = Owner("person:test")


def snapshots(count: int, seed: int) -> list[bytes]:
    """Of a day of the small fleet, in which much is always under way, at odd moments."""
    run = Run(load(SMALL).but(duration=hours(14), seed=seed), OFTEN)
    found: list[bytes] = []
    for number in range(1, count + 1):
        at = Duration(number * 13 * HOUR // count + number * 1_234_567)
        run.world.kernel.after(at, lambda _: found.append(run.world.engine.snapshot()), None, 2)
    run.run()
    assert len(found) == count
    return found


def onward(snapshot: bytes, duration: float = 8.0, failures: float = 100.0, **more: object) -> tuple[Onward, Run]:
    scenario = scenario_of(Engine.restore(snapshot).state, hours(duration), failures).but(seed=3)
    world = Onward(scenario, snapshot, **more)  # type: ignore[arg-type]
    return world, Run(scenario, OFTEN, world=world)


@pytest.mark.parametrize("seed", [5, 6])
def test_any_moment_can_be_gone_on_from(seed: int) -> None:
    """1. Snapshots of a busy fleet: steps, boots, drains, hand-overs, starts and failures are under way. 2. Each goes
    on for 8 hours. 3. No invariant breaks, operations end or say why not, no host and no job is left behind."""
    states: set[AttemptState] = set()
    left = total = 0
    for snapshot in snapshots(12, seed):
        world, run = onward(snapshot)
        began = len(world.engine.state.maintenance.operations)
        states |= {one.state for one in world.engine.state.attempts.values() if one.is_live()}
        watcher = Watcher(world, 50, NoClocks())
        note = world.watch
        assert note is not None

        def watch(event: AnyEvent, effects: tuple[object, ...], note=note, watcher=watcher) -> None:  # type: ignore[no-untyped-def]
            note(event, effects)
            watcher.watch(event, effects)  # type: ignore[arg-type]

        world.watch = watch  # type: ignore[assignment]
        report = run.run()
        watcher.look()
        assert watcher.found == []
        state = world.engine.state
        for operation in state.maintenance.operations.values():
            assert operation.reason is not None or operation.since > world.kernel.now - 4 * HOUR, operation.id
        left, total = left + len(state.maintenance.operations), total + began
        for host in state.hosts.values():
            assert host.state in (HostState.READY, HostState.OUT_FAILED) or host.since > world.kernel.now - HOUR, (
                host.id
            )
        for gang in world.gangs.by_job.values():
            queued = state.jobs[gang.job].state is JobState.QUEUED
            assert gang.trains or queued or gang.stopped_at > world.kernel.now - HOUR, gang.name
        assert report.jobs["finished"] > 0
    assert AttemptState.RUNNING in states
    assert left < total / 4  # what waits for a host that is in repair


def test_a_world_begins_with_what_the_snapshot_says() -> None:
    """1. A snapshot goes on for a second. 2. Time and state go on from it, and figures count from there."""
    (snapshot,) = snapshots(1, 5)
    began = Engine.restore(snapshot).state
    world, run = onward(snapshot, duration=1 / 3600)
    report = run.run()
    assert world.began == began.now
    assert report.simulated_s == 1.0
    assert report.operations_requested == 0
    assert began.maintenance.requested > 100
    assert world.engine.state.maintenance.requested == began.maintenance.requested
    assert {host.id for host in began.hosts.values() if host.is_usable()} <= {
        name for name, unit in world.units.items() if unit.up
    }


def test_jobs_go_on_as_they_said() -> None:
    """1. A job that told how long it takes, half of it ago. 2. It has the other half left; one that told nothing has no
    end. 3. Its steps and starts are those of its epochs."""
    (snapshot,) = snapshots(1, 6)
    state = Engine.restore(snapshot).state
    world, _ = onward(snapshot)
    world.start()
    told = [gang for gang in world.gangs.by_job.values() if state.jobs[gang.job].spec.contract.expected_duration]
    silent = [gang for gang in world.gangs.by_job.values() if gang not in told]
    assert told
    assert silent
    for gang in told:
        job = state.jobs[gang.job]
        expected = job.spec.contract.expected_duration
        assert expected is not None
        if job.attempts:
            began = state.attempts[job.attempts[0]].placed_at
            assert gang.work - gang.done == max(expected - (state.now - began), seconds(1))
    assert all(gang.work - gang.done == LONG for gang in silent)
    job = state.jobs[silent[0].job]
    shape = shape_of(job, [state.attempts[name] for name in job.attempts])
    assert shape.count == 0
    assert shape.launch == seconds(5)
    assert shape.restore == Duration(2 * MINUTE)


def test_hosts_that_a_person_holds_stay_out() -> None:
    """1. A person drained a host before the snapshot. 2. Hours later it is out still, and nothing else is."""
    run = Run(load(SMALL).but(duration=hours(3)), OFTEN)
    host = HostId("b20")
    drain = DrainRequested(at=run.world.kernel.now, hosts=(host,), by=ME, reason="a look", evict=False)
    run.world.kernel.after(2 * HOUR, lambda _: run.world.submit(drain.but(at=run.world.kernel.now)), None)
    run.run()
    world, again = onward(run.world.engine.snapshot(), duration=30.0, failures=0.0)
    again.run()
    out = [one.id for one in world.engine.state.hosts.values() if one.state is not HostState.READY]
    assert out == [host]


def test_what_is_asked_at_the_beginning_is_followed_to_its_end() -> None:
    """1. Two operations are asked for, the second after the first. 2. Both are known by their ids, and when they
    ended. 3. The engine that the snapshot came from knows nothing of it."""
    (snapshot,) = snapshots(1, 6)

    def asks(engine: Engine):  # type: ignore[no-untyped-def]
        now = engine.state.now
        spec = OperationSpec(kind=KindName("reboot"), scope=("host/a05",), reason="try")
        yield OperationRequested(at=now, spec=spec, by=ME, key="first")
        first = engine.state.maintenance.keys["first"]
        yield OperationRequested(at=now, spec=spec.but(scope=("host/a06",), after=(first,)), by=ME)

    world, run = onward(snapshot, failures=0.0, asks=asks)
    run.run()
    assert [spec.scope for spec in world.asked.values()] == [("host/a05",), ("host/a06",)]
    assert [state for state, _ in world.ended.values()] == [OperationState.DONE, OperationState.DONE]
    (_, first), (_, second) = (world.ended[name] for name in world.asked)
    assert world.began < first < second
    assert Engine.restore(snapshot).snapshot() == snapshot


def test_chance_is_the_seeds() -> None:
    """1. The same snapshot and seed twice. 2. The same history; another seed has another."""
    (snapshot,) = snapshots(1, 5)
    state = Engine.restore(snapshot).state

    def hashed(seed: int) -> str:
        scenario = scenario_of(state, hours(4), 200.0).but(seed=seed)
        return Run(scenario, Options(whole_every=0, hashed=True), world=Onward(scenario, snapshot)).run().log_hash

    assert hashed(1) == hashed(1) != hashed(2)
    assert JobId("job-1") in state.jobs
