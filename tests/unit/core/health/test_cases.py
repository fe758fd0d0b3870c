"""What becomes of a bad verdict: the life of a case, by what it meets."""

from collections.abc import Iterator

import pytest
from tests.unit.core.health.health_world import GPU, LADDER, POOL, HealthWorld, finding
from tests.unit.core.maintenance.planner_world import CATALOGUE, ME

from trainmaster.core.base.ids import HostId, Owner
from trainmaster.core.base.reasons import Token
from trainmaster.core.base.time import DAY, HOUR, MINUTE, Duration
from trainmaster.core.effects import RunSteps, VerifyHost
from trainmaster.core.events import (
    AgentSilent,
    CatalogueDeclared,
    DrainRequested,
    HealthReleased,
    OperationCancelled,
    ResumeRequested,
)
from trainmaster.core.health.book import Case, CaseState
from trainmaster.core.health.conduct import HEALTH, OffenderLimits
from trainmaster.core.health.words import Remedy, Verdict
from trainmaster.core.maintenance.ledger import Side

H3 = HostId("h3")
KIM = Owner("person:kim")


def tries(case: Case) -> list[tuple[str, str]]:
    return [(attempt.remedy, attempt.outcome) for attempt in case.tries]


def held(world: HealthWorld, host: str = "h3") -> Case:
    """The open case of a host, with its steps held back from now on."""
    case = world.case(host)
    assert case is not None
    return case


def stop_at_steps(world: HealthWorld) -> None:
    world.hold = lambda effect: isinstance(effect, RunSteps)


def go_on(world: HealthWorld) -> None:
    world.hold = lambda effect: False
    world.let()


def outcomes(world: HealthWorld, *answers: str) -> None:
    """What the next rows of steps end with; then all succeed."""
    ends: Iterator[str] = iter(answers)

    def answer(effect: RunSteps) -> tuple[str, str]:
        outcome = next(ends, "done")
        return outcome, "" if outcome == "done" else "no luck"

    world.answer = answer


def drain(world: HealthWorld, host: str, by: Owner = KIM) -> None:
    world.submit(DrainRequested(at=world.now, hosts=(HostId(host),), reason="hands off", by=by))


def resume(world: HealthWorld, host: str, by: Owner = KIM) -> None:
    world.submit(ResumeRequested(at=world.now, hosts=(HostId(host),), reason="done", by=by))


def release(world: HealthWorld, *hosts: str) -> None:
    names = tuple(map(HostId, hosts))
    world.submit(HealthReleased(at=world.now, hosts=names, by=KIM, reason="new board"))


# --- the way there and back


def test_a_bad_gpu_is_drained_reset_verified_and_returned() -> None:
    """1. The kernel log of a host says that a GPU is lost. 2. The host is held, reset and verified. 3. It returns, with
    the tasks that health demands, and the case is closed as fixed."""
    world = HealthWorld()
    asked: list[tuple[str, ...]] = []
    world.hold = lambda effect: isinstance(effect, VerifyHost) and bool(asked.append(effect.tasks))
    world.report("h3", finding())
    assert world.done == ["h3:apply:gpu-reset", "h3:VerifyHost", "h3:VerifyHost"]
    assert ["deep" in tasks for tasks in asked] == [False, True]
    assert world.state("h3") == "ready"
    case = world.last()
    assert (case.closed_how, tries(case)) == ("fixed", [("reset-gpu", "done")])
    assert [chapter.end for chapter in case.story] == ["remedy", "closed"]
    assert world.holders("h3") == []
    assert not world.engine.state.health.standings
    kinds = [incident.kind for incident in world.engine.state.health.history.incidents[H3]]
    assert kinds == ["verdict", "remedy"]


def test_a_bad_host_counts_as_failed_and_not_as_planned() -> None:
    """1. One host may be out for planned work. 2. A bad one is taken: it is on the failed side from then on, and
    planned work goes on elsewhere. 3. It stays there until it is in service."""
    world = HealthWorld()
    stop_at_steps(world)
    world.report("h3", finding())
    ledger = world.engine._derived.planner.ledger
    assert ledger.side(H3) is Side.OUT_FAILED
    planned = world.request("nic", "host/h0")
    assert world.outcome(planned) == "running"
    go_on(world)
    assert ledger.side(H3) is Side.IN_SERVICE


