"""Cause or echo? What training processes really print when one of them goes away, and what they print of their own."""

from collections.abc import Iterable

import pytest
from tests.unit.fixtures import failure

from trainmaster.core.agent.board import Phase
from trainmaster.core.base.ids import AttemptId, HostId
from trainmaster.core.base.reasons import Token
from trainmaster.core.base.time import Instant, seconds
from trainmaster.core.recovery.cause import FirstCause, describe, first_cause, is_echo, signature, undetermined
from trainmaster.core.recovery.events import How, WorkerExited
from trainmaster.core.recovery.exits import alone

ECHOES = {
    "gloo-closed": (
        "RuntimeError",
        "[../third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by peer [10.0.0.7]:43210",
    ),
    "gloo-read": (
        "RuntimeError",
        "[../third_party/gloo/gloo/transport/tcp/pair.cc:547] Read error [10.0.0.7]:4712: Connection reset by peer",
    ),
    "gloo-write": (
        "RuntimeError",
        "[../third_party/gloo/gloo/transport/tcp/pair.cc:453] writev [10.0.0.7]: Broken pipe",
    ),
    "gloo-wait": (
        "RuntimeError",
        "[../third_party/gloo/gloo/transport/tcp/unbound_buffer.cc:78] Timed out waiting 1800000ms for recv operation "
        "to complete",
    ),
    "gloo-pair": (
        "RuntimeError",
        "[../third_party/gloo/gloo/transport/tcp/pair.cc:526] Application timeout caused pair closure",
    ),
    "gloo-barrier": ("RuntimeError", "Rank 3 failed to pass monitoredBarrier in 1800000 ms"),
    "broken-pipe": ("BrokenPipeError", "[Errno 32] Broken pipe"),
    "network": ("DistNetworkError", "recvBytes failed, remote address is 10.0.0.1:29500"),
    "store-refused": (
        "DistNetworkError",
        "The client socket has failed to connect to [gpu-001]:29500 (errno: 111 - Connection refused).",
    ),
    "store-wait": ("DistStoreError", "wait timeout after 300000ms, keys: /default_pg/0//cuda/0/0"),
    "nccl-remote": (
        "DistBackendError",
        "NCCL error in: ../torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp:2201, remote process exited or there was a "
        "network error, NCCL version 2.21.5",
    ),
    "nccl-exiting": (
        "DistBackendError",
        "ncclRemoteError: A call failed possibly due to a network error or a remote process exiting prematurely.",
    ),
    "nccl-aborted": ("DistBackendError", "NCCL communicator was aborted on rank 0."),
    "nccl-watchdog": (
        "DistBackendError",
        "[Rank 5] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=42, OpType=ALLREDUCE, "
        "Timeout(ms)=600000) ran for 600013 milliseconds before timing out.",
    ),
    "rendezvous": (
        "RendezvousConnectionError",
        "The connection to the C10d store has failed. See inner exception for details.",
    ),
}
OWN = {
    "value": ("ValueError", "Expected input batch_size (4) to match target batch_size (8)."),
    "oom": (
        "OutOfMemoryError",
        "CUDA out of memory. Tried to allocate 2.50 GiB. GPU 3 has a total capacity of 79.11 GiB of which 1.06 GiB is "
        "free.",
    ),
    "module": ("ModuleNotFoundError", "No module named 'flash_attn'"),
    "assertion": ("AssertionError", "loss is nan at step 4711"),
    "restore": ("RuntimeError", "could not restore the optimizer: file is closed"),
    "loader": ("RuntimeError", "DataLoader worker (pid 812) is killed by signal: Killed."),
    "device": ("AcceleratorError", "CUDA error: uncorrectable ECC error encountered"),
    "port": (
        "DistNetworkError",
        "The server socket has failed to listen on any local network address. port: 29400, useIpv6: false, code: -98, "
        "name: EADDRINUSE, message: address already in use",
    ),
}


def exit_of(
    rank: int,
    error: tuple[str, str] | None = None,
    at: float = 1.0,
    how: How = "failed",
    signal: int | None = None,
    host: str = "",
) -> WorkerExited:
    return WorkerExited(
        at=Instant(seconds(at)),
        host=HostId(host or f"h{rank}"),
        attempt=AttemptId("job-1.a1"),
        epoch=1,
        rank=rank,
        how=how,
        exit_code=None if signal else 1,
        signal=signal,
        attached=True,
        phase=Phase.TRAINING,
        step=7,
        step_at=Instant(0),
        save_s=0.0,
        failure=failure(*error) if error else None,
    )


def judged(lost: Iterable[tuple[HostId, Instant, str]], exits: Iterable[WorkerExited]) -> FirstCause | None:
    return first_cause(lost, map(alone, exits))


@pytest.mark.parametrize("name", ECHOES)
def test_an_echo_is_no_cause(name: str) -> None:
    """1. All that is known is that a peer went away. 2. No cause has a name, however many say so."""
    exits = [exit_of(rank, ECHOES[name]) for rank in range(3)]
    assert all(is_echo(each) for each in exits)
    assert judged([], exits) is None


@pytest.mark.parametrize("echo", ECHOES)
@pytest.mark.parametrize("name", OWN)
def test_an_own_failure_outranks_earlier_echoes(name: str, echo: str) -> None:
    """1. Two ranks shout first, since a broken connection is noticed at once. 2. The culprit's exit comes last. 3. It
    is the cause all the same."""
    exits = [exit_of(0, ECHOES[echo], at=1.0), exit_of(1, ECHOES[echo], at=1.1), exit_of(2, OWN[name], at=1.9)]
    cause = judged([], exits)
    assert cause is not None
    assert (cause.rank, cause.host) == (2, "h2")
    assert cause.job_fault
    assert OWN[name][1].partition(".")[0] in cause.reason.sentence or name == "port"


