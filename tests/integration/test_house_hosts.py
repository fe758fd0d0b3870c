"""Hosts die, hang, and are drained under a real training job; it goes on with the losses of an undisturbed run."""

import re
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from tests.integration.house import PACE_S, House, add_up, job, running, wait

from trainmaster.core.base.ids import HostId
from trainmaster.core.base.reasons import Token
from trainmaster.live.adapters import local
from trainmaster.live.agent.processes import is_alive, send
from trainmaster.live.server.resources import History, JobDetail

pytestmark = [pytest.mark.real, pytest.mark.torch, pytest.mark.slow]

STEPS, HOLD = 60, 50
SILENT_S = 3.0
SILENCE_BOUND_S = SILENT_S + 1.0
"""What the test fleet tolerates, and a second."""
SLOW_S = 3 * SILENT_S / (HOLD - 22)
"""Of a step: who is silent is lost long before the job is held."""
HEARTBEAT_STEPS = 20
"""Steps that a job can do between two heartbeats, at most."""
H3, H4 = HostId("h3"), HostId("h4")


@pytest.fixture(scope="module")
def fleet() -> Iterator[House]:
    with running(hosts=4, silent_s=SILENT_S) as house:
        house.reference(STEPS)
        yield house


@pytest.fixture
def house(fleet: House) -> House:
    fleet.settle()
    return fleet


def start(house: House, name: str, spares: int = 1, until_step: int = 22, pace_s: float = PACE_S) -> str:
    """A job that has published two checkpoints and has its spares, and can't end before the gate is opened."""
    name = house.submit(job(name, house.held(STEPS, HOLD, pace_s), spares=spares))
    house.until(name, "it has its spares", lambda detail: len(detail.job.spares) == spares)
    house.wait_step(name, until_step)
    return name


def resumed(house: House, name: str, times: int) -> JobDetail:
    def reached(detail: JobDetail) -> bool:
        done = [incident for incident in detail.account.incidents if incident.resumed_at is not None]
        return len(done) == times and detail.job.attempt_state == "running"

    return house.until(name, f"it trains again, {times} times", reached)


def end(house: House, name: str, epochs: int, planned: int, unplanned: int, heartbeat_steps: int = 1) -> JobDetail:
    """Lets the job end, and checks losses and account. Where no rank survived, the account knows of the last step what
    the last heartbeat told."""
    house.open_gate()
    told = house.finish(name)
    account = told.account
    assert told.job.epoch == epochs
    assert (account.planned_handovers, account.unplanned_recoveries) == (planned, unplanned)
    assert account.steps_lost_planned == 0
    # the last line of rank 0 may not have been written
    assert abs(account.steps_lost_unplanned - house.repeated(name)) <= unplanned * heartbeat_steps
    assert house.hexes(name) == house.reference(STEPS)
    return told


def test_host_of_rank_0_dies(house: House) -> None:
    """1. The host of rank 0 loses its power, and its memory. 2. The spare takes its place, and gets the state from the
    copy that the other host kept: hardly a step is lost. 3. The host boots, is verified and becomes the new spare. 4.
    The losses are those of an undisturbed run."""
    house.drain(H4)
    name = start(house, "rank0")
    before = house.detail(name).job
    victim, spare = before.hosts[0], before.spares[0]
    boot = house.host(victim).boot
    local.kill_host(house.state, victim)
    newest = house.published(name)
    told = resumed(house, name, 1)
    assert house.first_step(name, 2) > max(newest, 10)
    assert "peer memory on 1" in house.cli("job", "logs", name, "--rank", "0").stdout
    assert set(told.job.hosts) == {spare, before.hosts[1]}
    assert told.account.incidents[0].cause.token is Token.HOST_LOST
    assert victim in told.account.incidents[0].cause.sentence
    assert told.account.incidents[0].restored_from == "peer memory"
    house.until(name, f"{victim} is the new spare", lambda detail: detail.job.spares == (victim,))
    states = [chapter.end for chapter in house.get(f"/v1/hosts/{victim}/history", History).items]
    assert states[-3:] == ["out-failed", "verifying", "ready"]
    assert house.host(victim).boot != boot
    told = end(house, name, epochs=2, planned=0, unplanned=1)
    assert told.account.steps_lost_unplanned <= 4


def test_host_of_the_spare_dies(house: House) -> None:
    """1. The spare's host loses its power. 2. Another host becomes the spare; training was not disturbed."""
    name = start(house, "spare")
    (spare,) = house.detail(name).job.spares
    local.kill_host(house.state, spare)
    house.until(name, "another spare", lambda detail: detail.job.spares not in ((), (spare,)))
    house.wait_host(spare, "is ready and free again", lambda view: view.state == "ready" and view.connected)
    told = end(house, name, epochs=1, planned=0, unplanned=0)
    assert told.account.incidents == ()


