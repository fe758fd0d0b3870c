"""Where the time of a job went: to the microsecond, and without flattery."""

import csv
import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.fixtures import Stage, failure, host_spec, job_spec, stage

from trainmaster.core.accounting.goodput import account
from trainmaster.core.accounting.timeline import members, timeline
from trainmaster.core.agent.board import Phase
from trainmaster.core.base.ids import AttemptId, ClusterId, HostId, JobId, Owner
from trainmaster.core.base.time import Instant, seconds
from trainmaster.core.effects import LaunchWorkers, ReleaseAttempt, ReserveStore
from trainmaster.core.fleet.events import Reached
from trainmaster.core.recovery.attempt import Attempt, AttemptState, Epoch
from trainmaster.core.recovery.cause import first_cause
from trainmaster.core.recovery.events import WorkerExited
from trainmaster.core.recovery.exits import alone
from trainmaster.core.scheduling.job import Job, JobState
from trainmaster.core.scheduling.request import RestartBudget

CASE = Path(__file__).parents[3] / "cases" / "94-account-for-one-incident"


def test_a_job_without_an_attempt_only_waits() -> None:
    play = stage(1)
    play.submit(job_spec(hosts=2))
    play.wait(100)
    result = play.account("job-1")
    assert result.seconds_by_phase == {"queue": 100.0}
    assert result.goodput == 0.0
    assert result.steps == 0


def test_a_job_without_a_life_has_no_goodput() -> None:
    play = stage(1)
    play.submit(job_spec(hosts=2))
    assert play.account("job-1").goodput == 0.0


def test_each_second_of_a_plain_run() -> None:
    """1. A job waits 10 s for its host, 1 s for a store, 2 s for its group, 3 s for its state, 4 s for its first step.
    2. It trains 100 s, 5 s of them in saves, and takes 1 s to finish. 3. Every phase has exactly that."""
    play = stage(1, ready=False)
    play.submit(job_spec(hosts=1))
    play.at(10)
    play.ready("h1")
    play.at(11)
    play.settle()
    attempt = play.attempt("job-1.a1")
    for second, phase, step in ((13, Phase.GROUPED, -1), (16, Phase.RESTORED, 0), (20, Phase.TRAINING, 1)):
        play.at(second)
        play.phase(attempt, phase, step)
    play.at(121)
    play.exit(attempt, 0, "finished", step=101, step_at=120.0, save_s=6.0)
    result = play.account("job-1")
    assert result.seconds_by_phase == {
        "queue": 10.0,
        "place": 1.0,
        "launch": 2.0,
        "restore": 3.0,
        "first_step": 4.0,
        "productive": 95.0,
        "replay": 0.0,
        "save": 5.0,
        "finish": 1.0,
    }
    assert result.wall_s == 121.0
    assert result.goodput == pytest.approx(95 / 121)
    assert result.steps == 101


def test_a_server_that_heard_late_of_the_end() -> None:
    """1. A job saves 5 s during its steps and 1 s at its end. 2. The server is away then, and hears of it 30 s later.
    3. The saves are still booked as saves; the rest is its finish."""
    play = stage(1)
    attempt = play.running(job_spec(hosts=1))
    play.at(130)
    play.register("h1", session="s2", attempts=[(attempt.id, 1)])
    play.exit(attempt, 0, "finished", step=101, step_at=100.0, save_s=6.0, at=101.0)
    seconds_by_phase = play.account("job-1").seconds_by_phase
    assert seconds_by_phase["save"] == pytest.approx(5.0)
    assert seconds_by_phase["finish"] == pytest.approx(30.0)


def test_steps_of_a_job_whose_hosts_all_died() -> None:
    """1. The only host of a job dies at step 50; the last checkpoint is of step 40. 2. No rank is left to tell how far
    it was, but its last heartbeat did: ten steps were lost, and the time of fifty was not wasted."""
    play = stage(2)
    attempt = play.running(job_spec(hosts=1))
    play.at(60)
    reached = Reached(attempt=attempt.id, epoch=1, step=50, step_at=Instant(seconds(50)))
    play.disconnect("h1", reached)
    play.wait(5.0)
    play.train(attempt, restored=40)
    result = play.account("job-1")
    assert (result.steps, result.steps_lost_unplanned) == (50, 10)
    assert result.incidents[0].last_step_at == seconds(50)
    assert result.seconds_by_phase["productive"] == pytest.approx(50.0)


