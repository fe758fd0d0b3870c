"""The planner: one operation after the other, on one unit and on many."""

from tests.unit.core.maintenance.planner_world import ME, PlannerWorld

from trainmaster.core.base.ids import ComponentName, HostId
from trainmaster.core.base.reasons import Token
from trainmaster.core.base.time import HOUR, MINUTE
from trainmaster.core.effects import RebootHost, RunSteps, VerifyHost
from trainmaster.core.events import EffectEnded, OperationCancelled, ResumeRequested


def test_disturbs_nothing() -> None:
    """1. An update that disturbs nothing is asked for. 2. It is done at once, and the host stays in production."""
    world = PlannerWorld()
    name = world.request("exporter", "host/h0")
    assert world.outcome(name) == "done"
    assert world.done == ["h0:apply:exporter 2"]
    assert world.state("h0") == "ready"
    assert world.engine.state.hosts[HostId("h0")].versions == {"exporter": "2"}


def test_a_drain_and_a_return() -> None:
    """1. An update that needs the host idle. 2. It leaves production, is updated, verified, and comes back."""
    world = PlannerWorld()
    name = world.request("nic", "host/h0")
    assert world.outcome(name) == "done"
    assert world.done == ["h0:apply:nic 2", "h0:VerifyHost"]
    assert world.state("h0") == "ready"
    assert not world.engine.state.hosts[HostId("h0")].holds
    assert world.engine.state.maintenance.visits == {}


def test_five_updates_one_drain_one_reboot_with_a_failing_third() -> None:
    """1. Five updates are pending on a host that is about to leave. 2. They are applied in the order of the catalogue.
    3. The third fails and is undone; the others go on. 4. One reboot, one verification, and never in production."""
    world = PlannerWorld()
    world.hold = lambda effect: True
    first = world.request("kernel", "host/h0")
    assert world.state("h0") == "out-planned"
    names = [first] + [world.request(what, "host/h0") for what in ("nic", "driver", "fan", "bios")]
    world.answer = lambda effect: ("failed", "no") if effect.operation == names[1] else ("done", "")
    world.hold = lambda effect: False
    world.let()
    assert world.done == [
        "h0:apply:kernel 2",
        "h0:apply:bios 2",
        "h0:apply:driver 2",
        "h0:apply:nic 2",
        "h0:apply:fan 2",
        "h0:reboot",
        "h0:check:kernel 2",
        "h0:check:bios 2",
        "h0:check:driver 2",
        "h0:VerifyHost",
    ]
    assert [world.outcome(name) for name in names] == ["done", "failed", "done", "done", "done"]
    assert world.ended(names[1]).reason.token is Token.STEPS_FAILED  # type: ignore[union-attr]
    story = [chapter.end for chapter in world.engine.state.hosts[HostId("h0")].story]
    assert story[-4:] == ["draining", "out-planned", "verifying", "ready"]


def test_what_comes_after_a_failed_one_is_not_tried() -> None:
    """1. The driver comes after the BIOS, and both are pending. 2. The BIOS fails. 3. The driver is not tried."""
    world = PlannerWorld()
    world.hold = lambda effect: True
    world.request("nic", "host/h0")
    bios, driver = world.request("bios", "host/h0"), world.request("driver", "host/h0")
    world.answer = lambda effect: ("failed", "bad image") if effect.operation == bios else ("done", "")
    world.hold = lambda effect: False
    world.let()
    assert (world.outcome(bios), world.outcome(driver)) == ("failed", "failed")
    assert world.ended(driver).reason.token is Token.PREDECESSOR_FAILED  # type: ignore[union-attr]
    assert world.state("h0") == "ready"


def test_a_failed_check_is_undone() -> None:
    """1. After the reboot the wanted version is not there. 2. The update is undone and counts as failed."""
    world = PlannerWorld()
    world.answer = lambda effect: ("failed", "observed 1, wanted 2") if effect.leg == "check" else ("done", "")
    name = world.request("kernel", "host/h0")
    assert world.done == ["h0:apply:kernel 2", "h0:reboot", "h0:check:kernel 2", "h0:undo:kernel 2", "h0:VerifyHost"]
    assert world.outcome(name) == "failed"
    assert "and was undone" in world.ended(name).reason.sentence  # type: ignore[union-attr]


