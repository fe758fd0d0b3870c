"""Parts that people send back: the host is held until that is over, and comes back through verification."""

import pytest
from tests.unit.core.health.health_world import GPU, HealthWorld, finding
from tests.unit.core.maintenance.planner_world import ME

from trainmaster.core.base.ids import HostId, RmaId
from trainmaster.core.base.reasons import Token
from trainmaster.core.effects import RunSteps
from trainmaster.core.events import DrainRequested, HealthReleased, RmaClosed, RmaOpened
from trainmaster.core.fleet.lifecycle import HostState
from trainmaster.core.health import asked, judged
from trainmaster.core.health.book import CaseState
from trainmaster.core.health.conduct import HEALTH
from trainmaster.core.health.events import RmaOutcome
from trainmaster.core.health.words import Remedy

H1 = HostId("h1")
OTHER = "gpu 0000:2b:00"


def send(world: HealthWorld, unit: str = GPU, host: HostId = H1) -> RmaId:
    world.submit(RmaOpened(at=world.now, host=host, unit=unit, by=ME, reason="fails in every slot"))
    return list(world.engine.state.health.rmas)[-1]


def close(world: HealthWorld, name: RmaId, outcome: RmaOutcome = "replaced") -> None:
    world.submit(RmaClosed(at=world.now, rma=name, outcome=outcome, by=ME, reason="the vendor says so"))


def state(world: HealthWorld, host: HostId = H1) -> HostState:
    return world.engine.state.hosts[host].state


@pytest.mark.parametrize("act", [True, False])
@pytest.mark.parametrize("outcome", ["replaced", "repaired", "no-fault-found", "withdrawn"])
def test_a_host_is_held_as_long_as_its_part_is_away(act: bool, outcome: RmaOutcome) -> None:
    """1. Nothing stands against a host, and a person sends a part of it back: it is out, held by health, and its case
    and its verdict say so, also in a pool that is only observed. 2. The return is closed, whatever came of it: the host
    is let go and proves all that health demands."""
    world = HealthWorld(act=act)
    name = send(world)
    assert (state(world), world.holders("h1")) == (HostState.OUT_PLANNED, [HEALTH])
    case = world.case("h1")
    assert case is not None
    assert (case.state, case.remedy, case.rma, case.reason.token) == (
        CaseState.HELD, Remedy.RMA, name, Token.WANTS_RMA,
    )  # fmt: skip
    found = judged.judge(world.engine.state.health, world.engine.state.hosts[H1])
    assert found.answer.remedy is Remedy.RMA
    assert name in found.sentence
    assert "h1 returns through verification" in asked.close_text(world.engine.state, name, outcome)
    close(world, name, outcome)
    assert (state(world), world.holders("h1"), world.case("h1")) == (HostState.READY, [], None)
    assert world.last().closed_how == "released"
    assert H1 not in world.engine.state.health.standings


def test_a_host_whose_verification_fails_does_not_come_back() -> None:
    """1. A part was replaced, and the host fails what health demands of it. 2. It is out, with a new case."""
    world = HealthWorld(act=False)
    name = send(world)
    world.fails.add("deep")
    close(world, name)
    assert state(world) is HostState.OUT_FAILED
    case = world.case("h1")
    assert case is not None
    assert case.rule == "verification"


def test_other_returns_and_other_faults_keep_the_host() -> None:
    """1. Two parts go back: the host stays until both are over. 2. Something else is bad: a person has to look, and a
    release lets it go."""
    world = HealthWorld(act=False)
    first, second = send(world), send(world, OTHER)
    assert f"stays held for {second}" in asked.close_text(world.engine.state, first, "replaced")
    close(world, first)
    case = world.case("h1")
    assert case is not None
    assert (case.state, case.rma, world.holders("h1")) == (CaseState.HELD, second, [HEALTH])
    world.report("h1", finding(Remedy.TRIAGE, unit="nic 0"), probe="nvml")
    assert "stays held: nic 0 is bad" in asked.close_text(world.engine.state, second, "replaced")
    close(world, second)
    assert (case.state, case.reason.token, case.unit) == (CaseState.HELD, Token.WANTS_TRIAGE, "nic 0")
    assert world.holders("h1") == [HEALTH]
    world.submit(HealthReleased(at=world.now, hosts=(H1,), by=ME, reason="cable"))
    assert (state(world), world.case("h1")) == (HostState.READY, None)


def test_holds_of_others_stay() -> None:
    """1. A person holds the host, too. 2. The return is closed: the hold of health goes, and the other one stays."""
    world = HealthWorld()
    world.submit(DrainRequested(at=world.now, hosts=(H1,), reason="power", by=ME))
    name = send(world)
    assert sorted(world.holders("h1")) == sorted([HEALTH, ME])
    assert f"held by {ME}" in asked.close_text(world.engine.state, name, "withdrawn")
    close(world, name, "withdrawn")
    assert (state(world), world.holders("h1"), world.case("h1")) == (HostState.OUT_PLANNED, [ME], None)


def test_a_remedy_that_runs_is_taken_back() -> None:
    """1. A reset is asked for. 2. A person sends the part back: the operation is withdrawn and the host stays held."""
    world = HealthWorld()
    world.hold = lambda effect: isinstance(effect, RunSteps)
    world.report("h1", finding())
    case = world.case("h1")
    assert case is not None
    assert case.operation is not None
    name = send(world)
    assert (case.state, case.operation, case.rma, case.tries[-1].outcome) == (CaseState.HELD, None, name, "cancelled")
    assert HEALTH in world.holders("h1")
    world.let()
    assert (case.state, HEALTH in world.holders("h1")) == (CaseState.HELD, True)
    close(world, name)
    assert (state(world), world.case("h1")) == (HostState.READY, None)


def test_a_release_says_that_the_return_stays_open() -> None:
    """1. A host with an open return is released: the plan says that the return stays open. 2. The host is back.
    3. Closing the return later changes nothing of the host."""
    world = HealthWorld()
    name = send(world)
    [item] = asked.plan_release(world.engine.state, [H1])
    assert (item.changed, item.refused) == (True, False)
    assert f"{name} ({GPU}) stays open" in item.sentence
    world.submit(HealthReleased(at=world.now, hosts=(H1,), by=ME, reason="a spare part is in"))
    assert (state(world), world.case("h1")) == (HostState.READY, None)
    assert world.engine.state.health.rmas[name].closed_at is None
    assert "is not held for it" in asked.close_text(world.engine.state, name, "replaced")
    close(world, name)
    assert state(world) is HostState.READY


def test_what_opening_means_is_said_before() -> None:
    """1. The plan names what is unknown of the host, that it is held, and how long. 2. A second part: it stays held."""
    world = HealthWorld()
    text = asked.open_text(world.engine.state, H1, GPU)
    assert f"its parts are not known, so nobody can tell whether it has a {GPU}" in text
    assert f"h1 is taken out (is ready; no job runs on it) and held by {HEALTH} until that is closed" in text
    send(world)
    assert f"h1 stays held by {HEALTH} until that is closed" in asked.open_text(world.engine.state, H1, OTHER)
