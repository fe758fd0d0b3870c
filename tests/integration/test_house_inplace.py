"""Ranks that outlive the loss of a peer: who stays is the same process, and the losses are those of a quiet run."""

import os
from collections.abc import Iterator

import pytest
from tests.integration.house import SCRIPTS, House, job, running, wait

from trainmaster.core.base.ids import HostId
from trainmaster.core.scheduling.request import RestartBudget
from trainmaster.live.adapters import local
from trainmaster.live.agent.processes import ProcessName, is_alive, send
from trainmaster.live.server.resources import JobDetail

pytestmark = [pytest.mark.real, pytest.mark.torch, pytest.mark.slow]

STEPS, HOSTS = 60, 3
HELD = 55
"""No job takes this step before its test wants its end."""


@pytest.fixture(scope="module")
def fleet() -> Iterator[House]:
    with running(hosts=HOSTS + 1) as house:
        yield house


@pytest.fixture
def house(fleet: House) -> House:
    fleet.settle()
    return fleet


def start(house: House, name: str, **more: object) -> str:
    """A job of three ranks and a spare that has done a dozen steps."""
    name = house.submit(job(name, house.held(STEPS, HELD), spares=1, hosts=HOSTS, **more))
    house.wait_step(name, 12)
    return name


def end(house: House, name: str) -> JobDetail:
    house.open_gate()
    return house.finish(name)


def workers(house: House, name: str) -> dict[int, ProcessName]:
    return {rank: house.worker(name, rank) for rank in range(HOSTS)}


def after(house: House, name: str, epoch: int) -> dict[int, ProcessName]:
    """The workers once this epoch runs."""
    house.until(
        name, f"epoch {epoch} runs", lambda told: (told.job.epoch, told.job.attempt_state) == (epoch, "running")
    )
    return workers(house, name)


@pytest.mark.parametrize("rank", [0, 2])
def test_killed_worker(house: House, rank: int) -> None:
    """1. A worker is killed; once it is rank 0, which hosts the store. 2. The others go on in the next epoch as the
    same processes, its place is taken by a new one. 3. The losses are equal to those of a quiet run, bit for bit."""
    expected = house.reference(STEPS, hosts=HOSTS)
    name = start(house, "worker")
    before = workers(house, name)
    assert send(before[rank], 9)
    now = after(house, name, 2)
    assert {other for other in now if now[other] == before[other]} == {0, 1, 2} - {rank}
    told = end(house, name)
    assert told.job.epoch == 2
    (incident,) = told.account.incidents
    assert (incident.stayed, incident.started) == (HOSTS - 1, 1)
    assert house.hexes(name) == expected


@pytest.mark.parametrize("standby", [False, True])
def test_killed_host(house: House, standby: bool) -> None:
    """1. A host dies with all that is on it. 2. The spare takes its place; with standby by a process that was there
    before. 3. The others are the same processes. 4. Losses are equal."""
    expected = house.reference(STEPS, hosts=HOSTS)
    name = start(house, "host", restart=RestartBudget(standby=standby))
    members = house.detail(name).job.hosts
    (spare,) = set(house.hosts()) - set(members)
    ahead = house.children(spare)
    assert len(ahead) == int(standby)
    before = workers(house, name)
    local.kill_host(house.state, members[0])
    now = after(house, name, 2)
    assert {rank for rank in now if now[rank] == before[rank]} == {1, 2}
    assert house.detail(name).job.hosts[0] == spare
    assert (now[0].pid in ahead) == standby
    end(house, name)
    assert house.hexes(name) == expected


def test_survivors_whose_model_is_kept_with_its_gradients(house: House) -> None:
    """1. A script that keeps its model from one membership to the next, and makes its optimizer anew: the survivors'
    parameters still have gradients. 2. A worker is killed. 3. All ranks get their moments back, from memory: at most
    a step is lost, and the losses are those of a quiet run, bit for bit."""
    command = ("python", str(SCRIPTS / "kept.py"), "40")
    quiet = house.submit(job("kept-quiet", (*command, "0"), hosts=HOSTS))
    assert house.finish(quiet).job.restarts == 0
    name = house.submit(job("kept", (*command, "0.1"), hosts=HOSTS))
    house.wait_step(name, 8)
    assert send(house.worker(name, 1), 9)
    told = house.finish(name)
    (incident,) = told.account.incidents
    assert told.job.epoch == 2
    assert incident.steps_lost <= 1
    assert incident.restored_from.endswith("memory")
    assert house.hexes(name) == house.hexes(quiet)


def test_killed_standby_is_started_again(house: House) -> None:
    """1. The worker that waits on the spare is killed. 2. Another one waits there. 3. The job did not notice."""
    name = start(house, "again", restart=RestartBudget(standby=True))
    (spare,) = set(house.hosts()) - set(house.detail(name).job.hosts)
    (waiting,) = wait("one waits", lambda: house.children(spare))
    os.kill(waiting, 9)
    wait("another waits", lambda: house.children(spare) - {waiting})
    assert end(house, name).job.epoch == 1


def test_survivor_killed_while_it_is_adrift(house: House) -> None:
    """1. A worker is killed, and the agents of its host and of another one do not answer: who survives on that one
    waits, adrift, whatever the server asks of it. 2. It is killed there. 3. The agents are back: its place is filled by
    a fork, the third one is the same process. 4. Losses are equal."""
    expected = house.reference(STEPS, hosts=HOSTS)
    name = house.submit(job("adrift", house.held(STEPS, HELD), hosts=HOSTS))
    house.wait_step(name, 12)
    (spare,) = set(house.hosts()) - set(house.detail(name).job.hosts)
    house.drain(spare)
    before = workers(house, name)
    silent = house.detail(name).job.hosts[1:]
    log = local.host_dir(house.state, silent[0]) / "logs" / f"{house.detail(name).job.id}.a1" / "epoch-1-rank-1.log"
    for host in silent:
        local.pause_host(house.state, host)
    assert send(before[2], 9)
    wait("rank 1 is adrift", lambda: log.exists() and "left epoch 1" in log.read_text())
    assert send(before[1], 9)
    wait("it is gone", lambda: not is_alive(before[1]))
    for host in silent:
        local.resume_host(house.state, host)
    now = after(house, name, 2)
    assert {rank for rank in now if now[rank] == before[rank]} == {0}
    end(house, name)
    house.resume(spare)
    assert house.hexes(name) == expected


def test_yield_and_drain_keep_processes(house: House) -> None:
    """1. A host drains. 2. The ranks save and leave; who stays is the same process afterwards. 3. Losses are equal."""
    expected = house.reference(STEPS, hosts=HOSTS)
    name = start(house, "drain")
    before = workers(house, name)
    leaving = HostId(house.detail(name).job.hosts[1])
    house.drain(leaving)
    now = after(house, name, 2)
    house.resume(leaving)
    assert {rank for rank in now if now[rank] == before[rank]} == {0, 2}
    end(house, name)
    assert house.hexes(name) == expected
    assert house.repeated(name) == 0
