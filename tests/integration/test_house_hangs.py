"""Ranks that hang, and a job that goes on all the same: the one that hangs is ended, the others are the same processes,
and the losses are those of a quiet run."""

import os
import signal

import pytest
from tests.integration.house import SCRIPTS, House, as_json, job, training

from trainmaster.core.scheduling.request import HangPolicy
from trainmaster.live.agent.processes import ProcessName, is_alive

pytestmark = [pytest.mark.real, pytest.mark.torch, pytest.mark.slow]

STEPS, RANKS = 60, 4
LONG_S = 120.0
"""A rank that stands in code of its own has half a minute; then comes the rest of the job."""


@pytest.fixture(scope="module")
def expected(fleet: House) -> dict[int, str]:
    """Losses of a quiet run of as many ranks."""
    name = start(fleet, "quiet")
    assert fleet.finish(name).job.restarts == 0
    return fleet.hexes(name)


@pytest.fixture(scope="module")
def quiet_sums(fleet: House) -> dict[int, str]:
    """Likewise, where ranks also meet in a small sum."""
    name = start(fleet, "quiet-sums", "small")
    assert fleet.finish(name).job.restarts == 0
    return fleet.hexes(name)


def start(house: House, name: str, collective: str = "barrier", **more: object) -> str:
    directory = house.state / name
    directory.mkdir()
    (directory / collective).touch()
    command = ("python", str(SCRIPTS / "hanging.py"), str(directory), *training(STEPS)[3:])
    return house.submit(job(name, command, ranks_per_host=2, **more))


def workers(house: House, name: str) -> dict[int, ProcessName]:
    return {rank: house.worker(name, rank) for rank in range(RANKS)}


@pytest.mark.parametrize(
    ("kind", "rank"), [("process-stopped", 1), ("user-code-stall", 3), ("desync", 0)], ids=["stopped", "code", "skips"]
)
def test_a_rank_that_hangs(house: House, expected: dict[int, str], kind: str, rank: int) -> None:
    """1. One of four ranks, on two hosts, is stopped by SIGSTOP; stands in its own code; leaves out a collective (that
    is rank 0, which hosts the store). 2. It is ended, with nobody's help, and its place is taken by a new process on
    the same host; the others are the same processes. 3. The incident says which rank, where, and why. 4. The losses
    are equal to those of a quiet run, bit for bit."""
    name = start(house, kind)
    house.until(name, "a dozen steps", lambda told: told.job.step >= 12, LONG_S)
    before, hosts = workers(house, name), house.detail(name).job.hosts
    if kind == "process-stopped":
        os.kill(before[rank].pid, signal.SIGSTOP)
    else:
        (house.state / kind / str(rank)).write_text({"user-code-stall": "stall", "desync": "skip"}[kind])
    house.until(name, "it goes on", lambda told: (told.job.epoch, told.job.attempt_state) == (2, "running"), LONG_S)
    now = workers(house, name)
    assert {other for other in now if now[other] == before[other]} == set(range(RANKS)) - {rank}
    assert not is_alive(before[rank])
    assert house.detail(name).job.hosts == hosts
    told = house.finish(name, LONG_S)
    assert told.job.epoch == 2, told.account.incidents
    (incident,) = told.account.incidents
    assert (incident.cause.token.value, incident.cause.numbers["kind"]) == ("rank-hung", kind)
    assert (incident.ranks, incident.hosts) == ((rank,), (hosts[rank // 2],))
    assert incident.cause.sentence.startswith(f"rank {rank} on {hosts[rank // 2]} hung ({kind}): no step for ")
    assert (incident.stayed, incident.started) == (RANKS - 1, 1)
    shown = as_json(house.cli("job", "incidents", name, "-o", "json").stdout)
    assert "rank-hung" in str(shown)
    assert f"rank {rank} on" in house.cli("job", "show", name).stdout
    assert house.hexes(name) == expected


@pytest.mark.parametrize("rank", range(RANKS))
def test_a_rank_that_leaves_out_what_cannot_be_mixed_up(house: House, quiet_sums: dict[int, str], rank: int) -> None:
    """1. A rank leaves out a small sum, and enters a larger one; gloo ends a rank that gets more bytes than it expects,
    which did as it should. 2. The incident names the rank that left it out, as the recorders tell; it is replaced.
    3. The losses are equal to those of a quiet run, bit for bit."""
    name = start(house, f"astray-{rank}", "small")
    house.until(name, "a dozen steps", lambda told: told.job.step >= 12, LONG_S)
    before, hosts = workers(house, name), house.detail(name).job.hosts
    (house.state / f"astray-{rank}" / str(rank)).write_text("skip")
    told = house.finish(name, LONG_S)
    assert not is_alive(before[rank])
    (incident,) = told.account.incidents
    assert (incident.cause.token.value, incident.cause.numbers["kind"]) == ("rank-hung", "desync"), incident
    assert (incident.ranks, incident.hosts) == ((rank,), (hosts[rank // 2],))
    assert incident.cause.sentence.startswith(f"rank {rank} on {hosts[rank // 2]} went astray (desync) after step ")
    assert house.hexes(name) == quiet_sums


def test_hangs_that_are_only_named(house: House) -> None:
    """1. The job file says so. 2. A rank is stopped: it is named, and left alone. 3. It is let go: the job finishes, in
    its first epoch."""
    name = start(house, "named", hangs=HangPolicy(recover=False))
    house.until(name, "a dozen steps", lambda told: told.job.step >= 12, LONG_S)
    process = house.worker(name, 2)
    os.kill(process.pid, signal.SIGSTOP)
    try:
        house.until(name, "it is named", lambda told: told.job.reason is not None)
        seen = house.detail(name).at
        house.until(name, "ten seconds pass", lambda told: told.at - seen > 10_000_000)
    finally:
        os.kill(process.pid, signal.SIGCONT)
    assert house.finish(name).job.epoch == 1
