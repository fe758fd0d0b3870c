"""Drains that can't succeed, drains that were cancelled, hosts that come back: cases of the field in `tests/cases`."""

import csv
import json
from pathlib import Path

import pytest
from tests.unit.core.maintenance.planner_world import ME
from tests.unit.core.maintenance.test_jobs_under_maintenance import JobWorld

from trainmaster.core.base.ids import HostId, Owner, SessionId
from trainmaster.core.base.reasons import Token
from trainmaster.core.base.time import HOUR, MINUTE, Instant, seconds
from trainmaster.core.effects import AskWorkers, RebootHost, RunSteps
from trainmaster.core.events import AgentDisconnected, DrainRequested, OperationCancelled, ResumeRequested
from trainmaster.core.scheduling.job import JobState
from trainmaster.core.scheduling.request import MaintenanceContract

CASES = Path(__file__).parents[3] / "cases"
BLOCKED = CASES / "62-pdb-blocks-drain-for-ever"
CANCELLED = CASES / "64-cancelled-drain-still-reboots"
STRANDED = CASES / "66-gang-stranded-after-repair"


@pytest.mark.parametrize("promise", ["protected", "all hosts"])
def test_a_drain_that_a_job_forbids_is_a_stated_wait(promise: str) -> None:
    """1. A job needs all its hosts: by its contract for some hours, or because nothing can replace one. 2. One of them
    is to be updated, within an hour. 3. The update waits and says for whom and what can be done; over all that time no
    rank is asked to leave. 4. When the job allows it, the host is updated."""
    budget, wish = (json.loads((BLOCKED / name).read_text()) for name in ("pdb.json", "request.json"))
    hosts = budget["minAvailable"]
    spare_hosts = 1 if promise == "protected" else 0
    world = JobWorld(hosts=hosts + spare_hosts)
    until = Instant(world.now + 6 * HOUR)
    contract = MaintenanceContract(protected_until=until) if promise == "protected" else MaintenanceContract()
    job = world.run(hosts=hosts, spares=0, name=budget["name"], contract=contract)
    deadline = Instant(world.now + wish["deadline_min"] * MINUTE)
    name = world.request("nic", f"host/{world.attempt(job).members[7]}", deadline=deadline)
    for _ in range(5):
        world.pass_time(HOUR)
        reason = world.operation(name).reason
        assert reason is not None
        assert reason.token is (Token.JOB_PROTECTED if promise == "protected" else Token.NO_REPLACEMENT)
        assert budget["name"] in reason.sentence
        assert reason.token.advice
    assert world.yields == []
    assert not any(isinstance(effect, AskWorkers) for effect in world.engine.pending())
    assert world.engine.state.jobs[job].state is JobState.ACTIVE
    if promise == "protected":
        world.pass_time(2 * HOUR)
        assert world.outcome(name) == "done"
        assert [len(asked) for asked in world.yields] == [hosts], "all ranks save and leave once, together"


def steps_of_the_case() -> list[tuple[float, str]]:
    with (CANCELLED / "events.csv").open() as file:
        return [(float(row["t_s"]), row["event"]) for row in csv.DictReader(file)]


