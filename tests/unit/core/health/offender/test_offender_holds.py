"""What history holds, and what people hold, told through the engine with a pool that acts by itself.

A hold of a person is lifted by that person: no check, no bulk resume of somebody else, no repair and no boot takes it
off. What health holds for the sake of a history is lifted when somebody says that the host is repaired.
"""

import pytest
from tests.unit.core.health.health_world import GPU, HealthWorld, finding
from tests.unit.core.maintenance.planner_world import ME

from trainmaster.core.base.ids import HostId, Owner, SessionId
from trainmaster.core.base.time import DAY, MINUTE
from trainmaster.core.events import AgentDisconnected, DrainRequested, HealthReleased, ResumeRequested
from trainmaster.core.health.book import CaseState
from trainmaster.core.health.conduct import OffenderLimits
from trainmaster.core.health.offender.acts import PROBE
from trainmaster.core.health.offender.notes import of_host
from trainmaster.core.health.words import Remedy

KIM, LEE = Owner("person:kim"), Owner("person:lee")
H3 = HostId("h3")


def drain(world: HealthWorld, *names: str, by: Owner = KIM) -> None:
    hosts = tuple(map(HostId, names))
    world.submit(DrainRequested(at=world.now, hosts=hosts, reason="ADMIN SHUTDOWN", by=by))


def resume(world: HealthWorld, *names: str, by: Owner) -> None:
    world.submit(ResumeRequested(at=world.now, hosts=tuple(map(HostId, names)), reason="bulk", by=by))


def release(world: HealthWorld, *names: str) -> None:
    world.submit(HealthReleased(at=world.now, hosts=tuple(map(HostId, names)), by=ME, reason="board exchanged"))


def lose(world: HealthWorld, name: str) -> None:
    """The host dies, and comes back with another boot."""
    boot = world.boots[HostId(name)]
    world.submit(AgentDisconnected(at=world.now, host=HostId(name), session=SessionId(f"s{boot}")))
    world.pass_time(MINUTE)
    world.boots[HostId(name)] = boot + 1
    world.register(HostId(name))


def kim_only(world: HealthWorld) -> bool:
    return world.holders("h3") == [KIM] and world.state("h3") == "out-planned"


def test_a_check_neither_replaces_nor_lifts_a_person_s_hold() -> None:
    """1. Kim holds a host. 2. A check finds it bad, later it finds it well: health has waited, nothing was done, and
    Kim's hold is as before. 3. Kim lifts it, and nothing else holds it."""
    world = HealthWorld()
    drain(world, "h3")
    world.report("h3", finding(), probe="nvml")
    hold = world.engine.state.hosts[H3].hold_of(KIM)
    assert hold is not None
    assert hold.reason == "ADMIN SHUTDOWN"
    world.gone("h3", finding())
    assert world.engine.state.hosts[H3].hold_of(KIM) == hold
    assert world.state("h3") == "out-planned"
    assert world.done == []
    resume(world, "h3", by=KIM)
    assert world.state("h3") == "ready"
    assert world.holders("h3") == []


@pytest.mark.parametrize("by", [LEE, Owner("policy:nightly")])
def test_a_bulk_resume_of_somebody_else_skips_it(by: Owner) -> None:
    """1. Kim holds h3. 2. Somebody resumes all hosts, twice. 3. h3 stays."""
    world = HealthWorld()
    drain(world, "h3")
    for _ in range(2):
        resume(world, *(f"h{number}" for number in range(8)), by=by)
        assert kim_only(world)


@pytest.mark.parametrize("kind", ["repair", "gpu-reset", "reboot", "deep-check"])
def test_no_work_lifts_it(kind: str) -> None:
    """1. Kim holds h3. 2. Work of the planner is done on it, verification included. 3. The hold stays."""
    world = HealthWorld()
    drain(world, "h3")
    name = world.request(kind, "host/h3")
    assert world.outcome(name) == "done"
    assert KIM in world.holders("h3")
    assert world.state("h3") == "out-planned"


def test_a_boot_does_not_lift_it() -> None:
    world = HealthWorld()
    drain(world, "h3")
    lose(world, "h3")
    assert KIM in world.holders("h3")
    assert world.state("h3") != "ready"