def test_steps_that_were_done_after_their_ranks_were_given_up() -> None:
    """1. The agent of a job's only host is away, and the job goes on elsewhere from step 40. 2. The ranks that nobody
    reached went on, and their end, told later, is after the first step of those that replaced them. 3. Time is of one
    epoch or the other: to the decision the old one trained, from then on the incident lasts."""
    play = stage(2)
    attempt = play.running(job_spec(hosts=1))
    play.at(60)
    play.disconnect("h1", Reached(attempt=attempt.id, epoch=1, step=50, step_at=Instant(seconds(60))))
    play.wait(5.0)
    play.at(67)
    play.train(attempt, restored=40)
    play.at(80)
    play.exit(attempt, 0, "failed", signal=9, step=70, epoch=1, at=79.0, step_at=79.0)
    result = play.account("job-1", last_step=52)
    (incident,) = result.incidents
    assert (incident.decided_at, incident.last_step_at, incident.resumed_at) == (65_000_000, 65_000_000, 67_000_000)
    assert incident.steps_lost == 30
    assert incident.lost_s == pytest.approx(2.0 + incident.seconds_by_phase["replay"])
    assert sum(result.seconds_by_phase.values()) == pytest.approx(80.0)


def test_what_a_host_reached_in_an_attempt_that_is_unknown_or_newer() -> None:
    """1. A heartbeat told of an attempt that the engine never had, and of an epoch that it had not formed. 2. Neither
    is booked."""
    play = stage(2)
    attempt = play.running(job_spec(hosts=1))
    far = Reached(attempt=AttemptId("job-9.a1"), epoch=1, step=50, step_at=Instant(seconds(50)))
    play.disconnect("h1", far, far.but(attempt=attempt.id, epoch=2))
    assert play.account("job-1").steps == 0


def test_a_planned_hand_over_loses_no_step() -> None:
    """1. A host drains, the ranks save at step 50 and leave. 2. The next epoch starts from 50: nothing is lost, nothing
    is done again. 3. The account names who left, who joined, and that it was planned."""
    play = stage(3)
    attempt = play.running(job_spec(hosts=2, spares=1))
    play.at(50)
    play.drain("h2")
    play.at(51)
    play.all_exit(attempt, "yielded", step=50)
    play.at(53)
    play.train(attempt, restored=50)
    play.at(103)
    result = play.account("job-1", last_step=101)
    assert (result.planned_handovers, result.unplanned_recoveries) == (1, 0)
    assert (result.steps_lost_planned, result.steps_lost_unplanned) == (0, 0)
    assert result.seconds_by_phase["replay"] == 0.0
    (incident,) = result.incidents
    assert (incident.planned, incident.left, incident.joined) == (True, ("h2",), ("h3",))
    assert incident.resumed_at == 53_000_000


def test_an_unplanned_recovery_loses_what_was_not_saved() -> None:
    """1. A job dies at step 57, its newest checkpoint is of step 50. 2. Seven steps are lost, and the time of those
    that are done again counts as replay: six of the 40 that follow the first, at the pace of that epoch."""
    play = stage(2)
    attempt = play.running(job_spec(hosts=2))
    play.at(57)
    play.exit(attempt, 1, "failed", signal=9, step=57)
    play.at(60)
    play.train(attempt, restored=50)
    play.at(100)
    result = play.account("job-1", last_step=91)
    assert (result.steps_lost_planned, result.steps_lost_unplanned) == (0, 7)
    assert (result.planned_handovers, result.unplanned_recoveries) == (0, 1)
    assert result.seconds_by_phase["replay"] == pytest.approx(6.0)
    assert result.seconds_by_phase["productive"] == pytest.approx(57 + 34)
    assert result.seconds_by_phase["place"] == pytest.approx(3.0)
    assert result.steps == 91