def test_the_buffer_admits_as_many_as_it_holds() -> None:
    """1. Three hosts are to leave, the buffer holds two. 2. The third waits, with the numbers. 3. It goes when one is
    back."""
    world = PlannerWorld(hosts=6, maintenance=2)
    world.hold = lambda effect: isinstance(effect, RunSteps)
    names = [world.request("nic", f"host/h{number}") for number in range(4)]
    assert [world.outcome(name) for name in names] == ["running", "running", "requested", "requested"]
    reason = world.operation(names[2]).reason
    assert reason is not None
    assert (reason.token, reason.numbers["out_planned"]) == (Token.MAINTENANCE_BUFFER_SPENT, 2)
    behind = world.operation(names[3]).reason
    assert behind is not None
    assert behind.token in (Token.MAINTENANCE_BUFFER_SPENT, Token.IN_LINE)
    world.let()
    assert [world.outcome(name) for name in names] == ["done", "done", "running", "running"]


def test_a_wide_operation_takes_all_of_its_units_and_meets_others() -> None:
    """1. A host of the rack is being updated. 2. The power of the rack is to be worked on: both hosts leave. 3. It
    waits for the host's update, and the host is handed over without going back. 4. Both return verified."""
    world = PlannerWorld()
    world.hold = lambda effect: isinstance(effect, RunSteps)
    update = world.request("nic", "host/h0")
    power = world.request("rack-power", "rack/r0")
    assert (world.state("h0"), world.state("h1")) == ("out-planned", "out-planned")
    assert world.outcome(update) == "running"
    assert world.operation(power).reason.token is Token.RESOURCE_BUSY  # type: ignore[union-attr]
    assert world.done == []
    world.let()
    assert (world.outcome(update), world.outcome(power)) == ("verifying", "running")
    world.hold = lambda effect: False
    world.let()
    assert (world.outcome(update), world.outcome(power)) == ("done", "done")
    assert world.done == ["h0:apply:nic 2", "h0:apply:rack-power", "h0:VerifyHost", "h1:VerifyHost"]
    story = [chapter.end for chapter in world.engine.state.hosts[HostId("h0")].story]
    assert story[-4:] == ["draining", "out-planned", "verifying", "ready"]


def test_joining_while_the_unit_returns() -> None:
    """1. A host is being verified after its update. 2. Another update comes. 3. The host goes on to it without having
    been in production."""
    world = PlannerWorld()
    world.hold = lambda effect: isinstance(effect, VerifyHost)
    first = world.request("nic", "host/h0")
    assert world.state("h0") == "verifying"
    second = world.request("fan", "host/h0")
    world.let()
    assert world.outcome(first) == "done"
    assert world.done[-1] == "h0:apply:fan 2"
    assert world.state("h0") == "verifying"
    world.let()
    assert world.outcome(second) == "done"
    story = [chapter.end for chapter in world.engine.state.hosts[HostId("h0")].story]
    assert story[-6:] == ["draining", "out-planned", "verifying", "out-planned", "verifying", "ready"]


def test_the_demanded_verification_is_run() -> None:
    """1. A deep check demands a burn-in. 2. The host is verified with it before it is ready."""
    world = PlannerWorld()
    world.hold = lambda effect: isinstance(effect, VerifyHost)
    world.request("deep-check", "host/h0")
    (effect,) = world.held
    assert isinstance(effect, VerifyHost)
    assert "burn" in effect.tasks
    world.let()
    assert world.state("h0") == "ready"


def test_a_reboot_that_never_returns_is_a_failure_of_the_host() -> None:
    """1. A host does not come back from its reboot. 2. Past the deadline it counts as failed, the operation too, and
    its place in the maintenance buffer is free. 3. A repair brings it back."""
    world = PlannerWorld(hosts=4, maintenance=1)
    world.hold = lambda effect: isinstance(effect, RebootHost)
    name = world.request("kernel", "host/h0")
    waiting = world.request("nic", "host/h1")
    assert world.outcome(waiting) == "requested"
    world.pass_time(2 * HOUR)
    assert world.outcome(name) == "failed"
    assert world.ended(name).reason.token is Token.UNIT_LOST  # type: ignore[union-attr]
    assert world.state("h0") == "out-failed"
    assert world.outcome(waiting) == "done"
    repair = world.request("repair", "host/h0")
    assert world.outcome(repair) == "done"
    assert world.state("h0") == "ready"


def test_steps_that_never_end() -> None:
    """1. The steps of an update are never answered. 2. Past their deadline the operation has failed and the host
    too."""
    world = PlannerWorld()
    world.hold = lambda effect: isinstance(effect, RunSteps)
    name = world.request("nic", "host/h0")
    quiet = world.request("exporter", "host/h1")
    world.pass_time(30 * MINUTE)
    assert (world.outcome(name), world.state("h0")) == ("failed", "out-failed")
    assert (world.outcome(quiet), world.state("h1")) == ("failed", "ready")
    assert world.ended(quiet).reason.token is Token.DEADLINE_PASSED  # type: ignore[union-attr]


