"""What holds for a host: the worst that stands against it, or why nothing is known."""

from typing import Any

import pytest
from tests.unit.fixtures import Stage, host_spec

from trainmaster.core.base.ids import BootId, HostId
from trainmaster.core.health.events import Gone, HealthReported, PartsSeen
from trainmaster.core.health.finding import Finding
from trainmaster.core.health.judged import judge, ordered
from trainmaster.core.health.words import parse_answer

H1 = HostId("h1")


def finding(answer: str, unit: str = "gpu 0000:1b:00", rule: str = "rule", **more: Any) -> Finding:
    found = parse_answer(answer)
    assert found is not None, answer
    return Finding(unit=unit, verdict=found.verdict, remedy=found.remedy, rule=rule, summary=f"{rule}!", **more)


def report(stage: Stage, *findings: Finding, probe: str = "kernel-log", gone: tuple[Gone, ...] = ()) -> None:
    stage.tell(
        HealthReported(at=stage.now, host=H1, boot=BootId("b1"), probe=probe, findings=findings, gone=gone)
    )  # fmt: skip


def verdict(stage: Stage) -> str:
    found = judge(stage.engine.state.health, stage.engine.state.hosts[H1])
    return f"{found.answer}: {found.sentence}"


def stage_with_agent() -> Stage:
    stage = Stage(host_spec("h1"))
    stage.register("h1")
    return stage


def test_who_is_not_looked_at_is_unknown() -> None:
    """1. No agent. 2. An agent, and no probe has spoken. 3. Its parts were seen. 4. It booted: nobody has looked."""
    stage = Stage(host_spec("h1"))
    assert verdict(stage) == "unknown, none: its agent has never registered"
    stage.register("h1")
    assert verdict(stage) == "unknown, none: no probe has reported since it booted"
    stage.tell(PartsSeen(at=stage.now, host=H1, boot=BootId("b1"), chassis="", parts=()))
    assert verdict(stage) == "ok, none: no probe sees a fault"
    stage.register("h1", boot="b2", session="s2")
    assert verdict(stage) == "unknown, none: no probe has reported since it booted"


@pytest.mark.parametrize(
    ("findings", "expected"),
    [
        ((finding("watch, none", rule="a"), finding("bad, reboot", rule="b")), "bad, reboot: b!"),
        ((finding("bad, reset-gpu", rule="a"), finding("bad, reboot", rule="b")), "bad, reboot: b!"),
        ((finding("bad, triage", rule="a", echo_of="gpu x"), finding("watch, none", rule="b")), "watch, none: b!"),
        ((finding("watch, none", rule="a"), finding("unknown, none", rule="b")), "unknown, none: b!"),
        ((finding("ok, restart-app", rule="a"),), "ok, restart-app: a!"),
    ],
)
def test_the_worst_that_is_no_echo_decides(findings: tuple[Finding, ...], expected: str) -> None:
    stage = stage_with_agent()
    report(stage, *findings)
    assert verdict(stage) == expected
    first = ordered(stage.engine.state.health, H1)[0]
    assert not first.finding.echo_of


def test_away_is_not_healthy_but_bad_stays_bad() -> None:
    """1. A watched host whose agent leaves is unknown. 2. A bad one stays bad. 3. What is gone stands no more."""
    stage = stage_with_agent()
    report(stage, finding("watch, none", rule="a"))
    stage.disconnect("h1")
    assert verdict(stage) == "unknown, none: its agent is away"
    report(stage, finding("bad, reboot", rule="b"))
    assert verdict(stage) == "bad, reboot: b!"
    report(stage, gone=(Gone(unit="gpu 0000:1b:00", rule="b"),))
    assert verdict(stage) == "unknown, none: its agent is away"