def test_waiting_in_the_queue_again_counts() -> None:
    """1. A job is requeued and cannot be placed again for 500 s. 2. That is queue time, not overhead of recovery."""
    play = stage(1)
    attempt = play.running(job_spec(hosts=1))
    play.at(10)
    play.drain("h1", deadline_s=0, evict=True)
    play.wait(0)
    play.all_exit(attempt, "yielded", step=10)
    play.settle(ReleaseAttempt)
    play.at(510)
    play.resume("h1")
    play.settle()
    result = play.account("job-1")
    assert result.seconds_by_phase["queue"] == pytest.approx(500.0)


def test_a_job_that_never_ran_a_step() -> None:
    """1. A job is failed for good at start. 2. Its seconds add up all the same, and none is productive."""
    play = stage(1)
    play.submit(job_spec(hosts=1))
    play.at(2)
    play.settle()
    play.at(5)
    for _ in range(3):
        job = play.job("job-1")
        play.exit(play.attempt(job.attempts[-1]), 0, "failed", failure("ValueError", "x"), attached=False, step=-1)
        play.settle()
    result = play.account("job-1")
    assert play.job("job-1").state is JobState.FAILED
    assert result.productive_s == 0.0
    assert sum(result.seconds_by_phase.values()) == pytest.approx(result.wall_s)


def seconds_of(text: str) -> float:
    hours, minutes, rest = text.split(":")
    return int(hours) * 3600 + int(minutes) * 60 + float(rest)


def test_a_stall_is_not_productive() -> None:
    """Field case 94. 1. The last step ends at 17:19:31; one host fails 905.5 s later, its peers half a second after it,
    the rest after seven. 2. The first to fail is the cause, all others are followers. 3. The stall is booked as such,
    and 125 steps are to be done again. 4. Goodput is not the wall time until the crash."""
    rows = list(csv.DictReader((CASE / "timeline.csv").read_text().splitlines()))
    restored = json.loads((CASE / "restart.json").read_text())["restored_step"]
    times = [seconds_of(row["time"]) for row in rows]
    last_step, error = 65_069, failure("AcceleratorError", rows[1]["event"].partition(": ")[2])
    hosts = [f"gpu-{n}" for n in range(201, 213)]
    play = Stage(*(host_spec(name) for name in hosts))
    play.at(times[0] - 3600)
    play.ready(*hosts)
    attempt = play.running(job_spec(hosts=12))
    play.at(times[3] + 1)
    failed_at = [times[1], *[times[2]] * 7, *[times[3]] * 4]
    aborted = failure("DistBackendError", "NCCL communicator was aborted on rank 0.")
    for rank in (11, 0, *range(1, 11)):  # reports arrive in any order
        text = error if rank < 8 else aborted
        play.exit(attempt, rank, "failed", text, step=last_step, step_at=times[0], at=failed_at[rank], epoch=1)
    cause = first_cause([], [alone(event) for event in reversed(play.told) if isinstance(event, WorkerExited)])
    assert cause is not None
    assert cause.host == "gpu-201"
    assert attempt.epochs[0].cause == cause.reason.but(numbers={"rank": 0, "host": "gpu-201", "ranks_failed": 2})
    play.train(attempt, restored)
    result = play.account("job-1")
    assert result.seconds_by_phase["interrupt"] == pytest.approx(times[1] - times[0])
    assert times[1] - times[0] == pytest.approx(905.5, abs=0.1)
    assert result.steps_lost_unplanned == 125
    assert result.productive_s == pytest.approx(3600.0)
    assert result.goodput < 0.8
    assert play.states(*hosts) == ["ready"] * 12


MARK = st.one_of(st.none(), st.integers(0, 2_000).map(Instant))


