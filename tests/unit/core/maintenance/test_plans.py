"""Plans: what they say of jobs and capacity, that the gate then says the same, and that planning changes nothing."""

import pytest
from tests.unit.core.maintenance.planner_world import CATALOGUE
from tests.unit.core.maintenance.test_jobs_under_maintenance import JobWorld

from trainmaster.core.base.ids import ComponentName, HostId, KindName
from trainmaster.core.base.reasons import Token
from trainmaster.core.base.time import HOUR, MINUTE, Duration, Instant, in_seconds
from trainmaster.core.glance import Glance
from trainmaster.core.maintenance.events import OperationSpec
from trainmaster.core.maintenance.plan import OperationsPlan
from trainmaster.core.maintenance.plans import hits, plan_gang, plan_operations
from trainmaster.core.scheduling.request import MaintenanceContract


def upgrade(host: str, component: str = "nic", version: str = "2") -> OperationSpec:
    return OperationSpec(scope=(f"host/{host}",), component=ComponentName(component), version=version)


def look(world: JobWorld) -> Glance:
    return world.engine.glance(world.now)


def plan(world: JobWorld, *specs: OperationSpec) -> OperationsPlan:
    """Made twice, with the state the same before and after."""
    before, wake = world.engine.snapshot(), world.engine.next_wake()
    made = plan_operations(look(world), specs)
    assert plan_operations(look(world), specs) == made
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
    assert "and 1 free hosts" in hit.sentence
    (hit,) = plan(world, *(upgrade(host) for host in attempt.members[:3])).jobs
    assert (hit.outcome, hit.to) == ("waits", ())
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
    assert (made.waiting, made.capacity[0].taken_after, made.capacity[0].most) == (3, 5, 2)
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
    made = plan_gang(look(world), world.engine.state.jobs[job], ComponentName("image"), "1")
    assert not hasattr(made, "token")
    assert (made.units, made.steps_lost, made.waits) == (5, 0, None)  # type: ignore[union-attr]
    waiting = world.run(hosts=4, spares=0, name="later")
    refused = plan_gang(look(world), world.engine.state.jobs[waiting], ComponentName("image"), "1")
    assert refused.token is Token.JOB_NOT_RUNNING  # type: ignore[union-attr]
    small = JobWorld(hosts=6, maintenance=2)
    job = small.run(hosts=4, spares=0)
    refused = plan_gang(look(small), small.engine.state.jobs[job], ComponentName("image"), "1")
    assert refused.token is Token.CAPACITY_NEVER  # type: ignore[union-attr]


def test_a_look_can_do_nothing_else() -> None:
    """1. A look that causes an effect is a defect, and says so."""
    world = JobWorld(hosts=2)
    for act in (lambda step: step.emit("x"), lambda step: step.unwake("x")):
        with pytest.raises(AssertionError, match="a look"):
            act(look(world))
    assert world.engine.state.hosts[HostId("h0")].state.value == "ready"