def test_two_hosts_die_at_once_with_one_spare(house: House) -> None:
    """1. Both hosts of a job lose their power by one switch, and stay dark; there is one spare. 2. The job says what it
    waits for, with numbers. 3. When a host is back, it goes on by itself, in the next epoch."""
    house.drain(H4)
    name = start(house, "two")
    hosts = house.until(name, "heartbeats tell of step 22", lambda detail: detail.job.step >= 22).job.hosts
    with nobody_boots(house):
        local.kill_host(house.state, *hosts)
        told = house.until(name, "it waits", short_of_spares)
    assert told.job.reason is not None
    assert told.job.reason.numbers["vacant"] == 1
    assert "1 of 2 places" in told.job.reason.sentence
    resumed(house, name, 1)
    told = end(house, name, epochs=2, planned=0, unplanned=1, heartbeat_steps=HEARTBEAT_STEPS)
    assert told.account.steps_lost_unplanned >= 2


def test_host_dies_while_the_job_reforms(house: House) -> None:
    """1. A host dies. 2. While the next membership forms, the new host of rank 0 dies as well. 3. The job goes on with
    the two that are left."""
    name = start(house, "again")
    local.kill_host(house.state, house.detail(name).job.hosts[0])
    forming = house.until(name, "the second epoch", lambda detail: detail.job.epoch == 2)
    local.kill_host(house.state, forming.job.hosts[0])
    house.until(name, "the third epoch", lambda detail: detail.job.epoch >= 3)
    house.until(name, "it trains", lambda detail: detail.job.attempt_state == "running" and detail.job.step > 22)
    house.open_gate()
    told = house.finish(name)
    assert told.job.epoch == 3
    assert told.account.unplanned_recoveries >= 1
    assert house.hexes(name) == house.reference(STEPS)


def test_agent_dies_and_server_with_it(house: House) -> None:
    """1. An agent is killed; its workers go on, and it finds them. 2. An agent and the server are killed together.
    3. The job ends in its first epoch."""
    name = start(house, "agents", spares=0, until_step=5)
    host = house.detail(name).job.hosts[0]
    agent = local.process_of(house.state, local.agent_of(host))
    local.kill_agent(house.state, host)
    wait("another agent", lambda: local.process_of(house.state, local.agent_of(host)) not in (None, agent))
    house.wait_host(host, "is connected", lambda view: view.connected)
    agent, server = (local.process_of(house.state, what) for what in (local.agent_of(host), "server"))
    local.kill_agent(house.state, host)
    local.kill_server(house.state)
    wait("another server", lambda: local.process_of(house.state, "server") not in (None, server))
    wait("another agent", lambda: local.process_of(house.state, local.agent_of(host)) not in (None, agent))
    wait("all hosts are connected", lambda: all(view.connected for view in house.hosts().values()))
    told = end(house, name, epochs=1, planned=0, unplanned=0)
    assert told.account.incidents == ()


def test_agent_hangs(house: House) -> None:
    """1. An agent is stopped: connected and silent. 2. Within the heartbeat timeout and a second its host is lost, and
    the job goes on without it. 3. The agent goes on: what ran there is gone, and the host is verified."""
    name = start(house, "hangs", pace_s=SLOW_S)
    victim = house.detail(name).job.hosts[0]
    group = house.group(name, victim)
    assert group is not None
    before = house.index()
    paused_at = time.monotonic()
    local.pause_host(house.state, victim)
    house.wait_host(victim, "is lost", lambda view: view.state == "out-failed")
    assert time.monotonic() - paused_at < SILENCE_BOUND_S
    resumed(house, name, 1)
    local.resume_host(house.state, victim)
    house.wait_host(victim, "is ready", lambda view: view.state == "ready" and view.connected)
    assert not [worker for worker in group.workers if is_alive(worker.process)]
    assert [text for text in house.sentences(before) if re.match(f"{victim}: .*no heartbeat for", text)]
    end(house, name, epochs=2, planned=0, unplanned=1)


def test_host_hangs(house: House) -> None:
    """1. A host hangs as a whole: agent, keeper and workers are stopped, so no connection breaks. 2. It is lost within
    the same bound, and the job goes on. 3. It wakes up: nothing of the old epoch is left, and it is verified."""
    name = start(house, "sleeps", pace_s=SLOW_S)
    victim = house.detail(name).job.hosts[0]
    processes = house.processes(victim)
    assert len(processes) == 3
    paused_at = time.monotonic()
    for process in processes:
        assert send(process, signal.SIGSTOP)
    house.wait_host(victim, "is lost", lambda view: view.state == "out-failed")
    assert time.monotonic() - paused_at < SILENCE_BOUND_S
    resumed(house, name, 1)
    for process in reversed(processes):
        assert send(process, signal.SIGCONT)
    house.wait_host(victim, "is ready", lambda view: view.state == "ready" and view.connected)
    assert [is_alive(process) for process in processes] == [True, False, False]
    end(house, name, epochs=2, planned=0, unplanned=1)


