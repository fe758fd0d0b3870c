"""Workers of one host that serve several epochs: adrift, joining, killed where they do not come out, started ahead."""

import os
import re
import signal
from pathlib import Path

import pytest
from tests.integration.agent_host import ATTEMPT, AgentHost, eventually, is_gone

from trainmaster.core.recovery.events import WorkerExited

pytestmark = [pytest.mark.real, pytest.mark.torch]
WARM = ("torch", "torch.distributed", "trainmaster.training.inplace")

SCRIPT = """
import os, sys, time
import torch.distributed as dist
import trainmaster.training as tm

def prepare():
    print("prepares in pid", os.getpid(), flush=True)
    return os.getpid()

def train(session, prepared):
    epoch = int(os.environ["TRAINMASTER_EPOCH"])
    assert prepared == os.getpid()
    print("pid", os.getpid(), flush=True)
    print("enters epoch", epoch, "as rank", session.rank, "of", session.world, flush=True)
    if epoch == 1 and session.rank == 1:
        while True:
            {on_rank_1}
    dist.barrier()
    if epoch == 1:
        dist.barrier()

tm.run(train, prepare)
"""
HANGS = SCRIPT.format(on_rank_1="time.sleep(0.01)")
RAISES = SCRIPT.format(on_rank_1="raise ValueError('not a number')")


def start(host: AgentHost, script: str, standby: int = 0) -> None:
    """Two ranks of epoch 1, which are in `train`."""
    host.script(script)
    prepared = host.prepare(preload=WARM).but(standby=standby)
    assert host.server.do(prepared, timeout_s=60).detail == ""
    if standby:
        for index in range(standby):
            eventually(lambda index=index: "waits for a rank" in standby_log(host, index), timeout_s=60)
    launch(host, 1)
    for rank in range(2):
        host.said("enters epoch 1", rank)


def standby_log(host: AgentHost, index: int) -> str:
    path: Path = host.paths.standby_log(ATTEMPT, index)
    return path.read_text() if path.exists() else ""


def launch(host: AgentHost, epoch: int) -> None:
    port = int(host.server.do(host.reserve(epoch)).numbers["port"])
    assert host.server.do(host.launch(epoch=epoch, ranks=2, port=port)).outcome == "done"


def ends(host: AgentHost, epoch: int) -> dict[int, WorkerExited]:
    """The ends of both ranks in an epoch."""

    def look() -> dict[int, WorkerExited] | None:
        found = {exit.rank: exit for exit in host.server.of(WorkerExited) if exit.epoch == epoch}
        return found if len(found) == 2 else None

    return host.server.wait(look)


def test_one_comes_out_and_one_hangs(host: AgentHost) -> None:
    """1. Rank 0 waits in a collective, rank 1 loops in code of its own. 2. They are to leave the epoch and live: rank 0
    does, rank 1 is killed when its time is up; both are told as stopped. 3. In the next epoch rank 0 is the same
    process, rank 1 a new one; its log is that of the new epoch; they finish."""
    start(host, HANGS)
    before = [host.worker_pid(rank) for rank in range(2)]
    assert host.server.do(host.stop().but(keep=True)).outcome == "done"
    told = ends(host, 1)
    assert {exit.how for exit in told.values()} == {"stopped"}
    assert (told[0].signal, told[1].signal) == (None, signal.SIGKILL)
    assert is_gone(before[1])
    assert not is_gone(before[0])
    launch(host, 2)
    now = [host.worker_pid(rank, 2) for rank in range(2)]
    assert now[0] == before[0]
    assert now[1] != before[1]
    assert {exit.how for exit in ends(host, 2).values()} == {"finished"}
    assert "prepares" not in host.log_text(0, 2)
    assert "prepares" in host.log_text(1, 2)


def test_a_rank_that_is_not_to_live_on(host: AgentHost) -> None:
    """1. Rank 0 waits in a collective, and could leave. 2. It is named as one to kill: it is killed all the same, as
    one that was stopped. 3. A new process has its place in the next epoch."""
    start(host, HANGS)
    before = host.worker_pid(0)
    assert host.server.do(host.stop().but(keep=True, kill=(0,))).outcome == "done"
    told = ends(host, 1)
    assert (told[0].how, told[0].signal) == ("stopped", signal.SIGKILL)
    assert is_gone(before)
    launch(host, 2)
    assert host.worker_pid(0, 2) != before
    assert {exit.how for exit in ends(host, 2).values()} == {"finished"}


def test_an_error_of_the_script_ends_the_process(host: AgentHost) -> None:
    """1. Rank 1 raises an error of its own: it ends, with that error. 2. Rank 0 lost a peer: it is told as failed with
    an echo, and lives. 3. It dies while it is adrift, which is told to nobody. 4. The next epoch has two new ones."""
    start(host, RAISES)
    before = [host.worker_pid(rank) for rank in range(2)]
    told = ends(host, 1)
    assert told[1].failure is not None
    assert (told[1].failure.exception, told[1].exit_code) == ("ValueError", 1)
    assert told[0].failure is not None
    assert "lost its peers" in told[0].failure.message
    assert (told[0].how, told[0].phase.name) == ("failed", "GROUPED")
    host.said("left epoch 1", 0)
    assert is_gone(before[1])
    os.kill(before[0], signal.SIGKILL)
    eventually(lambda: is_gone(before[0]))
    launch(host, 2)
    assert not {host.worker_pid(rank, 2) for rank in range(2)} & set(before)
    assert {exit.how for exit in ends(host, 2).values()} == {"finished"}
    assert len([exit for exit in host.server.of(WorkerExited) if exit.epoch == 1]) == 2


def test_started_ahead(host: AgentHost) -> None:
    """1. Two workers are started ahead and prepare. 2. The launch gives each its place. 3. A stop for good ends those
    that are in an epoch, at once."""
    start(host, HANGS, standby=2)
    ahead = [int(re.findall(r"in pid (\d+)", standby_log(host, index))[0]) for index in range(2)]
    assert [host.worker_pid(rank) for rank in range(2)] == ahead
    assert host.server.do(host.stop()).outcome == "done"
    assert all(map(is_gone, ahead))


def test_agent_dies_meanwhile(host: AgentHost) -> None:
    """1. A rank comes adrift while there is no agent. 2. A new agent tells its end, and launches the next epoch with
    the same process."""
    start(host, RAISES)
    before = host.worker_pid(0)
    host.kill_agent()
    host.said("left epoch 1", 0)
    host.start_agent()
    assert ends(host, 1)[0].how == "failed"
    launch(host, 2)
    assert host.worker_pid(0, 2) == before
    assert {exit.how for exit in ends(host, 2).values()} == {"finished"}


def test_released_while_it_is_adrift(host: AgentHost) -> None:
    """A worker that waits for an epoch goes with its attempt."""
    start(host, RAISES)
    host.said("left epoch 1", 0)
    assert host.server.do(host.release()).outcome == "done"
    assert is_gone(host.worker_pid(0))
