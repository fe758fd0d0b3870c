"""What a host needs and can wait: done when it is idle, or comes along."""

from tests.unit.core.health.health_world import GPU, HealthWorld, finding

from trainmaster.core.base.ids import HostId, Owner
from trainmaster.core.base.time import HOUR, MINUTE
from trainmaster.core.effects import RunSteps
from trainmaster.core.events import DrainRequested, ResumeRequested
from trainmaster.core.health.book import CaseState
from trainmaster.core.health.words import Remedy, Verdict

LATER = finding(Remedy.RESET_GPU_LATER, GPU, "remap-pending", Verdict.WATCH)
SUSPECT = finding(Remedy.DIAGNOSE, GPU, "slow", Verdict.WATCH)


def test_an_idle_host_is_reset_at_once() -> None:
    """1. A GPU asks for a reset later; the host is idle. 2. It is reset as planned work, and no case is opened."""
    world = HealthWorld()
    world.report("h3", LATER)
    assert world.done == ["h3:apply:gpu-reset", "h3:VerifyHost"]
    assert world.state("h3") == "ready"
    assert world.engine.state.health.opened == 0
    assert HostId("h3") not in world.engine.state.health.standings


def test_nothing_is_done_in_a_pool_that_is_observed() -> None:
    """1. Observed: nothing. 2. Promoted: it is done."""
    world = HealthWorld(act=False)
    world.report("h3", LATER)
    assert world.done == []
    world.set_mode("act")
    assert world.done == ["h3:apply:gpu-reset", "h3:VerifyHost"]


def test_it_comes_along_with_planned_work() -> None:
    """1. The one host that may be out by plan is out. 2. Another asks for a reset later, and has to wait. 3. Planned
    work takes that host: the reset comes along in the same visit."""
    world = HealthWorld()
    kim, names = Owner("person:kim"), (HostId("h0"),)
    world.submit(DrainRequested(at=world.now, hosts=names, reason="look", by=kim))
    world.report("h3", LATER)
    world.pass_time(25 * MINUTE)
    assert world.done == []
    world.request("fan", "host/h3")
    world.hold = lambda effect: isinstance(effect, RunSteps)
    world.submit(ResumeRequested(at=world.now, hosts=names, reason="done", by=kim))
    world.hold = lambda effect: False
    world.let()
    assert [each for each in world.done if each.startswith("h3:")] == [
        "h3:apply:fan 2",
        "h3:apply:gpu-reset",
        "h3:VerifyHost",
    ]


def test_a_host_that_a_person_holds_is_let_alone() -> None:
    world = HealthWorld()
    world.submit(DrainRequested(at=world.now, hosts=(HostId("h3"),), reason="look", by=Owner("person:kim")))
    world.report("h3", LATER)
    world.pass_time(HOUR)
    assert world.done == []


def test_what_does_not_help_is_not_repeated_for_ever() -> None:
    """1. A state asks for a reset later, whatever is done. 2. Two tries; then it is left to people."""
    world = HealthWorld()
    world.report("h3", LATER, probe="nvml")
    world.pass_time(24 * HOUR)
    assert world.done.count("h3:apply:gpu-reset") == 2
    assert HostId("h3") in world.engine.state.health.standings


def test_a_suspect_is_looked_into_and_cleared() -> None:
    """1. A GPU is suspected. 2. The deep check finds nothing. 3. The suspicion is over."""
    world = HealthWorld()
    world.report("h3", SUSPECT)
    assert world.done == ["h3:apply:deep-check", "h3:VerifyHost"]
    assert HostId("h3") not in world.engine.state.health.standings


def test_a_suspect_that_fails_is_bad() -> None:
    """1. A GPU is suspected. 2. The deep check fails. 3. Now it is a case, and a person has to look."""
    world = HealthWorld()
    world.answer = lambda effect: ("failed", "wrong bits")
    world.report("h3", SUSPECT)
    case = world.case("h3")
    assert case is not None
    assert case.state is CaseState.HELD
    assert "wrong bits" in case.reason.sentence
    assert world.state("h3") == "out-planned"
