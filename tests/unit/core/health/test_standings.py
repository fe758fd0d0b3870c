"""What stands against a host, and how it leaves again."""

import pytest
from tests.unit.core.health.health_world import GPU, HealthWorld, finding

from trainmaster.core.base.ids import BootId, HostId, Owner, SessionId
from trainmaster.core.base.time import DAY, HOUR, MINUTE, Duration, Instant
from trainmaster.core.effects import RunSteps, VerifyHost
from trainmaster.core.events import AgentRegistered, HealthAcknowledged
from trainmaster.core.health.finding import Finding
from trainmaster.core.health.standing import EVIDENCE_BYTES, STANDINGS_MAX
from trainmaster.core.health.words import Remedy, Verdict

WATCH, UNKNOWN, BAD = Verdict.WATCH, Verdict.UNKNOWN, Verdict.BAD


def stands(world: HealthWorld, host: str = "h1") -> list[tuple[str, str]]:
    return [
        (each.finding.unit, each.finding.rule) for each in world.engine.state.health.standings.get(HostId(host), ())
    ]


def boot(world: HealthWorld, host: str = "h1") -> None:
    world.boots[host] += 1
    world.register(HostId(host))


def watched(rule: str = "xid-63", unit: str = GPU, remedy: Remedy = Remedy.NONE) -> Finding:
    return finding(remedy, unit, rule, WATCH)


def test_a_state_that_is_over_stands_no_more() -> None:
    """1. Two probes see one unit. 2. One says that its finding is gone. 3. That of the other stands."""
    world = HealthWorld(act=False)
    world.report("h1", watched("hot"), probe="nvml")
    world.report("h1", watched("slow"), probe="pcie")
    world.gone("h1", watched("hot"), probe="pcie")
    assert stands(world) == [(GPU, "hot"), (GPU, "slow")]
    world.gone("h1", watched("hot"), probe="nvml")
    assert stands(world) == [(GPU, "slow")]


def test_what_is_well_again_stands_no_more() -> None:
    """1. A unit is watched. 2. The same rule says ok. 3. Nothing stands."""
    world = HealthWorld(act=False)
    world.report("h1", watched("hot"), probe="nvml")
    world.report("h1", finding(Remedy.NONE, GPU, "hot", Verdict.OK), probe="nvml")
    assert stands(world) == []


def test_a_repeat_renews_and_keeps_its_beginning() -> None:
    """1. Reported twice. 2. One standing: it began at the first, and was seen last at the second."""
    world = HealthWorld(act=False)
    world.report("h1", watched())
    first = world.now
    world.pass_time(MINUTE)
    world.report("h1", watched())
    (one,) = world.engine.state.health.standings[HostId("h1")]
    assert (one.since, one.last) == (first, world.now)


@pytest.mark.parametrize(
    ("probe", "remedy", "verdict", "outlives"),
    [
        ("kernel-log", Remedy.RESET_GPU, BAD, False),
        ("kernel-log", Remedy.REBOOT, BAD, False),
        ("kernel-log", Remedy.NONE, WATCH, False),
        ("kernel-log", Remedy.TRIAGE, BAD, True),
        ("kernel-log", Remedy.RMA, BAD, True),
        ("nvml", Remedy.RESET_GPU, BAD, False),
        ("nvml", Remedy.RMA, BAD, False),
    ],
)
def test_what_a_boot_ends(probe: str, remedy: Remedy, verdict: Verdict, outlives: bool) -> None:
    """1. Something stands. 2. The host boots. 3. Events are over unless a boot is no remedy for them; states are told
    anew by their probes."""
    world = HealthWorld(act=False)
    world.report("h1", finding(remedy, GPU, "x", verdict), probe=probe)
    boot(world)
    assert bool(stands(world)) == outlives


def test_an_agent_that_restarts_ends_nothing() -> None:
    """1. A finding stands. 2. The agent registers again under the same boot. 3. It stands."""
    world = HealthWorld(act=False)
    world.report("h1", finding())
    event = AgentRegistered(
        at=world.now, host=HostId("h1"), session=SessionId("again"), boot=BootId("b1"), address="x", attempts=()
    )
    world.submit(event)
    assert stands(world) == [(GPU, "xid-79")]


def test_a_report_of_another_boot_is_history() -> None:
    """1. A late report of the boot before arrives. 2. Nothing stands, nothing is done; the history has it."""
    world = HealthWorld()
    world.report("h1", finding(), boot="b0")
    assert stands(world) == []
    assert world.done == []
    (incident,) = world.engine.state.health.history.incidents[HostId("h1")]
    assert (incident.unit, incident.rule, incident.outcome) == (GPU, "xid-79", "of an earlier boot")


@pytest.mark.parametrize(
    ("probe", "verdict", "left"),
    [("kernel-log", WATCH, False), ("kernel-log", UNKNOWN, False), ("kernel-log", BAD, True), ("nvml", WATCH, True)],
)
def test_events_expire(probe: str, verdict: Verdict, left: bool) -> None:
    """1. Something stands, and is not seen again. 2. A day later events stand no more, unless they are bad; states
    do."""
    world = HealthWorld(act=False)
    remedy = Remedy.TRIAGE if verdict is BAD else Remedy.NONE
    world.report("h1", finding(remedy, GPU, "x", verdict), probe=probe)
    world.pass_time(23 * HOUR)
    assert stands(world)
    world.pass_time(2 * HOUR)
    assert bool(stands(world)) == left