def test_a_person_who_comes_in_between_keeps_the_host() -> None:
    """1. Health has taken a host and its remedy runs. 2. Kim holds it as well. 3. The remedy helps, the case is closed,
    health lets go, and the host stays Kim's."""
    world = HealthWorld()
    world.hold = lambda effect: True
    world.report("h3", finding())
    drain(world, "h3")
    world.hold = lambda effect: False
    world.let()
    assert world.case("h3") is None
    assert kim_only(world)


def offender(world: HealthWorld) -> None:
    """The same slot fails for the third time within a month."""
    for _ in range(3):
        world.report("h3", finding(), probe="nvml")
        world.gone("h3", finding())
        world.pass_time(8 * DAY)


def test_the_third_fault_of_a_slot_is_for_a_person() -> None:
    """1. Two faults are answered with a reset. 2. The third one is not: the slot's history asks for a person. 3. The
    case says why, with numbers."""
    world = HealthWorld()
    offender(world)
    case = world.case("h3")
    assert case is not None
    assert (case.state, case.remedy) == (CaseState.HELD, Remedy.TRIAGE)
    assert f"3rd case of {GPU} of h3 in 28 d" in case.reason.sentence
    assert "look at the baseboard or riser of the slot" in case.reason.sentence
    assert world.done.count("h3:apply:gpu-reset") == 2
    assert [each.kind for each in of_host(world.engine.state.health.history, H3).incidents].count("ticket") == 1


@pytest.mark.parametrize("attempt", ["resume", "boot", "repair", "well"])
def test_nothing_but_a_release_returns_an_offender(attempt: str) -> None:
    """1. A host is held for its history. 2. Somebody resumes all hosts; it boots; it is repaired by an operation; all
    probes say that it is well. It stays held. 3. Somebody says that it is repaired: it returns through verification."""
    world = HealthWorld()
    offender(world)
    if attempt == "resume":
        resume(world, *(f"h{number}" for number in range(8)), by=LEE)
    elif attempt == "boot":
        lose(world, "h3")
    elif attempt == "repair":
        world.request("repair", "host/h3")
    else:
        world.report("h3", probe="nvml")
        world.pass_time(2 * DAY)
    assert world.holders("h3")[0] == "policy:health"
    assert world.state("h3") != "ready"
    world.done.clear()
    release(world, "h3")
    assert "h3:VerifyHost" in world.done
    assert world.state("h3") == "ready"
    assert world.holders("h3") == []


def lemon(act: bool) -> HealthWorld:
    """h3 has served for weeks, and was lost four times in the last ones; the survey is sensitive here."""
    world = HealthWorld(act=act)
    world.declare(limits=OffenderLimits(lemon_score=0.3))
    world.pass_time(40 * DAY)
    for _ in range(4):
        lose(world, "h3")
        world.pass_time(DAY // 2)
    world.pass_time(DAY)
    return world


def test_a_lemon_is_taken_out_and_not_again_after_its_repair() -> None:
    """1. The daily survey finds it: it is held for a person. 2. It is released as repaired, and serves: what was before
    makes it no lemon the next day. 3. It is lost again and again: it is taken again."""
    world = lemon(act=True)
    case = world.case("h3")
    assert case is not None
    assert (case.state, case.rule) == (CaseState.HELD, "lemon")
    assert "out_count 4" in case.findings[0].summary
    assert world.state("h3") == "out-planned"
    world.declare(limits=OffenderLimits(lemon_score=0.5))
    release(world, "h3")
    world.pass_time(3 * DAY)
    assert world.state("h3") == "ready"
    assert world.case("h3") is None
    world.declare(limits=OffenderLimits(lemon_score=0.3))
    world.pass_time(DAY)
    again = world.case("h3")
    assert again is not None
    assert again.id != case.id


def test_an_observed_lemon_is_only_told_of() -> None:
    """1. The pool is observed: the host stays in service, the case says what would be done. 2. Four weeks later it is
    forgotten: the case is closed by itself."""
    world = lemon(act=False)
    case = world.case("h3")
    assert case is not None
    assert case.state is CaseState.OBSERVED
    assert world.state("h3") == "ready"
    (standing,) = world.engine.state.health.standings[H3]
    assert standing.probe == PROBE
    world.pass_time(30 * DAY)
    assert world.case("h3") is None
    assert H3 not in world.engine.state.health.standings
    assert world.engine.next_wake() is None
