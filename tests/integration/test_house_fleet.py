"""Everything is killed at once, or the one that looks after all of it."""

import signal
from collections.abc import Iterator

import pytest
from tests.integration.house import House, job, running, training

from trainmaster.core.scheduling.request import RestartBudget
from trainmaster.live.adapters import local
from trainmaster.live.agent.processes import is_alive, kill_group, send, wait_gone

pytestmark = [pytest.mark.real, pytest.mark.torch, pytest.mark.slow]

STEPS = 60


@pytest.fixture
def house() -> Iterator[House]:
    with running(hosts=2) as house:
        yield house


def test_everything_is_killed_and_brought_up_again(house: House) -> None:
    """1. Nanny, server, agents, keepers and workers are killed while a job trains. 2. `up` on the same state: the job
    goes on from memory, or from its newest checkpoint. 3. It ends with the losses of an undisturbed run. 4. The nanny
    alone is killed while a job trains: `down` still ends everything."""
    expected = house.reference(STEPS)
    name = house.submit(job("all", training(STEPS)))
    house.wait_step(name, 22)
    checkpoints = house.checkpoints(name)
    everything = tuple(house.ours())
    assert len(everything) == 1 + 1 + 2 + 2 + 2
    for process in everything:
        send(process, signal.SIGKILL)
        kill_group(process)
    assert wait_gone(everything, 10.0) == ()
    newest = max(int(path.name[5:]) for path in checkpoints.glob("step-*"))
    up = house.cli("up", str(house.fleet_file), "--state", str(house.state))
    assert up.returncode == 0, up.stderr
    told = house.finish(name)
    assert house.first_step(name, told.job.epoch) > newest
    assert house.hexes(name) == expected
    assert (told.account.planned_handovers, told.account.unplanned_recoveries) == (0, 1)

    house.wait_step(house.submit(job("nanny", training(1000))), 1)
    left = house.ours()
    nanny = local.process_of(house.state, "nanny")
    assert nanny is not None
    send(nanny, signal.SIGKILL)
    assert len(left) == 8
    down = house.cli("down", "--state", str(house.state))
    assert down.returncode == 0, down.stderr
    assert not [process for process in left if is_alive(process)]


def test_down_and_up_lose_no_step(house: House) -> None:
    """1. `down` while a job trains: its ranks save and leave. 2. `up`, `down`, `up`: each time the job goes on with the
    next step. 3. None of it counts against the job, and the losses are those of an undisturbed run."""
    expected = house.reference(STEPS)
    name = house.submit(job("down", training(STEPS), restart=RestartBudget(max_restarts=0)))
    for step in (12, 30):
        house.wait_step(name, step)
        down = house.cli("down", "--state", str(house.state))
        assert down.returncode == 0, down.stderr
        up = house.cli("up", str(house.fleet_file), "--state", str(house.state))
        assert up.returncode == 0, up.stderr
    told = house.finish(name)
    assert house.repeated(name) == 0
    assert house.hexes(name) == expected
    assert (told.account.steps_lost_planned, told.account.steps_lost_unplanned) == (0, 0)
