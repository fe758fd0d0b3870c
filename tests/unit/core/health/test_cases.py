"""What becomes of a bad verdict: the life of a case, by what it meets."""

from tests.unit.core.health.health_world import HealthWorld, finding

from trainmaster.core.effects import RunSteps
from trainmaster.core.health.book import CaseState


def test_a_bad_gpu_is_drained_reset_verified_and_returned() -> None:
    """1. The kernel log of a host says that a GPU is lost. 2. The host is held, reset and verified. 3. It returns, with
    the tasks that health demands, and the case is closed as fixed."""
    world = HealthWorld()
    world.report("h3", finding())
    assert world.done == ["h3:apply:gpu-reset", "h3:VerifyHost", "h3:VerifyHost"]
    assert world.state("h3") == "ready"
    case = world.last()
    assert case.closed_how == "fixed"
    assert [attempt.outcome for attempt in case.tries] == ["done"]
    assert world.holders("h3") == []
    assert not world.engine.state.health.standings


def test_observed_hosts_stay_in_service() -> None:
    """1. The pool is only observed. 2. A host is bad. 3. The advice says what would be done; nothing is done."""
    world = HealthWorld(act=False)
    world.report("h3", finding())
    case = world.case("h3")
    assert case is not None
    assert case.state is CaseState.OBSERVED
    assert "would drain h3 and run gpu-reset (reset-gpu, try 1 of 1)" in case.reason.sentence
    assert "7 of 8 hosts of all would be in service" in case.reason.sentence
    assert world.done == []


def test_a_promotion_acts_on_what_stands_now() -> None:
    world = HealthWorld(act=False)
    world.report("h3", finding(), probe="nvml")
    world.report("h4", finding(), probe="nvml")
    world.gone("h4", finding())
    world.hold = lambda effect: isinstance(effect, RunSteps)
    world.set_mode("act")
    assert world.case("h4") is None
    case = world.case("h3")
    assert case is not None
    assert case.state is CaseState.REMEDY
    assert world.holders("h3")[0] == "policy:health"
