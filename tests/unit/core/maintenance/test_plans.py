"""Plans: what they say of jobs and capacity, that the gate then says the same, and that planning changes nothing."""

import pytest
from tests.unit.core.maintenance.planner_world import CATALOGUE, ME
from tests.unit.core.maintenance.test_jobs_under_maintenance import JobWorld

from trainmaster.core.base.ids import ComponentName, HostId, KindName, OperationId
from trainmaster.core.base.reasons import Token
from trainmaster.core.base.time import HOUR, MINUTE, Duration, Instant, in_seconds
from trainmaster.core.events import OperationRequested
from trainmaster.core.glance import Glance
from trainmaster.core.maintenance.events import OperationSpec
from trainmaster.core.maintenance.plan import OperationsPlan
from trainmaster.core.maintenance.plans import hits, plan_gang, plan_operations
from trainmaster.core.rehearsal import Rehearsal
from trainmaster.core.scheduling.request import MaintenanceContract


def upgrade(host: str, component: str = "nic", version: str = "2") -> OperationSpec:
    return OperationSpec(scope=(f"host/{host}",), component=ComponentName(component), version=version)


def look(world: JobWorld) -> Glance:
    return world.engine.glance(world.now)


def rehearsal(world: JobWorld) -> Rehearsal:
    return Rehearsal(world.engine.snapshot(), world.now)


def plan(world: JobWorld, *specs: OperationSpec) -> OperationsPlan:
    """Made twice, with the state the same before and after."""
    before, wake = world.engine.snapshot(), world.engine.next_wake()
    made = plan_operations(look(world), rehearsal(world), specs)
    assert plan_operations(look(world), rehearsal(world), specs) == made
    assert (world.engine.snapshot(), world.engine.next_wake()) == (before, wake)
    return made


def test_what_becomes_of_a_job() -> None:
    """1. A job with a spare: it moves there. 2. Two of its hosts at once: the spare and a free host. 3. All hosts that
    are left: there is nothing to move to, so work waits for it; or, if it is told to go, it is stopped."""
    world = JobWorld(hosts=6)
    job = world.run(hosts=4, spares=1)
    attempt = world.attempt(job)
    first, second = attempt.members[:2]
    (hit,) = plan(world, upgrade(first)).jobs
    assert (hit.outcome, hit.to, hit.leaving) == ("moves", attempt.spares, (first,))
    (hit,) = plan(world, upgrade(first), upgrade(second)).jobs
    assert (hit.outcome, hit.to) == ("moves", attempt.spares)
    assert "and 1 free host after" in hit.sentence
    *_, last = plan(world, *(upgrade(host) for host in attempt.members[:3])).jobs
    assert (last.outcome, last.to) == ("waits", ())
    (hit,) = hits(look(world), attempt.members[:3], told=True)
    assert hit.outcome == "stops"


def test_a_job_that_may_finish_or_is_protected() -> None:
    """1. A job that finishes first. 2. A protected one: the plan says what the gate then says."""
    world = JobWorld(hosts=6)
    finishes = world.run(hosts=2, spares=0, name="short", on_drain="finish")
    protected = MaintenanceContract(protected_until=Instant(world.now + HOUR))
    safe = world.run(hosts=2, spares=0, name="safe", contract=protected)
    (hit,) = plan(world, upgrade(world.attempt(finishes).members[0])).jobs
    assert hit.outcome == "finishes"
    host = world.attempt(safe).members[0]
    made = plan(world, upgrade(host))
    assert made.jobs[0].outcome == "waits"
    waits = made.items[0].waits
    assert waits is not None
    assert waits.token is Token.JOB_PROTECTED
    assert world.operation(world.request("nic", f"host/{host}")).reason == waits


def test_durations_add_up_with_one_drain_and_one_reboot() -> None:
    """1. Two updates that reboot and one that does not: three medians, one reboot. 2. The notice of the job comes on
    top. 3. A kind that is the reboot itself has no second one."""
    world = JobWorld(hosts=4)
    together = [upgrade("h0", name) for name in ("bios", "driver", "nic")]
    boot = CATALOGUE.kind(KindName("reboot"))
    assert boot is not None
    assert plan(world, *together).expected_s == in_seconds(3 * MINUTE + boot.duration.median)
    assert plan(world, OperationSpec(kind=boot.name, scope=("host/h0",))).expected_s == in_seconds(boot.duration.median)
    contract = MaintenanceContract(notice=Duration(5 * MINUTE), checkpoint_wait=Duration(10 * MINUTE))
    job = world.run(hosts=1, spares=0, contract=contract)
    assert plan(world, upgrade(world.attempt(job).members[0])).expected_s == in_seconds(16 * MINUTE)