def test_keeper_dies(house: House) -> None:
    """1. The keeper of a member is killed; its worker goes with it. 2. The job goes on with the same hosts, and the
    cause names the keeper."""
    name = start(house, "keeper", spares=0)
    before = house.detail(name).job.hosts
    keeper = house.processes(before[1])[1]
    assert send(keeper, signal.SIGKILL)
    told = resumed(house, name, 1)
    assert told.job.hosts == before
    cause = told.account.incidents[0].cause
    assert cause.token is Token.WORKER_KILLED
    assert f"rank 1 on {before[1]} failed: the keeper of the attempt" in cause.sentence
    end(house, name, epochs=2, planned=0, unplanned=1)


def test_drained_host_hands_over(house: House) -> None:
    """1. A member is drained. 2. The ranks save and leave, a spare takes its place. 3. No step was lost or repeated."""
    name = start(house, "drain")
    leaver = house.detail(name).job.hosts[1]
    house.drain(leaver)
    house.wait_host(leaver, "is out", lambda view: view.state == "out-planned")
    told = end(house, name, epochs=2, planned=1, unplanned=0)
    assert house.repeated(name) == 0
    assert leaver in told.account.incidents[0].left


@contextmanager
def nobody_boots(house: House) -> Iterator[None]:
    """Hosts that lost their power have none until the end of the block."""
    nanny = local.process_of(house.state, "nanny")
    assert nanny is not None
    assert send(nanny, signal.SIGSTOP)
    try:
        yield
    finally:
        send(nanny, signal.SIGCONT)


def asked_to_leave(detail: JobDetail) -> bool:
    return detail.job.reason is not None and detail.job.reason.token is Token.WAITING_FOR_CHECKPOINT


def short_of_spares(detail: JobDetail) -> bool:
    return detail.job.reason is not None and detail.job.reason.token is Token.SPARE_MISSING


def test_drain_waits_for_a_spare(house: House) -> None:
    """1. A member is drained and nobody can take its place: the job trains on and says why it stays. 2. The drain is
    withdrawn: nothing remains of it. 3. It is drained again, another host is resumed, and the job hands over."""
    house.drain(H3, H4)
    name = start(house, "waits", spares=0)
    leaver = house.detail(name).job.hosts[0]
    house.drain(leaver)
    told = house.until(name, "it waits for a spare", short_of_spares)
    assert told.job.reason is not None
    assert leaver in told.job.reason.sentence
    assert told.job.attempt_state == "running"
    house.resume(leaver)
    house.until(name, "nothing is wrong", lambda detail: detail.job.reason is None)
    assert house.host(leaver).state == "ready"
    house.drain(leaver)
    house.until(name, "it waits for a spare", short_of_spares)
    house.resume(H3)
    house.until(name, "it was asked to leave", asked_to_leave)
    told = end(house, name, epochs=2, planned=1, unplanned=0)
    assert house.repeated(name) == 0
    assert told.account.incidents[0].joined == (H3,)


def test_evicted_job_saves_and_comes_back(house: House) -> None:
    """1. A host is drained with a deadline and eviction, and there is no spare. 2. At the deadline the job saves,
    leaves and is queued with its reason. 3. When a host is back it goes on, with no step lost."""
    house.drain(H3, H4)
    name = start(house, "evict", spares=0)
    leaver = house.detail(name).job.hosts[0]
    done = house.cli("host", "drain", leaver, "--deadline", "1s", "--evict", "--reason", "power work", "--yes")
    assert done.returncode == 0, done.stderr
    house.open_gate()
    told = house.until(name, "it is queued", lambda detail: detail.job.state == "queued")
    saved = told.job.published_step
    assert saved == house.published(name)
    told = house.until(name, "it says why it waits", lambda detail: detail.job.reason and detail.job.reason.numbers)
    assert told.job.reason is not None
    assert told.job.reason.token in (Token.NOT_ENOUGH_HOSTS, Token.HOSTS_DRAINING), told.job.reason
    house.resume(H3)
    told = house.finish(name)
    assert told.job.attempt is not None
    assert told.job.attempt.endswith(".a2")
    assert house.first_step(name, 1) == saved + 1
    assert house.repeated(name) == 0
    account = add_up(told).account
    assert (account.planned_handovers, account.unplanned_recoveries) == (1, 0)
    assert account.steps_lost_planned == account.steps_lost_unplanned == 0
    assert house.hexes(name) == house.reference(STEPS)