def test_observed_hosts_stay_in_service() -> None:
    """1. The pool is only observed. 2. A host is bad. 3. The advice says what would be done; nothing is done."""
    world = HealthWorld(act=False)
    world.report("h3", finding())
    case = held(world)
    assert case.state is CaseState.OBSERVED
    told = case.reason.sentence
    assert "would drain h3 and run gpu-reset (reset-gpu, try 1 of 1)" in told
    assert "no job runs on it" in told
    assert "7 of 8 hosts of all would be in service" in told
    assert (world.done, world.state("h3")) == ([], "ready")


@pytest.mark.parametrize(
    ("remedy", "told"),
    [
        (Remedy.TRIAGE, "would hold it until a person has looked"),
        (Remedy.RMA, "would hold it, and open an RMA"),
        (Remedy.CONFIG, "would hold it until its setup is corrected"),
        (Remedy.DIAGNOSE, "would drain h3 and run deep-check (diagnose, try 1 of 1)"),
    ],
)
def test_advice_by_remedy(remedy: Remedy, told: str) -> None:
    world = HealthWorld(act=False)
    world.report("h3", finding(remedy))
    assert told in held(world).reason.sentence


def test_hosts_of_no_pool_are_observed() -> None:
    """1. The conduct has no pool. 2. A bad host has a case, which says so."""
    world = HealthWorld()
    world.declare(pools=())
    world.report("h3", finding())
    assert held(world).state is CaseState.OBSERVED
    assert "no pool of health has the host" in held(world).reason.sentence


@pytest.mark.parametrize("verdict", [Verdict.OK, Verdict.SKIPPED, Verdict.WATCH, Verdict.UNKNOWN])
def test_nothing_else_than_bad_takes_a_host(verdict: Verdict) -> None:
    """1. A finding of another verdict, or the echo of a bad one. 2. No case, nothing is done."""
    world = HealthWorld()
    world.report("h3", finding(Remedy.NONE, verdict=verdict))
    world.report("h3", finding(rule="echo").but(echo_of="nvswitch 0"))
    assert world.case("h3") is None
    assert world.done == []


def test_a_fault_that_is_over_closes_its_case() -> None:
    """1. An observed case. 2. Its probe says that it is gone. 3. Closed as cleared."""
    world = HealthWorld(act=False)
    world.report("h3", finding(), probe="nvml")
    world.gone("h3", finding())
    assert world.case("h3") is None
    assert world.last().closed_how == "cleared"


def test_a_promotion_acts_on_what_stands_now() -> None:
    """1. Two hosts are bad, and one recovers; the pool is observed. 2. It is promoted. 3. Only the bad one is taken."""
    world = HealthWorld(act=False)
    world.report("h3", finding(), probe="nvml")
    world.report("h4", finding(), probe="nvml")
    world.gone("h4", finding())
    stop_at_steps(world)
    world.set_mode("act")
    assert world.case("h4") is None
    assert held(world).state is CaseState.REMEDY
    assert world.holders("h3")[0] == HEALTH


def test_a_pool_that_is_set_back_keeps_what_is_out() -> None:
    """1. A remedy runs, and the pool is set back to observe. 2. The remedy fails. 3. No next one: a person has to look,
    and the host stays out."""
    world = HealthWorld()
    stop_at_steps(world)
    world.report("h3", finding())
    world.set_mode("observe")
    outcomes(world, "failed")
    go_on(world)
    assert held(world).state is CaseState.HELD
    assert "only observed now" in held(world).reason.sentence
    assert world.state("h3") == "out-planned"


# --- the ladder


def test_the_ladder_is_climbed_to_a_person() -> None:
    """1. No remedy works. 2. Reset, boot, boot; then triage, and the host stays out. 3. A person releases it: it comes
    back through what health demands."""
    world = HealthWorld()
    outcomes(world, "failed", "failed", "failed")
    world.report("h3", finding(), probe="nvml")
    case = held(world)
    assert tries(case) == [("reset-gpu", "failed"), ("reboot", "failed"), ("reboot", "failed")]
    assert (case.state, case.reason.token) == (CaseState.HELD, Token.WANTS_TRIAGE)
    assert "reset-gpu was tried 1 of 1 times" in case.reason.sentence
    assert world.holders("h3") == [HEALTH]
    release(world, "h3")
    assert world.state("h3") == "ready"
    assert (world.last().closed_how, world.holders("h3")) == ("released", [])


