"""What dense faults found in the planner, each in its shortest form."""

from tests.unit.core.maintenance.planner_world import ME, PlannerWorld
from tests.unit.core.maintenance.test_jobs_under_maintenance import JobWorld

from trainmaster.core.base.ids import HostId, Owner
from trainmaster.core.base.reasons import Token
from trainmaster.core.base.time import HOUR, MINUTE, Duration, Instant
from trainmaster.core.effects import RebootHost, RunSteps, VerifyHost
from trainmaster.core.events import CatalogueDeclared, DrainRequested, OperationCancelled, ResumeRequested
from trainmaster.core.maintenance.catalogue import Priority
from trainmaster.core.scheduling.request import MaintenanceContract


def test_a_repair_waits_behind_nobody() -> None:
    """1. More hosts failed than the failure buffer holds, and planned work waits for it. 2. A repair is asked for.
    3. It begins at once: it is what gives the buffer back."""
    world = PlannerWorld(hosts=6, maintenance=2, failure=0)
    world.hold = lambda effect: isinstance(effect, RebootHost)
    world.request("reboot", "host/h0")
    world.pass_time(2 * HOUR)
    world.hold = lambda effect: False
    waiting = world.request("nic", "host/h1", priority=Priority.EMERGENCY)
    assert world.operation(waiting).reason.token is Token.FAILURE_BUFFER_SPENT  # type: ignore[union-attr]
    repair = world.request("repair", "host/h0", priority=Priority.BACKGROUND)
    assert world.outcome(repair) == "done"
    assert world.outcome(waiting) == "done"


def test_what_can_never_begin_holds_up_nobody() -> None:
    """1. An operation wants more hosts than the buffer ever holds. 2. It says so. 3. What comes behind it goes on."""
    world = PlannerWorld(hosts=4, maintenance=1)
    wide = world.request("rack-power", "rack/r0")
    assert "it can never begin" in world.operation(wide).reason.sentence  # type: ignore[union-attr]
    assert world.outcome(world.request("nic", "host/h1")) == "done"


def test_a_lost_unit_still_owes_its_verification() -> None:
    """1. A deep check that demands a burn-in hangs, and its host counts as failed. 2. Somebody resumes the host. 3. It
    is verified with the burn-in all the same."""
    world = PlannerWorld()
    world.hold = lambda effect: isinstance(effect, RunSteps)
    world.request("deep-check", "host/h0")
    world.pass_time(HOUR)
    assert world.state("h0") == "out-failed"
    world.hold = lambda effect: isinstance(effect, VerifyHost)
    world.held.clear()
    world.submit(ResumeRequested(at=world.now, hosts=(HostId("h0"),), reason="try", by=Owner("person:ops")))
    (effect,) = world.held
    assert isinstance(effect, VerifyHost)
    assert "burn" in effect.tasks


def test_an_operation_beside_a_verification_does_not_fail_the_host() -> None:
    """1. A host is being verified while steps run that disturb nothing. 2. The verification passes first. 3. The host
    is ready."""
    world = PlannerWorld()
    world.hold = lambda effect: isinstance(effect, RunSteps)
    world.submit(DrainRequested(at=world.now, hosts=(HostId("h0"),), reason="look", by=ME))
    probe = world.request("probe", "host/h0")
    world.submit(ResumeRequested(at=world.now, hosts=(HostId("h0"),), reason="done", by=ME))
    assert (world.outcome(probe), world.state("h0")) == ("running", "ready")


def test_somebody_drains_a_host_that_was_given_notice() -> None:
    """1. A job was told that its host is wanted. 2. Meanwhile a person drains the host, so it is out. 3. Maintenance
    holds it too: the person's resume does not bring it back in the middle of the work."""
    world = JobWorld(hosts=4)
    contract = MaintenanceContract(notice=Duration(HOUR))
    job = world.run(hosts=2, spares=1, contract=contract)
    host = world.attempt(job).members[1]
    world.hold = lambda effect: isinstance(effect, RunSteps)
    name = world.request("nic", f"host/{host}")
    assert world.operation(name).reason.token is Token.NOTICE_GIVEN  # type: ignore[union-attr]
    world.submit(DrainRequested(at=world.now, hosts=(host,), reason="look", by=ME))
    world.submit(ResumeRequested(at=world.now, hosts=(host,), reason="done", by=ME))
    assert (world.outcome(name), world.state(host)) == ("running", "out-planned")


def test_the_earliest_of_two_promises_calls() -> None:
    """1. Two jobs are not to be touched, one for an hour, one for five; work waits for both. 2. After an hour the first
    is done, though the other was asked last."""
    world = JobWorld(hosts=6)
    names = []
    for hours in (1, 5):
        contract = MaintenanceContract(protected_until=Instant(world.now + hours * HOUR))
        job = world.run(hosts=1, spares=1, name=f"job{hours}", contract=contract)
        names.append(world.request("nic", f"host/{world.attempt(job).members[0]}"))
    world.pass_time(HOUR + MINUTE)
    assert [world.outcome(name) for name in names] == ["done", "requested"]