@st.composite
def epochs(draw: st.DrawFn, number: int) -> Epoch:
    """Marks in any order and number: clocks jump and reports are lost."""
    names = ("reserved_at", "launched_at", "grouped_at", "restored_at", "first_step_at", "last_step_at", "failed_at")
    marks = {name: draw(MARK) for name in (*names, "detected_at", "decided_at")}
    steps = {"restored_step": draw(st.integers(-1, 50)), "last_step": draw(st.integers(-1, 99))}
    ended = draw(st.sampled_from(["", "finished", "yielded", "interrupted", "stopped"]))
    return Epoch(
        number=number,
        formed_at=Instant(draw(st.integers(0, 2_000))),
        ended_by=ended,
        save_s=draw(st.floats(0, 0.01)),
        **marks,  # type: ignore[arg-type]
        **steps,  # type: ignore[arg-type]
    )


@st.composite
def lives(draw: st.DrawFn) -> tuple[Job, list[Attempt], Instant]:
    attempts = []
    for number in range(draw(st.integers(0, 3))):
        ended = draw(MARK)
        attempt = Attempt(
            id=AttemptId(f"job-1.a{number + 1}"),
            job=JobId("job-1"),
            cluster=ClusterId("c"),
            state=AttemptState.RUNNING if ended is None else AttemptState.FAILED,
            since=Instant(0),
            placed_at=Instant(draw(st.integers(0, 2_000))),
            members=(HostId("h1"),),
            epochs=[draw(epochs(each + 1)) for each in range(draw(st.integers(1, 3)))],
            ended_at=ended,
        )
        attempts.append(attempt)
    job = Job(
        id=JobId("job-1"),
        spec=job_spec(hosts=1),
        by=Owner("person:a"),
        submitted_at=Instant(draw(st.integers(0, 500))),
        submitted_index=1,
        since=Instant(0),
        ended_at=draw(st.one_of(st.none(), st.integers(500, 2_000).map(Instant))),
    )
    return job, attempts, Instant(draw(st.integers(500, 2_500)))


@settings(max_examples=200, deadline=None)
@given(lives())
def test_the_spans_are_the_wall_exactly(life: tuple[Job, list[Attempt], Instant]) -> None:
    """1. Any job with any marks, in any order, with any missing. 2. Its spans follow each other from the submission to
    the end, without a gap, none empty or backwards. 3. So the phases add up to the wall, and no share is negative."""
    job, attempts, now = life
    end = job.ended_at if job.ended_at is not None else now
    spans = timeline(job, attempts, now)
    edges = [job.submitted_at, *(span.end for span in spans)]
    assert [span.start for span in spans] == edges[:-1]
    assert edges[-1] == end
    assert all(span.end > span.start for span in spans)
    result = account(job, attempts, now)
    assert sum(result.seconds_by_phase.values()) == pytest.approx(result.wall_s, abs=1e-9)
    assert all(share >= 0 for share in result.seconds_by_phase.values())
    assert 0.0 <= result.goodput <= 1.0


def test_steps_that_were_lost_twice() -> None:
    """1. A job dies at step 100 with a checkpoint of step 50, and again at step 70 of the second try. 2. The third try
    does 50 steps again: those up to 70 because of the second death, the others because of the first; the second try
    repeated its own twenty because of the first. 3. Each record has its host, its rank, its GPU-seconds, and what is
    lost is in no record twice."""
    play = stage(2)
    attempt = play.running(job_spec(hosts=2, ranks_per_host=2))
    play.at(100)
    play.exit(attempt, 3, "failed", signal=9, step=100)
    play.at(104)
    play.train(attempt, restored=50)
    play.at(123)
    play.exit(attempt, 0, "failed", signal=9, step=70)
    play.at(126)
    play.train(attempt, restored=50)
    play.at(226)
    result = play.account("job-1", last_step=151)
    first, second = result.incidents
    assert (first.hosts, first.ranks, second.hosts, second.ranks) == (("h2",), (3,), ("h1",), (0,))
    assert first.seconds_by_phase["replay"] == pytest.approx(19.0 + 30.0)
    assert second.seconds_by_phase["replay"] == pytest.approx(19.0)
    assert (first.steps_lost, second.steps_lost) == (50, 20)
    assert first.lost_gpu_s == pytest.approx(4 * (4.0 + 49.0))
    assert (result.gpus, result.unit) == (4, "rank")
    of_none = sum(loss.seconds for loss in result.losses if loss.cause != "worker-killed")
    assert first.lost_s + second.lost_s + of_none + result.productive_s == pytest.approx(226.0)