def test_a_cancelled_operation_is_cancelled_everywhere() -> None:
    """1. An update with a reboot waits for its host's lock, another is running. 2. It is cancelled. 3. Nothing of it is
    carried out, no reboot comes, and the host returns."""
    world = PlannerWorld()
    world.hold = lambda effect: isinstance(effect, RunSteps)
    first, second = world.request("nic", "host/h0"), world.request("kernel", "host/h0")
    world.submit(OperationCancelled(at=world.now, operation=second, by=ME, reason="not needed"))
    assert world.outcome(second) == "cancelled"
    world.hold = lambda effect: False
    world.let()
    assert world.outcome(first) == "done"
    assert world.done == ["h0:apply:nic 2", "h0:VerifyHost"]
    assert world.state("h0") == "ready"


def test_cancelled_while_it_runs() -> None:
    """1. It is cancelled in the middle of its steps. 2. They end, are undone, and it counts as cancelled."""
    world = PlannerWorld()
    world.hold = lambda effect: isinstance(effect, RunSteps)
    name = world.request("kernel", "host/h0")
    world.submit(OperationCancelled(at=world.now, operation=name, by=ME, reason="wrong version"))
    assert world.outcome(name) == "running"
    world.hold = lambda effect: False
    world.let()
    assert world.outcome(name) == "cancelled"
    assert world.done == ["h0:apply:kernel 2", "h0:undo:kernel 2", "h0:VerifyHost"]


def test_dependencies_and_a_failed_predecessor() -> None:
    """1. One operation waits for another on another host. 2. It starts when that is done; if that failed, never."""
    world = PlannerWorld()
    world.hold = lambda effect: isinstance(effect, RunSteps)
    first = world.request("exporter", "host/h0")
    second = world.request("exporter", "host/h1", after=(first,))
    assert world.operation(second).reason.token is Token.WAITS_FOR_OPERATION  # type: ignore[union-attr]
    world.let()
    assert (world.outcome(first), world.outcome(second)) == ("done", "running")
    third = world.request("exporter", "host/h2", after=(second,))
    (effect,) = world.held
    world.held.clear()
    world.carry_out(effect, "failed", "no space")
    assert (world.outcome(second), world.outcome(third)) == ("failed", "cancelled")


def test_an_unknown_outcome_is_settled_by_looking() -> None:
    """1. Nobody knows whether the update was installed. 2. The version is looked at; it is there: done, not twice."""
    world = PlannerWorld()
    answers = iter([("unknown", "the agent does not know"), ("done", "")])
    world.answer = lambda effect: next(answers)
    name = world.request("exporter", "host/h0")
    assert world.outcome(name) == "done"
    assert world.done == ["h0:apply:exporter 2", "h0:check:exporter 2"]


def test_an_operation_on_a_failed_unit_waits_for_its_repair() -> None:
    """1. A host has failed. 2. An update for it waits and says so. 3. When it is back, it goes on."""
    world = PlannerWorld()
    world.hold = lambda effect: isinstance(effect, RebootHost)
    world.request("reboot", "host/h0")
    world.pass_time(2 * HOUR)
    world.hold = lambda effect: False
    name = world.request("exporter", "host/h0")
    assert world.operation(name).reason.token is Token.UNIT_FAILED  # type: ignore[union-attr]
    world.request("repair", "host/h0")
    assert world.outcome(name) == "done"


def test_not_before() -> None:
    """1. An operation asks for a later time. 2. It waits until then."""
    world = PlannerWorld()
    name = world.request("exporter", "host/h0", not_before=world.now + HOUR)
    assert world.operation(name).reason.token is Token.NOT_BEFORE  # type: ignore[union-attr]
    world.pass_time(2 * HOUR)
    assert world.outcome(name) == "done"


