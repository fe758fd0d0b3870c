"""The server is killed, again and again; training does not notice."""

import os
import random
import signal
import time

import pytest
from tests.integration.house import House, away_s, job, newest_step, training, wait

from trainmaster.live.adapters import local
from trainmaster.live.agent.processes import send

pytestmark = [pytest.mark.real, pytest.mark.torch, pytest.mark.slow]

KILLS = int(os.environ.get("TRAINMASTER_SERVER_KILLS", "2"))
STEPS_A_KILL = 50
PACE_S = 0.04 if KILLS <= 3 else 0.12
"""The nanny starts a server that is killed again and again later and later; the job has to outlast that."""
FIRST_STEPS = 30
LONG_S = 1.6
"""Longer than the heartbeat timeout of the test fleet."""


def test_killed_server_returns_and_the_job_finishes_in_the_same_epoch(house: House) -> None:
    """1. While a job trains, the server is killed at random moments. 2. Each time it comes back and hears all agents.
    3. The job finishes in its first epoch, with the losses of an undisturbed run, and loses nothing."""
    steps = FIRST_STEPS + STEPS_A_KILL * KILLS
    expected = house.reference(steps)
    chance = random.Random(20)
    name = house.submit(job("train", training(steps, PACE_S), every=20))
    directory = house.directory(name)
    back_s = []
    for kill in range(KILLS):
        house.wait_step(name, 10 + STEPS_A_KILL * kill + chance.randrange(20))
        time.sleep(chance.random() * 0.05)  # anywhere in a step, not just after one
        assert newest_step(directory) < steps, "the kill comes too late to disturb anything"
        before = local.process_of(house.state, "server")
        killed_at = time.monotonic()
        local.kill_server(house.state)
        wait("another server runs", lambda before=before: local.process_of(house.state, "server") not in (None, before))
        wait("both agents are back", lambda: all(host.connected for host in house.hosts().values()))
        back_s.append(time.monotonic() - killed_at)
    told = house.finish(name, 60.0 + KILLS)
    assert (told.job.epoch, told.job.restarts) == (1, 0)
    assert told.account.incidents == ()
    assert told.account.steps == steps
    assert house.hexes(name) == expected
    assert max(back_s) < 10.0, back_s
    assert away_s(told) == []


def test_hung_server_blames_nobody(house: House) -> None:
    """1. The server hangs for longer than a heartbeat may take. 2. Then everything hangs, as on a machine that sleeps.
    3. When they go on, no host is lost for what the server could not hear, and the job ends in its first epoch."""
    steps = 60
    expected = house.reference(steps)
    name = house.submit(job("hang", training(steps, 2 * LONG_S / 40)))
    directory = house.directory(name)
    house.wait_step(name, 5)
    server = local.process_of(house.state, "server")
    assert server is not None
    hung_at, seen = time.monotonic(), newest_step(directory)
    send(server, signal.SIGSTOP)
    wait("training goes on", lambda: time.monotonic() > hung_at + LONG_S and newest_step(directory) > seen + 10)
    everything = house.ours()
    for process in everything:
        send(process, signal.SIGSTOP)
    time.sleep(LONG_S)
    for process in everything:
        send(process, signal.SIGCONT)
    told = house.finish(name)
    assert (told.job.epoch, told.job.restarts) == (1, 0)
    assert house.repeated(name) == 0
    assert house.hexes(name) == expected
    wait("both agents are back", lambda: all(host.connected for host in house.hosts().values()))
    assert {host.state for host in house.hosts().values()} == {"ready"}


def test_training_goes_on_and_ends_without_a_server(house: House) -> None:
    """1. The server is killed and stays away. 2. Steps advance, checkpoints are published, and the job ends. 3. The
    server returns and learns all of it; nothing is done twice."""
    steps = 60
    expected = house.reference(steps)
    name = house.submit(job("alone", training(steps)))
    directory = house.directory(name)
    house.wait_step(name, 10)
    nanny = local.process_of(house.state, "nanny")
    assert nanny is not None
    send(nanny, signal.SIGSTOP)
    try:
        local.kill_server(house.state)
        seen = newest_step(directory)
        wait("five more steps", lambda: newest_step(directory) >= seen + 5)
        wait("the last step", lambda: newest_step(directory) == steps)
        last = directory / "checkpoints" / f"step-{steps:08d}"
        wait("the last checkpoint", last.exists)
    finally:
        send(nanny, signal.SIGCONT)
    told = house.finish(name)
    assert (told.job.epoch, told.job.restarts) == (1, 0)
    assert told.account.steps == told.job.published_step == steps
    assert told.account.incidents == ()
    assert house.repeated(name) == 0
    assert house.hexes(name) == expected