def test_a_remedy_that_does_not_help_is_followed_by_the_next() -> None:
    """1. A probe finds a GPU bad, and goes on finding it so after the reset. 2. The host is held while the probe gets
    time to look. 3. Then it is booted; with that the state is gone, and it returns."""
    world = HealthWorld()
    world.report("h3", finding(), probe="nvml")
    case = held(world)
    assert (case.stage, case.reason.token) == ("looking", Token.LOOKS_AGAIN)
    assert world.state("h3") == "out-planned"
    world.pass_time(3 * MINUTE)
    assert world.state("h3") == "ready"
    assert tries(world.last()) == [("reset-gpu", "done"), ("reboot", "done")]
    assert world.done.count("h3:reboot") == 1


def test_a_state_that_is_gone_after_the_remedy_ends_the_case_at_once() -> None:
    """1. As before, but the probe says within seconds that the fault is gone. 2. The host returns."""
    world = HealthWorld()
    world.report("h3", finding(), probe="nvml")
    world.gone("h3", finding())
    assert world.state("h3") == "ready"
    assert tries(world.last()) == [("reset-gpu", "done")]


def test_the_same_fault_again_soon_begins_where_it_ended() -> None:
    """1. Fixed by a reset. 2. The same unit fails again on the next day: the reset was tried, so it is booted. 3. After
    the cool-down it is reset again."""
    world = HealthWorld()
    world.report("h3", finding())
    world.pass_time(DAY)
    world.report("h3", finding(rule="xid-119"))
    assert tries(world.last()) == [("reboot", "done")]
    world.pass_time(40 * DAY)
    world.report("h3", finding())
    assert tries(world.last()) == [("reset-gpu", "done")]


def test_another_unit_begins_at_the_foot() -> None:
    world = HealthWorld()
    world.report("h3", finding())
    world.report("h3", finding(unit="gpu 0000:2b:00"))
    assert tries(world.last()) == [("reset-gpu", "done")]


def test_a_repeat_offender_is_not_reset_for_ever() -> None:
    """1. The third case of a slot within the window. 2. Triage, and the reason counts."""
    world = HealthWorld()
    world.declare(limits=OffenderLimits(cool_down=Duration(HOUR)))
    for _ in range(2):
        world.report("h3", finding())
        assert world.last().closed_how == "fixed"
        world.pass_time(2 * DAY)
    world.report("h3", finding())
    assert held(world).state is CaseState.HELD
    assert "3rd case of" in held(world).reason.sentence


def test_rungs_that_the_catalogue_lacks_are_passed_over() -> None:
    """1. The catalogue has no GPU reset. 2. The host is booted, and the reason says why."""
    world = HealthWorld()
    world.submit(CatalogueDeclared(at=world.now, catalogue=CATALOGUE, by=ME))
    stop_at_steps(world)
    world.hold = lambda effect: not isinstance(effect, VerifyHost)
    world.report("h3", finding())
    assert "the catalogue has no kind gpu-reset" in held(world).reason.sentence
    assert held(world).tries[-1].remedy is Remedy.REBOOT


@pytest.mark.parametrize(
    ("remedy", "token"),
    [
        (Remedy.TRIAGE, Token.WANTS_TRIAGE),
        (Remedy.CONFIG, Token.WANTS_CONFIG),
        (Remedy.RMA, Token.WANTS_RMA),
        (Remedy.NONE, Token.WANTS_TRIAGE),
    ],
)
def test_what_a_person_has_to_do(remedy: Remedy, token: Token) -> None:
    """1. Bad, and no operation helps. 2. Held at once; a part that goes back has an RMA."""
    world = HealthWorld()
    world.report("h3", finding(remedy))
    case = held(world)
    assert (case.state, case.reason.token) == (CaseState.HELD, token)
    assert world.state("h3") == "out-planned"
    assert (case.rma is not None) == (remedy is Remedy.RMA)
    assert world.done == []


def test_a_suspect_that_is_bad_is_looked_into() -> None:
    """1. Bad, diagnose. 2. The deep check runs; it passes, and the host returns. 3. Where it fails, a person looks."""
    world = HealthWorld()
    world.report("h3", finding(Remedy.DIAGNOSE))
    assert tries(world.last()) == [("diagnose", "done")]
    outcomes(world, "failed")
    world.report("h4", finding(Remedy.DIAGNOSE))
    assert held(world, "h4").state is CaseState.HELD


def test_more_that_is_bad_joins_and_raises_the_rung() -> None:
    """1. A reset waits for its turn. 2. Another unit of the host asks for a boot. 3. One case with both; the reset is
    taken back, and the host is booted."""
    world = HealthWorld()
    drain(world, "h3")
    world.report("h3", finding())
    case = held(world)
    world.report("h3", finding(Remedy.REBOOT, "nic 0", "mlx5-fatal"))
    assert held(world) is case
    assert [each.unit for each in case.findings] == ["nic 0", GPU]
    resume(world, "h3")
    assert tries(world.last()) == [("reboot", "done")]
    assert world.engine.state.health.opened == 1


