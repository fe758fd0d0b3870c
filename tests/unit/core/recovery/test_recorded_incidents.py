"""Recorded incidents of other people's jobs; `tests/cases/*/expected.md` has the right verdict for each."""

import json
import re
from pathlib import Path

from tests.unit.fixtures import failure, job_spec, of_kind, stage

from trainmaster.core.base.ids import HostId
from trainmaster.core.base.reasons import Token
from trainmaster.core.effects import LaunchWorkers, PrepareAttempt, ReserveStore
from trainmaster.core.recovery.attempt import FORM_DEADLINE, AttemptState
from trainmaster.core.recovery.node_check import judge
from trainmaster.core.recovery.port_conflict import port_conflict
from trainmaster.core.scheduling.job import JobState

CASES = Path(__file__).parents[3] / "cases"
LOST_STORE = CASES / "12-rendezvous-host-lost"
ALL_FAILED = CASES / "16-everything-failed-the-check"
PORT_TAKEN = CASES / "18-port-taken-by-neighbour"


def test_the_host_of_the_store_dies() -> None:
    """Field case 12. 1. The store of the ranks lives on the first host; it dies, and the survivor fails with what the
    log has. 2. The lost host is the cause; the survivor is a victim: not drained, not blamed, it keeps its place.
    3. The next epoch has a new store on a host that lives."""
    endpoint = re.search(r"--rdzv_endpoint (\S+):", (LOST_STORE / "launch.txt").read_text())
    victim = re.search(r"error of type (\w+)\.", (LOST_STORE / "gpu-002.log").read_text())
    assert endpoint
    assert victim
    play = stage(3)
    names = {"gpu-001": "h1", "gpu-002": "h2"}
    attempt = play.running(job_spec(hosts=2, spares=1))
    (store,) = of_kind(play.sent, ReserveStore)
    assert store.host == names[endpoint[1]]
    play.exit(attempt, 1, "failed", failure(victim[1], "failed to send a keep-alive heartbeat to the rendezvous '123'"))
    play.disconnect("h1")
    cause = attempt.epochs[0].cause
    assert cause is not None
    assert cause.token is Token.HOST_LOST
    assert "h1" in cause.sentence
    assert attempt.members == ("h3", "h2")
    assert play.states("h2") == ["ready"]
    assert play.host("h2").holds == ()
    (new_store,) = play.pending(ReserveStore)
    assert (new_store.host, new_store.epoch) == ("h3", 2)
    play.train(attempt)
    assert attempt.state is AttemptState.RUNNING


def test_the_other_host_dies() -> None:
    """Field case 12, the other way round: a loss of the second host is survived just the same, with the first kept."""
    play = stage(3)
    attempt = play.running(job_spec(hosts=2, spares=1))
    play.fall_silent("h2")
    assert attempt.members == ("h1", "h3")


def test_all_initial_hosts_fail_the_check() -> None:
    """Field case 16. 1. All four initial workers failed, four replacements are still starting. 2. Judged on the initial
    set it is common, whatever the records of the others say. 3. Judged on all records it would not be."""
    nodes = json.loads((ALL_FAILED / "nodes.json").read_text())
    workers = json.loads((ALL_FAILED / "config.json").read_text())["workers"]
    failures = {HostId(node["host"]): node["exit_reason"] for node in nodes if node["status"] == "FAILED"}
    initial = [HostId(node["host"]) for node in nodes if node["id"] < workers]
    verdict = judge(initial, failures)
    assert verdict.common
    assert (len(verdict.failed), verdict.initial) == (4, 4)
    assert "no host is to blame" in verdict.sentence("pass the check")
    assert not judge([HostId(node["host"]) for node in nodes], failures).common


def test_some_failures_are_not_common() -> None:
    hosts = [HostId(name) for name in "abcd"]
    verdict = judge(hosts, {hosts[1]: "disk full", HostId("x"): "another's"})
    assert not verdict.common
    assert verdict.failed == ("b",)
    assert verdict.sentence("launch") == "1 of 4 hosts could not launch"
    assert not judge(hosts[:1], {hosts[0]: "disk full"}).common


def test_a_launch_that_fails_on_all_hosts_ends_the_job() -> None:
    """Field case 16, through the engine. 1. All hosts of a gang fail to launch. 2. The job stops at once; it does not
    burn the replacements. 3. No host is marked bad: all are free again."""
    play = stage(6)
    job = play.submit(job_spec(hosts=4, spares=1))
    play.settle(PrepareAttempt, ReserveStore)
    for launch in play.pending(LaunchWorkers):
        play.answer(launch, "failed", "libcudart.so.12: cannot open shared object file")
    assert job.state is JobState.FAILED
    assert job.reason is not None
    assert job.reason.token is Token.EFFECT_FAILED
    assert job.reason.sentence.startswith("4 of 4 hosts could not launch: the cause is common")
    assert "libcudart" in job.reason.sentence
    assert job.reason.numbers["hosts"] == 4
    assert len(job.attempts) == 1
    play.settle()
    assert play.states(*(f"h{n}" for n in range(1, 7))) == ["ready"] * 6
    assert all(host.is_free() for host in play.engine.state.hosts.values())