def test_another_limit_counts_from_now_on() -> None:
    """1. An event stands. 2. The limit becomes two days. 3. It stands for two."""
    world = HealthWorld(act=False)
    world.report("h1", watched())
    world.declare(expire=Duration(2 * DAY))
    world.pass_time(Duration(DAY + HOUR))
    assert stands(world)
    world.pass_time(DAY)
    assert not stands(world)


def test_the_worst_are_kept() -> None:
    """1. A host tells of more than is kept. 2. So many stand, and the bad one is among them."""
    world = HealthWorld(act=False)
    many = tuple(watched(f"r{number}") for number in range(STANDINGS_MAX))
    world.report("h1", *many)
    world.report("h1", finding(Remedy.TRIAGE, GPU, "worst"))
    found = stands(world)
    assert len(found) == STANDINGS_MAX
    assert (GPU, "worst") in found


def test_evidence_is_bounded() -> None:
    """1. A finding brings a megabyte of lines. 2. What is kept is a few kilobytes, the first lines first."""
    world = HealthWorld(act=False)
    lines = tuple(f"{number}: " + "x" * 10_000 for number in range(100))
    world.report("h1", watched().but(evidence=lines, lines=tuple(range(100)), summary="y" * 10_000))
    (one,) = world.engine.state.health.standings[HostId("h1")]
    kept = one.finding
    assert sum(map(len, kept.evidence)) <= EVIDENCE_BYTES
    assert kept.evidence[0].startswith("0: ")
    assert len(kept.lines) == len(kept.evidence)
    assert len(kept.summary) <= 400


def test_what_an_operation_does_is_no_fault() -> None:
    """1. A planned reset runs. 2. Meanwhile the log says that the GPU is lost, and a probe that it does not answer. 3.
    No case. 4. The probe says that it is back. 5. The host is in service; nothing stands."""
    world = HealthWorld()
    world.hold = lambda effect: isinstance(effect, RunSteps)
    world.request("gpu-reset", "host/h1")
    world.report("h1", finding())
    world.report("h1", finding(rule="lost"), probe="nvml")
    assert world.case("h1") is None
    world.hold = lambda effect: False
    world.let()
    world.gone("h1", finding(rule="lost"))
    world.pass_time(5 * MINUTE)
    assert world.state("h1") == "ready"
    assert stands(world) == []
    assert world.engine.state.health.opened == 0


def test_what_is_still_so_afterwards_was_no_doing_of_it() -> None:
    """1. During a planned reset a probe finds a GPU bad. 2. Two minutes after the host is back it says so still. 3. Now
    it is a case."""
    world = HealthWorld()
    world.hold = lambda effect: isinstance(effect, RunSteps)
    world.request("gpu-reset", "host/h1")
    world.report("h1", finding(rule="lost"), probe="nvml")
    world.hold = lambda effect: False
    world.let()
    assert world.state("h1") == "ready"
    assert world.case("h1") is None
    world.hold = lambda effect: isinstance(effect, RunSteps)
    world.pass_time(3 * MINUTE)
    assert world.case("h1") is not None


def test_who_takes_it_on_has_seen_this_and_no_worse() -> None:
    """1. A person acknowledges. 2. The same again: it stays acknowledged. 3. Worse: it is new."""
    world = HealthWorld(act=False)
    world.report("h1", watched("x"))
    until = Instant(world.now + HOUR)
    kim, names = Owner("person:kim"), (HostId("h1"),)
    world.submit(HealthAcknowledged(at=world.now, hosts=names, by=kim, reason="seen", until=until))
    world.report("h1", watched("x"))
    (one,) = world.engine.state.health.standings[HostId("h1")]
    assert (one.acknowledged_by, one.acknowledged_why, one.acknowledged_until) == ("person:kim", "seen", until)
    world.report("h1", finding(Remedy.TRIAGE, GPU, "x"))
    (one,) = world.engine.state.health.standings[HostId("h1")]
    assert one.acknowledged_by is None


def test_a_verification_that_fails_is_a_finding() -> None:
    """1. A host boots, and its verification fails. 2. It is bad and has a case; its pool is observed. 3. It passes the
    next one. 4. Nothing stands, and the case is cleared."""
    world = HealthWorld(act=False)
    world.hold = lambda effect: isinstance(effect, VerifyHost)
    boot(world)
    (effect,) = world.held
    world.held.clear()
    world.carry_out(effect, "failed", "disk: slow")
    assert stands(world) == [("host", "verification")]
    case = world.case("h1")
    assert case is not None
    assert "reboot" in case.reason.sentence
    world.hold = lambda effect: False
    boot(world)
    assert world.state("h1") == "ready"
    assert stands(world) == []
    assert world.last().closed_how == "cleared"