def test_a_verification_that_fails_on_the_way_back_is_the_next_rung() -> None:
    """1. The reset worked, and what health demands fails. 2. The host never was in service; it is booted. 3. Fails
    again and again: a person."""
    world = HealthWorld()
    world.fails = {"deep"}
    world.report("h3", finding())
    case = held(world)
    assert tries(case) == [("reset-gpu", "done"), ("reboot", "failed"), ("reboot", "failed")]
    assert case.state is CaseState.HELD
    story = world.engine.state.hosts[H3].story
    assert "ready" not in [chapter.end for chapter in story[-12:] if chapter.at > case.opened_at]


def test_what_is_unknown_afterwards_is_not_healthy() -> None:
    """1. After the reset a probe can't see the GPU. 2. The host does not return. 3. Two minutes later a person has to
    look."""
    world = HealthWorld()
    stop_at_steps(world)
    world.report("h3", finding())
    world.hold = lambda effect: isinstance(effect, VerifyHost)
    world.let()
    world.report("h3", finding(Remedy.NONE, GPU, "nvml-hangs", Verdict.UNKNOWN), probe="nvml")
    go_on(world)
    assert held(world).stage == "looking"
    world.pass_time(3 * MINUTE)
    assert held(world).state is CaseState.HELD
    assert "unknown, which is not healthy" in held(world).reason.sentence


def test_the_unknown_that_was_there_before_does_not_keep_it_out() -> None:
    """1. A probe of another unit never could look. 2. A GPU is bad, and is reset. 3. The host returns."""
    world = HealthWorld()
    world.report("h3", finding(Remedy.NONE, "disk a", "smart", Verdict.UNKNOWN), probe="disks")
    world.report("h3", finding())
    assert world.state("h3") == "ready"


# --- people


def test_a_persons_hold_is_waited_for_and_never_lifted() -> None:
    """1. A person holds a host, which is bad. 2. Health holds it too, and waits. 3. The person lets go: the remedy runs
    without the host being in service in between."""
    world = HealthWorld()
    drain(world, "h3")
    world.report("h3", finding())
    case = held(world)
    assert (case.state, case.reason.token) == (CaseState.WAITING, Token.HELD)
    assert world.holders("h3") == [KIM, HEALTH]
    assert world.done == []
    resume(world, "h3")
    assert world.done[0] == "h3:apply:gpu-reset"
    assert world.last().closed_how == "fixed"


def test_a_person_who_comes_in_between_keeps_the_host() -> None:
    """1. A remedy runs. 2. A person drains the host. 3. The remedy ends, health lets go, and the host stays out by the
    person's hold. 4. The person lets go: it proves what health demands, and returns."""
    world = HealthWorld()
    stop_at_steps(world)
    world.report("h3", finding())
    drain(world, "h3")
    go_on(world)
    assert world.holders("h3") == [KIM]
    assert world.last().closed_how == "fixed"
    assert world.state("h3") == "out-planned"
    world.hold = lambda effect: isinstance(effect, VerifyHost)
    resume(world, "h3")
    (effect,) = world.held
    assert isinstance(effect, VerifyHost)
    assert "deep" in effect.tasks


def test_a_release_does_not_lift_the_hold_of_a_person() -> None:
    """1. A person holds a bad host. 2. Another says that it is repaired, for all hosts. 3. The hold stays."""
    world = HealthWorld()
    drain(world, "h3")
    world.report("h3", finding())
    release(world, *world.names)
    assert world.holders("h3") == [KIM]
    assert world.state("h3") == "out-planned"


def test_who_lifts_the_hold_of_health_says_that_it_is_repaired() -> None:
    """1. A host waits for a person. 2. Somebody resumes it with the owner of health. 3. That is a release."""
    world = HealthWorld()
    world.report("h3", finding(Remedy.TRIAGE))
    resume(world, "h3", HEALTH)
    assert world.last().closed_how == "released"
    assert world.state("h3") == "ready"