def test_a_preparation_that_fails_on_all_hosts_ends_the_job() -> None:
    play = stage(3)
    job = play.submit(job_spec(hosts=3))
    for prepare in play.pending(PrepareAttempt):
        play.answer(prepare, "failed", "no such directory: /data/run")
    assert job.state is JobState.FAILED
    assert job.reason is not None
    assert "3 of 3 hosts could not prepare" in job.reason.sentence


def test_unknown_outcomes_are_no_votes() -> None:
    """1. A server changes, and no agent can tell what became of its launch. 2. That is no failure of all hosts: the job
    is tried again."""
    play = stage(2)
    job = play.submit(job_spec(hosts=2))
    play.settle(PrepareAttempt, ReserveStore)
    for launch in play.pending(LaunchWorkers):
        play.answer(launch, "unknown")
    assert job.state is JobState.ACTIVE
    assert len(job.failures) == 1


def test_a_launch_that_fails_on_one_host_is_tried_again() -> None:
    """1. One of two hosts cannot launch; the other could. 2. After the settling time at the latest it is decided: one
    failure of the budget, and the next epoch."""
    play = stage(2)
    attempt = play.attempt(play.submit(job_spec(hosts=2)).attempts[-1])
    play.settle(PrepareAttempt, ReserveStore)
    launch = play.pending(LaunchWorkers, "h2")[0]
    play.answer(launch, "failed", "No space left on device")
    assert attempt.undecided
    play.wait(0.5)
    assert not attempt.undecided
    assert attempt.epoch.number == 2
    assert [note.host for note in play.job("job-1").failures] == ["h2"]
    assert attempt.epochs[0].cause is not None
    assert attempt.epochs[0].cause.sentence == "host h2 could not launch: No space left on device"
    play.train(attempt)
    assert attempt.state is AttemptState.RUNNING


def test_nobody_forms_in_time() -> None:
    """1. No host of a gang answers (a storage that hangs for all). 2. At the deadline the job ends with that reason;
    the hosts are not lost for it."""
    play = stage(2)
    job = play.submit(job_spec(hosts=2))
    play.wait(FORM_DEADLINE / 1e6)
    assert job.state is JobState.FAILED
    assert job.reason is not None
    assert job.reason.sentence.startswith("2 of 2 hosts could not form the job")
    assert play.states("h1", "h2") == ["ready", "ready"]


def test_a_port_that_a_neighbour_has() -> None:
    """Field case 18. 1. The text names the port. 2. The live neighbour is a candidate; the process that hangs in the
    kernel is told apart; the launch that failed, three seconds old, is neither."""
    found = port_conflict((PORT_TAKEN / "err.log").read_text(), (PORT_TAKEN / "ps.txt").read_text())
    assert found is not None
    assert found.port == 29_400
    assert [each.pid for each in found.neighbours] == [41_022]
    assert [(each.pid, each.age_s) for each in found.leftovers] == [(38_801, 98_405)]
    assert found.sentence() == (
        "port 29400 is taken; candidates: pid 41022 (torchrun --nproc_per_node=4 exp_a.py); "
        "pid 38801 hangs in the kernel (state D) and ends only with a reboot"
    )


def test_a_taken_port_gets_another_one() -> None:
    """Field case 18, through the engine. 1. Rank 0 can't bind. 2. The reason is the port, not the network; no host is
    drained or left. 3. The next epoch reserves another store."""
    text = (PORT_TAKEN / "err.log").read_text().splitlines()[0]
    play = stage(3)
    attempt = play.running(job_spec(hosts=2, spares=1))
    play.exit(attempt, 0, "failed", failure("DistNetworkError", text))
    cause = attempt.epochs[0].cause
    assert cause is not None
    assert cause.token is Token.PORT_TAKEN
    assert cause.sentence == "rank 0 on h1 failed: port 29400 is taken; the next launch takes another port"
    assert attempt.members == ("h1", "h2")
    assert play.host("h1").holds == ()
    assert [effect.epoch for effect in play.pending(ReserveStore)] == [2]


def test_other_errors_are_no_port_conflict() -> None:
    assert port_conflict("The client socket has failed to connect to [gpu-001]:29500 (errno: 111)") is None
    assert port_conflict("ValueError: 98") is None
    unnamed = port_conflict("OSError: [Errno 98] Address already in use")
    assert unnamed is not None
    assert unnamed.port is None
    assert unnamed.sentence() == "its port is taken"