def test_the_earliest_of_several_own_failures() -> None:
    exits = [exit_of(0, OWN["oom"], at=2.0), exit_of(1, OWN["oom"], at=1.5), exit_of(2, OWN["value"], at=1.6)]
    cause = judged([], exits)
    assert cause is not None
    assert cause.rank == 1
    assert cause.at == seconds(1.5)


def test_a_kill_is_a_cause() -> None:
    """1. A rank dies of SIGKILL and leaves no text. 2. It is the cause, and the sentence has the signal."""
    cause = judged([], [exit_of(0, ECHOES["gloo-closed"], at=1.0), exit_of(1, signal=9, at=1.2)])
    assert cause is not None
    assert cause.reason.token is Token.WORKER_KILLED
    assert cause.reason.sentence == "rank 1 on h1 was killed by signal 9"
    assert cause.signature == "signal 9"


def test_a_kill_as_agents_tell_it() -> None:
    """1. An agent fills in the name of the signal as the failure. 2. It is a kill all the same."""
    cause = judged([], [exit_of(1, ("SIGKILL", "killed by SIGKILL"), signal=9)])
    assert cause is not None
    assert cause.reason.token is Token.WORKER_KILLED
    assert cause.reason.sentence == "rank 1 on h1 was killed by SIGKILL"


def test_a_rank_that_went_with_its_keeper() -> None:
    """1. The keeper dies, and the kernel kills its workers. 2. The agent's note makes a sentence."""
    cause = judged([], [exit_of(1, ("SIGKILL", "the keeper ended, and its workers with it"), signal=9)])
    assert cause is not None
    assert cause.reason.token is Token.WORKER_KILLED
    assert cause.reason.sentence == "rank 1 on h1 failed: the keeper ended, and its workers with it"


def test_an_abort_with_an_error_of_its_own_is_no_kill() -> None:
    cause = judged([], [exit_of(1, ("AcceleratorError", "CUDA error: device-side assert"), signal=6)])
    assert cause is not None
    assert cause.reason.token is Token.WORKER_EXITED


def test_a_bare_exit_code_is_a_cause() -> None:
    cause = judged([], [exit_of(3)])
    assert cause is not None
    assert cause.reason.sentence == "rank 3 on h3 failed: exit code 1"


def test_a_lost_host_explains_everything() -> None:
    """1. A host is lost, and a survivor fails with an error of its own. 2. The host is the cause; the job is not."""
    lost = [(HostId("h9"), Instant(seconds(0.9)), "its agent's connection closed")]
    cause = judged(lost, [exit_of(0, OWN["value"], at=0.5)])
    assert cause is not None
    assert cause.reason.token is Token.HOST_LOST
    assert (cause.host, cause.job_fault) == ("h9", False)


def test_of_several_lost_hosts_the_first_to_go_is_named() -> None:
    lost = [(HostId("h2"), Instant(20), "silent"), (HostId("h1"), Instant(10), "it rebooted")]
    cause = judged(lost, [])
    assert cause is not None
    assert cause.reason.sentence == "host h1 was lost: it rebooted (and 1 more)"


def test_a_clean_exit_is_no_failure() -> None:
    exits = [exit_of(0, how="finished"), exit_of(1, how="yielded"), exit_of(2, how="stopped", signal=9)]
    assert judged([], exits) is None


def test_when_only_echoes_came_the_first_to_notice_is_told() -> None:
    exits = [exit_of(1, ECHOES["broken-pipe"], at=1.0), exit_of(0, ECHOES["network"], at=1.4)]
    cause = undetermined(map(alone, exits), Instant(seconds(2)))
    assert cause.reason.token is Token.PEER_LOST
    assert cause.at == seconds(1.0)
    assert "first to notice was rank 1 on h1: BrokenPipeError" in cause.reason.sentence
    assert cause.host is None
    assert "nobody" in undetermined([], Instant(0)).reason.sentence


def test_where_it_failed_is_told_if_known() -> None:
    known = exit_of(0, OWN["value"])
    assert known.failure is not None
    known = known.but(failure=known.failure.but(location="train.py:88"))
    assert describe(known).endswith("(train.py:88)")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (("ValueError", "bad row 17 of 2048"), ("ValueError", "bad row 9911 of 2048")),
        (("RuntimeError", "at 0x7f3a9c00"), ("RuntimeError", "at 0x55d1e210")),
        (("OSError", "cannot write /tmp/tmpx8_2k1/shard"), ("OSError", "cannot write /tmp/tmpq77abc/shard")),
        (("RuntimeError", "peer [10.0.0.7]:4711 said no"), ("RuntimeError", "peer [10.0.0.8]:999 said no")),
        (("OutOfMemoryError", "tried 2.50 GiB"), ("OutOfMemoryError", "tried 12.25 GiB")),
    ],
)
def test_the_same_failure_has_the_same_signature(one: tuple[str, str], other: tuple[str, str]) -> None:
    assert signature(exit_of(0, one)) == signature(exit_of(5, other))


def test_another_failure_has_another_signature() -> None:
    names = [signature(exit_of(0, text)) for text in OWN.values()]
    assert len(set(names)) == len(names)
    assert signature(exit_of(0, signal=9)) != signature(exit_of(0, signal=11)) != signature(exit_of(0))