def test_who_lived_on_in_place() -> None:
    """1. A rank of four on two hosts is killed; its state is in another host's memory. 2. Of the next epoch's ranks
    one host says that both lived on, the other that one did. 3. Three stayed, one was started."""
    play = stage(2)
    attempt = play.running(job_spec(hosts=2, ranks_per_host=2))
    play.at(50)
    play.exit(attempt, 0, "failed", signal=9, step=50)
    play.settle(ReserveStore)
    for launch, stayed in zip(play.pending(LaunchWorkers), (2, 1), strict=True):
        play.answer(launch, stayed=stayed)
    play.phase(attempt, Phase.RESTORED, 49, origin="peer memory")
    play.phase(attempt, Phase.TRAINING, 50)
    (incident,) = play.account("job-1").incidents
    assert (incident.stayed, incident.started, incident.restored_from) == (3, 1, "peer memory")


def test_a_job_that_was_cancelled_had_no_incident() -> None:
    """1. A job is cancelled at its tenth second. 2. Nobody was interrupted: what follows its last step is its end."""
    play = stage(1)
    attempt = play.running(job_spec(hosts=1))
    play.at(10)
    play.cancel("job-1")
    play.exit(attempt, 0, "stopped", step=9, step_at=9.0)
    play.at(20)
    result = play.account("job-1")
    assert result.incidents == ()
    assert {loss.cause for loss in result.losses} <= {"start", "save", "finish"}


def test_a_failure_that_ended_the_job_is_an_incident() -> None:
    """1. A job without restarts is killed at step 57. 2. The record says who, and that nothing was resumed."""
    play = stage(1)
    attempt = play.running(job_spec(hosts=1, restart=RestartBudget(max_restarts=0)))
    play.at(57)
    play.exit(attempt, 0, "failed", signal=9, step=50, step_at=50.0)
    (incident,) = play.account("job-1").incidents
    assert play.job("job-1").state is JobState.FAILED
    assert (incident.resumed_at, incident.ranks) == (None, (0,))
    assert incident.seconds_by_phase == {"interrupt": 7.0}


def test_what_was_only_in_memory_is_lost_with_a_job_that_fails() -> None:
    """1. A job published step 40, is interrupted at 50, and goes on from memory at 50. 2. At 60 it fails for good: its
    memory goes, so twenty steps were lost. 3. The same after a resume from a checkpoint that it did not write."""
    play = stage(2)
    attempt = play.running(job_spec(hosts=1, restart=RestartBudget(max_restarts=1)))
    play.published(attempt, 40)
    play.exit(attempt, 0, "failed", signal=9, step=50)
    play.settle()
    play.phase(attempt, Phase.RESTORED, 50, origin="own memory")
    play.phase(attempt, Phase.TRAINING, 51)
    assert play.account("job-1").steps_lost_unplanned == 0
    play.exit(attempt, 0, "failed", signal=9, step=60)
    assert play.job("job-1").state is JobState.FAILED
    assert [each.steps_lost for each in play.account("job-1").incidents] == [0, 20]
    play = stage(1)
    attempt = play.running(job_spec(hosts=1, restart=RestartBudget(max_restarts=0)))
    play.phase(attempt, Phase.RESTORED, 30, origin="storage")
    play.exit(attempt, 0, "failed", signal=9, step=50)
    assert play.account("job-1").steps_lost_unplanned == 20


def test_who_came_and_who_left() -> None:
    """1. A host drains after 50 s and a spare takes its place. 2. The stays of both meet there; who was a member all
    the time is not listed."""
    play = stage(3)
    attempt = play.running(job_spec(hosts=2, spares=1))
    play.at(50)
    play.drain("h2")
    play.at(51)
    play.all_exit(attempt, "yielded", step=50)
    play.at(53)
    play.train(attempt, restored=50)
    play.at(103)
    stays = members(play.job("job-1"), [attempt], play.now)
    assert [(stay.host, stay.start / 1e6, stay.end / 1e6) for stay in stays] == [("h2", 0.0, 51.0), ("h3", 51.0, 103.0)]
