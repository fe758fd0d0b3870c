"""What a verification that is no pass does to a host: it stays out; only a failure counts against it."""

import pytest
from tests.unit.fixtures import stage

from trainmaster.core.effects import VerifyHost
from trainmaster.core.health.words import Remedy, Verdict


@pytest.mark.parametrize(
    ("detail", "offence", "verdict", "remedy"),
    [
        ("deep: cpu 3: matmul float32: bit 3 of element 7 wrong", True, Verdict.BAD, Remedy.REBOOT),
        ("deep: could not be run: gpu 0: the device is busy (3 tries)", False, Verdict.UNKNOWN, Remedy.DIAGNOSE),
        ("deep: could not be judged: group: too unsteady (2 tries)", False, Verdict.UNKNOWN, Remedy.DIAGNOSE),
    ],
)
def test_the_host_stays_out(detail: str, offence: bool, verdict: Verdict, remedy: Remedy) -> None:
    """1. A host registers, and its verification is no pass. 2. It is out, with the reason, and is not asked again at
    once. 3. Its history has an offence only if the verification failed."""
    world = stage(2, ready=False)
    world.register("h1")
    (asked,) = world.pending(VerifyHost, "h1")
    world.answer(asked, "failed", detail)
    host = world.host("h1")
    assert (host.state.value, host.reason.sentence) == ("out-failed", f"verification failed: {detail}")
    assert world.pending(VerifyHost, "h1") == []
    health = world.engine.state.health
    incident = health.history.incidents[host.id][0]
    assert (incident.kind, incident.offence) == ("verification", offence)
    (standing,) = health.standings[host.id]
    assert (standing.finding.verdict, standing.finding.remedy, standing.finding.offence) == (verdict, remedy, offence)