@pytest.mark.parametrize("what", ["reboot", "kernel"])
@pytest.mark.parametrize("when", ["draining", "waiting for its lock", "before the reboot"])
def test_a_cancelled_operation_takes_everything_with_it(what: str, when: str) -> None:
    """1. A fault asks for a reboot of a host, and more work waits for that. 2. It drains, or has drained, or was
    carried out but for the reboot. 3. It is cancelled. 4. All that waited for it is cancelled, no reboot comes, then or
    later, and a job that starts on the host keeps running."""
    events = steps_of_the_case()
    assert any("cancelled" in event for _, event in events)
    world = JobWorld(hosts=4)
    if when == "draining":
        world.run(hosts=4, spares=0, name="before", on_drain="finish")
    else:
        world.hold = lambda effect: isinstance(effect, RunSteps)
    other = world.request("fan", "host/h1") if when == "waiting for its lock" else None
    name = world.request(what, "host/h1")
    if when == "before the reboot":
        world.hold = lambda effect: isinstance(effect, RunSteps) and effect.operation != name
        other = world.request("fan", "host/h1")
        world.let()
        assert world.operation(name).effect is None
    after = world.request("deep-check", "host/h1", after=(name,))
    world.now = Instant(world.now + seconds(events[3][0]))
    world.submit(OperationCancelled(at=world.now, operation=name, by=ME, reason="the fault has cleared"))
    world.hold = lambda effect: False
    world.let()
    assert (world.outcome(name), world.outcome(after)) == ("cancelled", "cancelled")
    assert other is None or world.outcome(other) == "done"
    assert world.ended(after).reason.token is Token.PREDECESSOR_FAILED  # type: ignore[union-attr]
    late = world.request("probe", "host/h1", after=(name,))
    assert world.outcome(late) == "cancelled"
    job = world.engine.state.jobs[world.run(hosts=2, spares=0, name="job77")] if when != "draining" else None
    world.pass_time(3 * HOUR)
    assert "h1:reboot" not in world.done
    assert not any(isinstance(effect, RebootHost) for effect in world.engine.pending())
    assert world.state("h1") == "ready"
    assert job is None or job.state is JobState.ACTIVE


def test_a_returned_host_goes_to_the_stranded_gang() -> None:
    """1. A gang loses one of its hosts. 2. A single-host job of the same priority is queued. 3. The host is repaired.
    4. It goes to the gang, which runs again; the newcomer waits and says for what."""
    state = json.loads((STRANDED / "state.json").read_text())
    gang, other = state["gang"], state["other"]
    world = JobWorld(hosts=gang["min"])
    train = world.run(hosts=gang["min"], spares=0, name=gang["name"], priority=gang["priority"])
    lost = HostId("h2")
    world.submit(AgentDisconnected(at=world.now, host=lost, session=SessionId("s1")))
    world.pass_time(30 * 1_000_000)
    assert world.state(lost) == "out-failed"
    notebook = world.run(hosts=other["pods"], spares=0, name=other["name"], priority=other["priority"])
    assert world.engine.state.jobs[notebook].state is JobState.QUEUED
    world.boots[lost] = 2
    world.request("repair", f"host/{lost}")
    world.register(lost)
    world.pass_time(MINUTE)
    assert world.state(lost) == "ready"
    assert world.engine.state.hosts[lost].allocation == world.attempt(train).id
    assert len(world.attempt(train).members) == gang["min"]
    waiting = world.engine.state.jobs[notebook]
    assert waiting.state is JobState.QUEUED
    assert waiting.reason is not None


def test_a_bulk_resume_leaves_the_hold_of_maintenance() -> None:
    """1. Two hosts are worked on. 2. An admin drained both as well, and resumes the whole range. 3. Only his holds go;
    the hosts stay out until their work is verified, then they come back."""
    world = JobWorld(hosts=4)
    world.hold = lambda effect: isinstance(effect, RunSteps)
    for host in ("h0", "h1"):
        world.request("nic", f"host/{host}")
    admin = Owner("person:admin")
    world.submit(DrainRequested(at=world.now, hosts=tuple(world.names), reason="look", by=admin))
    world.submit(ResumeRequested(at=world.now, hosts=tuple(world.names), reason="clear all", by=admin))
    owners = {
        host: [hold.owner for hold in world.engine.state.hosts[HostId(host)].holds] for host in ("h0", "h1", "h2")
    }
    assert owners == {"h0": ["policy:maintenance"], "h1": ["policy:maintenance"], "h2": []}
    assert (world.state("h0"), world.state("h2")) == ("out-planned", "ready")
    world.hold = lambda effect: False
    world.let()
    assert [world.state(name) for name in world.names] == ["ready"] * 4