def test_a_remedy_that_a_person_takes_back_waits_for_a_person() -> None:
    """1. A remedy runs, and a person cancels it. 2. The host stays out, and the case says who took it back."""
    world = HealthWorld()
    world.hold = lambda effect: isinstance(effect, RunSteps)
    world.report("h3", finding())
    operation = held(world).operation
    assert operation is not None
    world.submit(OperationCancelled(at=world.now, operation=operation, by=KIM, reason="not now"))
    go_on(world)
    case = held(world)
    assert case.state is CaseState.HELD
    assert "not now" in case.reason.sentence
    assert tries(case) == [("reset-gpu", "cancelled")]


def test_a_release_during_a_remedy_takes_it_back() -> None:
    """1. A remedy runs. 2. The host is released. 3. The step that runs ends, and the host returns."""
    world = HealthWorld()
    stop_at_steps(world)
    world.report("h3", finding())
    release(world, "h3")
    assert world.case("h3") is None
    go_on(world)
    assert world.state("h3") == "ready"
    assert world.holders("h3") == []


# --- the planner and the host


def test_a_visit_that_has_not_begun_its_work_is_joined() -> None:
    """1. Planned work waits for the lock of its host's rack. 2. The host is found bad. 3. Both are carried out in one
    visit, and nothing else than that brings the host back."""
    world = HealthWorld()
    world.hold = lambda effect: isinstance(effect, RunSteps)
    look = world.request("rack-look", "rack/r1")
    planned = world.request("nic", "host/h3")
    world.report("h3", finding())
    assert world.state("h3") == "out-planned"
    assert set(world.holders("h3")) == {HEALTH, "policy:maintenance"}
    go_on(world)
    assert world.outcome(look) == world.outcome(planned) == "done"
    story = [chapter.end for chapter in world.engine.state.hosts[H3].story]
    assert story[-1] == "ready"
    assert story.count("ready") == 2
    assert world.last().closed_how == "fixed"


def lose(world: HealthWorld, host: str) -> None:
    session = world.engine.state.hosts[HostId(host)].session
    world.submit(AgentSilent(at=world.now, host=HostId(host), session=session, silent_s=9.0))


def test_a_host_that_is_lost_during_its_remedy_is_waited_for() -> None:
    """1. A reset runs and the host dies. 2. The remedy has failed; there is nothing to run the next one on. 3. The host
    comes back, booted, and proves that it works: nothing stands, and it returns."""
    world = HealthWorld()
    world.hold = lambda effect: isinstance(effect, RunSteps)
    world.report("h3", finding())
    world.held.clear()
    drain(world, "h3")
    lose(world, "h3")
    world.pass_time(HOUR)
    resume(world, "h3")
    world.hold = lambda effect: False
    world.boots["h3"] += 1
    world.register(H3)
    world.pass_time(5 * MINUTE)
    assert world.state("h3") == "ready"
    assert world.holders("h3") == []


def test_a_bad_host_that_is_lost_is_not_waited_for_for_ever() -> None:
    """1. A host is lost, and what it said last is bad. 2. Health waits for it. 3. After an hour a person has to
    look."""
    world = HealthWorld(act=False)
    world.report("h3", finding())
    lose(world, "h3")
    world.set_mode("act")
    case = held(world)
    assert (case.state, case.reason.token) == (CaseState.WAITING, Token.HOST_AWAY)
    world.pass_time(2 * HOUR)
    assert case.state is CaseState.HELD
    assert "did not come back within 3600 s" in case.reason.sentence


def test_steps_that_never_end_are_a_failure() -> None:
    """1. The reset hangs. 2. Past the deadline of its kind it has failed, and the host is lost to it. 3. The next rung
    runs on the host that is out."""
    world = HealthWorld()
    world.hold = lambda effect: isinstance(effect, RunSteps)
    world.report("h3", finding())
    world.hold = lambda effect: False
    world.pass_time(2 * HOUR)
    assert tries(world.last() if world.case("h3") is None else held(world))[0] == ("reset-gpu", "failed")
    assert world.state("h3") == "ready"


def test_a_lost_host_is_in_the_history() -> None:
    world = HealthWorld()
    lose(world, "h3")
    assert [incident.kind for incident in world.engine.state.health.history.incidents[H3]] == ["lost"]
    assert world.case("h3") is None


def test_the_conduct_may_change_meanwhile() -> None:
    """1. A host waits for a person. 2. The pools are declared anew, without any. 3. It stays held until it is
    released."""
    world = HealthWorld()
    world.report("h3", finding(Remedy.TRIAGE))
    world.declare(pools=(), ladder=LADDER[:1])
    assert held(world).state is CaseState.HELD
    release(world, "h3")
    assert world.state("h3") == "ready"
    assert POOL not in world.engine.state.health.breakers