def test_the_buffer_is_counted_through_the_plan() -> None:
    """1. Five hosts, a buffer of two: the plan lets two go and three wait, as the gate then does. 2. The fingerprint
    holds while nothing of it changes, and changes with what it depends on."""
    world = JobWorld(hosts=5, maintenance=2)
    specs = [upgrade(f"h{number}") for number in range(5)]
    made = plan(world, *specs)
    assert [item.waits is None for item in made.items] == [True, True, False, False, False]
    assert (made.waiting, made.capacity[0].taken_after, made.capacity[0].most) == (3, 2, 2)
    assert (made.hosts, made.at_once) == ("h[0-4]", "h[0-1]")
    first = made.items[2].waits
    assert first is not None
    assert first.token is Token.MAINTENANCE_BUFFER_SPENT
    world.request("probe", "host/h4")
    later = plan(world, *specs)
    assert later.index > made.index
    assert later.fingerprint == made.fingerprint
    world.hold = lambda effect: True
    world.request("fan", "host/h3")
    assert plan(world, *specs).fingerprint != made.fingerprint


def test_a_gang_is_planned_as_a_whole() -> None:
    """1. Members and spares, no step lost. 2. More hosts than the buffer ever has: never. 3. A job that waits: it has
    no hosts."""
    world = JobWorld(hosts=6)
    job = world.run(hosts=4, spares=1)
    made = plan_gang(rehearsal(world), job, ComponentName("image"), "1")
    assert not hasattr(made, "token")
    assert (made.units, made.steps_lost, made.waits) == (5, 0, None)  # type: ignore[union-attr]
    waiting = world.run(hosts=4, spares=0, name="later")
    refused = plan_gang(rehearsal(world), waiting, ComponentName("image"), "1")
    assert refused.token is Token.JOB_NOT_RUNNING  # type: ignore[union-attr]
    small = JobWorld(hosts=6, maintenance=2)
    job = small.run(hosts=4, spares=0)
    refused = plan_gang(rehearsal(small), job, ComponentName("image"), "1")
    assert refused.token is Token.CAPACITY_NEVER  # type: ignore[union-attr]
    assert "of a maintenance buffer of 2" in refused.sentence  # type: ignore[union-attr]
    assert refused.sentence.endswith("; all 4 hosts of train, h[0-3], leave together")  # type: ignore[union-attr]
    assert refused.numbers["wanted"] == 4  # type: ignore[union-attr]


def test_a_look_can_do_nothing_else() -> None:
    """1. A look that causes an effect is a defect, and says so."""
    world = JobWorld(hosts=2)
    for act in (lambda step: step.emit("x"), lambda step: step.unwake("x")):
        with pytest.raises(AssertionError, match="a look"):
            act(look(world))
    assert world.engine.state.hosts[HostId("h0")].state.value == "ready"


def test_what_leaves_in_turn_is_not_said_to_leave_at_once() -> None:
    """1. A job with one spare on three hosts, a buffer of one: a plan of all three lets one go at once and moves the
    job to its spare; the other two are let go in turn, and the job moves then as well. It never lacks a spare. 2. What
    the plan says is what the engine then does."""
    world = JobWorld(hosts=4, maintenance=1)
    job = world.run(hosts=3, spares=1)
    members = world.attempt(job).members
    made = plan(world, *(upgrade(host) for host in members))
    now, later = made.jobs
    assert (now.leaving, now.outcome, now.later) == (members[:1], "moves", False)
    assert (later.leaving, later.outcome, later.later) == (members[1:], "moves", True)
    assert (made.units, made.at_once, made.capacity[0].taken_after) == (3, members[0], 1)
    world.hold = lambda effect: True
    names = [world.request("nic", f"host/{host}") for host in members]
    reasons = [world.operation(name).reason for name in names]
    assert [item.waits for item in made.items] == [None, *reasons[1:]]


def test_operations_of_the_same_plan_are_named_in_words() -> None:
    """1. One operation comes after another of the plan: what it waits for has no id yet, so it is told in words. 2. If
    the first can't be asked for, neither can the second. 3. A key that was used before: it is known, and asked for
    once."""
    world = JobWorld(hosts=4)
    second = upgrade("h1").but(after=(OperationId("a"),))
    made = plan_operations(look(world), rehearsal(world), (upgrade("h0"), second), ("a", "b"))
    waits = made.items[1].waits
    assert waits is not None
    assert (waits.token, waits.sentence) == (Token.WAITS_FOR_OPERATION, "upgrade nic 2 on host/h0 must be done before")
    made = plan_operations(look(world), rehearsal(world), (upgrade("h99"), second), ("a", "b"))
    refused = [item.refused.token if item.refused else None for item in made.items]
    assert refused == [Token.NO_SUCH_RESOURCE, Token.PREDECESSOR_FAILED]
    world.submit(OperationRequested(at=world.now, spec=upgrade("h0"), by=ME, key="a"))
    made = plan_operations(look(world), rehearsal(world), (upgrade("h0"),), ("a",))
    assert (made.items[0].known, made.units) == ("op-1", 0)