def test_a_unit_of_a_wide_operation_is_given_back_by_itself() -> None:
    """1. A rack was worked on, and one of its two hosts is back while the other is still verified. 2. The one that is
    back is in service and promised to nobody."""
    world = PlannerWorld(hosts=4)
    world.hold = lambda effect: isinstance(effect, VerifyHost) and effect.host == "h1"
    world.request("rack-power", "rack/r0")
    assert (world.state("h0"), world.state("h1")) == ("ready", "verifying")
    ledger = world.engine._derived.planner.ledger
    assert not ledger.is_promised(HostId("h0"))
    assert ledger.is_promised(HostId("h1"))


def test_a_cancelled_operation_does_not_keep_the_lock() -> None:
    """1. A rack is looked at, and its power work waits for that. 2. An urgent update of a host of it waits too, before
    the power work. 3. It is cancelled. 4. Nothing keeps the rack from its power work."""
    world = PlannerWorld(hosts=4)
    world.hold = lambda effect: isinstance(effect, RunSteps)
    world.request("rack-look", "rack/r0")
    power = world.request("rack-power", "rack/r0")
    urgent = world.request("fan", "host/h1", priority=Priority.EMERGENCY)
    assert world.operation(urgent).reason.token is Token.RESOURCE_BUSY  # type: ignore[union-attr]
    world.submit(OperationCancelled(at=world.now, operation=urgent, by=ME, reason="not wanted"))
    world.hold = lambda effect: False
    world.let()
    assert world.outcome(power) == "done"
    assert [world.state(name) for name in world.names] == ["ready"] * 4


def test_a_catalogue_that_lost_a_component_in_use() -> None:
    """1. An update runs. 2. A catalogue without its component is declared. 3. The update ends by the old one."""
    world = PlannerWorld()
    world.hold = lambda effect: isinstance(effect, RunSteps)
    name = world.request("nic", "host/h0")
    catalogue = world.engine.state.maintenance.catalogue
    fewer = catalogue.but(components=tuple(one for one in catalogue.components if one.name != "nic"))
    world.submit(CatalogueDeclared(at=world.now, catalogue=fewer, by=ME))
    world.hold = lambda effect: False
    world.let()
    assert world.outcome(name) == "done"


def test_an_unknown_end_before_a_reboot_is_not_looked_at_too_early() -> None:
    """1. Nobody knows how an update ended that shows only after a boot. 2. It is applied once more (steps are
    idempotent), and looked at after the reboot."""
    world = PlannerWorld()
    answers = iter([("unknown", "the agent does not know")])
    world.answer = lambda effect: next(answers, ("done", ""))
    name = world.request("kernel", "host/h0")
    assert world.outcome(name) == "done"
    assert world.done == [
        "h0:apply:kernel 2", "h0:apply:kernel 2", "h0:reboot", "h0:check:kernel 2", "h0:VerifyHost"
    ]  # fmt: skip


def test_a_reboot_ends_with_its_visit() -> None:
    """1. A repair with a reboot hangs on a host that has failed. 2. Past the deadline nothing is asked of it any more:
    no reboot comes later, when it may be in production."""
    world = PlannerWorld()
    world.hold = lambda effect: isinstance(effect, RebootHost)
    world.request("reboot", "host/h0")
    world.pass_time(2 * HOUR)
    assert world.state("h0") == "out-failed"
    assert world.engine.pending() == ()


def test_a_second_reboot_that_nobody_wants_any_more() -> None:
    """1. A host was booted for an update. 2. While that is looked at, another update that needs a boot joins the visit
    and is applied. 3. It is cancelled before the boot: the host returns without a second one."""
    world = PlannerWorld()
    world.hold = lambda effect: isinstance(effect, RunSteps) and effect.leg == "check"
    first = world.request("bios", "host/h0")
    second = world.request("driver", "host/h0")
    world.hold = lambda effect: isinstance(effect, RunSteps) and effect.operation not in (first, second)
    last = world.request("fan", "host/h0")
    world.let()
    assert (world.outcome(second), world.operation(second).effect) == ("running", None)
    world.submit(OperationCancelled(at=world.now, operation=second, by=ME, reason="not wanted"))
    world.hold = lambda effect: False
    world.let()
    assert [world.outcome(name) for name in (first, second, last)] == ["done", "cancelled", "done"]
    assert world.done.count("h0:reboot") == 1
    assert world.state("h0") == "ready"


def test_who_joins_on_the_way_back_and_is_cancelled() -> None:
    """1. A host proves that it works after an update; another update joins. 2. It is cancelled. 3. The host goes back
    to production, held by nobody."""
    world = PlannerWorld()
    world.hold = lambda effect: isinstance(effect, VerifyHost)
    world.request("nic", "host/h0")
    late = world.request("fan", "host/h0")
    world.submit(OperationCancelled(at=world.now, operation=late, by=ME, reason="not wanted"))
    assert not world.engine.state.hosts[HostId("h0")].holds
    world.let()
    assert world.state("h0") == "ready"