def test_the_version_after_an_undo_is_looked_at() -> None:
    """1. A host has version 1 of the fan. 2. The update to 2 is cancelled while it runs, and undone. 3. What is
    recorded is what was seen after the undo, so that the next undo goes back to the right one."""
    world = PlannerWorld()
    world.request("kernel", "host/h0", version="1")
    world.hold = lambda effect: isinstance(effect, RunSteps) and effect.leg == "apply"
    name = world.request("kernel", "host/h0", version="2")
    world.submit(OperationCancelled(at=world.now, operation=name, by=ME, reason="no"))
    (apply,) = world.held
    world.held.clear()
    world.hold = lambda effect: isinstance(effect, RunSteps)
    world.carry_out(apply)
    (undo,) = world.held
    assert isinstance(undo, RunSteps)
    assert (undo.leg, undo.observe is not None) == ("undo", True)
    numbers: dict[str, int | float | str] = {"component": "kernel", "version": "1"}
    world.held.clear()
    world.submit(EffectEnded(at=world.now, host=undo.host, effect=undo.id, outcome="done", numbers=numbers))
    assert world.outcome(name) == "cancelled"
    assert world.engine.state.hosts[HostId("h0")].versions == {"kernel": "1"}


def test_what_is_seen_late_is_noted() -> None:
    """1. Steps pass their deadline without an answer: failed. 2. The answer comes after all. 3. The version that it
    saw is recorded: the host has it, whoever waited."""
    world = PlannerWorld()
    world.hold = lambda effect: isinstance(effect, RunSteps)
    world.request("nic", "host/h0")
    world.pass_time(30 * MINUTE)
    (late,) = world.held
    numbers: dict[str, int | float | str] = {"component": "nic", "version": "2"}
    world.submit(EffectEnded(at=world.now, host=HostId("h0"), effect=late.id, outcome="done", numbers=numbers))
    assert world.engine.state.hosts[HostId("h0")].versions == {"nic": "2"}


def undo_fails(effect: RunSteps) -> tuple[str, str]:
    return ("failed", "exit 3") if effect.leg in ("check", "undo") else ("done", "")


def test_a_failed_undo_holds_the_unit() -> None:
    """1. An update fails its check after the reboot, and its undo fails as well. 2. The operation says both, with a
    token of its own. 3. The unit passes its verification and is held all the same: nobody knows what is on it. 4. A
    person lifts the hold; it returns through another verification."""
    world = PlannerWorld()
    world.answer = undo_fails
    name = world.request("kernel", "host/h0")
    reason = world.ended(name).reason
    assert reason is not None
    assert (world.outcome(name), reason.token) == ("failed", Token.UNDO_FAILED)
    assert reason.sentence.endswith("; and could not be undone: exit 3")
    assert reason.numbers["units"] == 1
    host = world.engine.state.hosts[HostId("h0")]
    assert ([str(hold.owner) for hold in host.holds], world.state("h0")) == ([f"policy:undo/{name}"], "out-planned")
    assert HostId("h0") not in world.engine.state.maintenance.visits
    world.submit(ResumeRequested(at=world.now, hosts=(HostId("h0"),), reason="looked at", by=host.holds[0].owner))
    assert world.state("h0") == "ready"


def test_an_undo_that_never_ends_loses_the_unit() -> None:
    """1. The undo of an update hangs. 2. Past its deadline the operation has failed and the unit is lost."""
    world = PlannerWorld()
    world.answer = undo_fails
    world.hold = lambda effect: isinstance(effect, RunSteps) and effect.leg == "undo"
    name = world.request("kernel", "host/h0")
    world.pass_time(HOUR)
    assert (world.outcome(name), world.state("h0")) == ("failed", "out-failed")


def test_an_undo_where_nothing_was_before() -> None:
    """1. A host was never seen with the component; an update shows its version, and is then taken back. 2. The undo
    goes back to none. 3. The host has no version of it, and the operation says so."""
    world = PlannerWorld()
    world.hold = lambda effect: isinstance(effect, RunSteps)
    name = world.request("kernel", "host/h0")
    world.engine.state.hosts[HostId("h0")].versions = {ComponentName("kernel"): "2", ComponentName("nic"): "1"}
    world.submit(OperationCancelled(at=world.now, operation=name, by=ME, reason="no"))
    world.hold = lambda effect: False
    world.let()
    assert world.engine.state.hosts[HostId("h0")].versions == {"nic": "1"}
    reason = world.ended(name).reason
    assert reason is not None
    assert reason.sentence.endswith("and was undone: no version was known before, so none is there now")
    assert world.ended(name).observed == ""


def test_the_story_of_an_operation_is_kept_to_its_end() -> None:
    """Whoever looks later sees the way that it went, draining and verification as well."""
    world = PlannerWorld()
    ended = world.ended(world.request("kernel", "host/h0"))
    assert [chapter.end for chapter in ended.story] == ["admitted", "draining", "running", "verifying", "done"]
