"""Whether to try again."""

import re
from pathlib import Path

from tests.unit.fixtures import failure, job_spec, stage

from trainmaster.core.base.ids import HostId
from trainmaster.core.base.reasons import Token
from trainmaster.core.base.time import HOUR, Instant, after, seconds
from trainmaster.core.checkpoint.space import UNSAVED
from trainmaster.core.recovery.budget import Advice, advise
from trainmaster.core.scheduling.job import FailureNote, JobState
from trainmaster.core.scheduling.request import RestartBudget

CASE = Path(__file__).parents[3] / "cases" / "14-deterministic-startup-crash"


def note(at: float, signature: str = "ValueError: x", at_start: bool = True, host: str = "h1") -> FailureNote:
    return FailureNote(at=Instant(seconds(at)), signature=signature, at_start=at_start, host=HostId(host), rank=0)


def judged(*notes: FailureNote, budget: RestartBudget | None = None) -> Advice:
    return advise(budget or RestartBudget(), notes, notes[-1].at)


def test_a_first_failure_is_tried_again() -> None:
    advice = judged(note(0))
    assert advice.again
    assert advice.reason.numbers == {"left": 2}
    assert advice.reason.sentence == "restart 1 of 3 within 3600 s"


def test_the_same_failure_at_start_three_times() -> None:
    """1. Twice the same: again. 2. The third time: stop, though restarts are left in the budget."""
    roomy = RestartBudget(max_restarts=50)
    assert judged(note(0), note(1), budget=roomy).again
    advice = judged(note(0, host="h1"), note(1, host="h2"), note(2, host="h3"), budget=roomy)
    assert not advice.again
    assert advice.reason.token is Token.SAME_FAILURE_REPEATED
    assert advice.reason.numbers == {"times": 3, "limit": 3, "hosts": 3}


def test_another_signature_ends_the_row() -> None:
    roomy = RestartBudget(max_restarts=50)
    assert judged(note(0), note(1), note(2, "KeyError"), note(3), note(4), budget=roomy).again


def test_a_failure_after_a_step_ends_the_row() -> None:
    roomy = RestartBudget(max_restarts=50)
    assert judged(note(0), note(1), note(2, at_start=False), note(3), note(4), budget=roomy).again


def test_more_failures_than_the_window_allows() -> None:
    """1. Three restarts an hour are allowed; the fourth failure stops the job. 2. With an older one outside of
    the window it goes on."""
    notes = [note(n * 60, f"e{n}", at_start=False) for n in range(4)]
    advice = judged(*notes)
    assert advice.reason.token is Token.RESTART_BUDGET_SPENT
    assert advice.reason.numbers == {"failures": 4, "max_restarts": 3}
    late = after(Instant(0), HOUR)
    assert advise(RestartBudget(), notes, late).again


def test_no_restarts_at_all() -> None:
    assert not judged(note(0), budget=RestartBudget(max_restarts=0)).again


def test_a_crash_at_every_start() -> None:
    """Field case 14. 1. Each attempt dies with the same exception, on another host each time. 2. The job is stopped at
    the third, with the text; the recorded one was restarted five times and would have gone on. 3. No host is blamed:
    all four are ready and free of holds."""
    rows = [
        re.fullmatch(r'attempt=\d+ start=(\d+) exit_code=1 uptime_s=(\d+) host=(\S+) error="(\w+): (.*)"', line)
        for line in (CASE / "attempts.log").read_text().splitlines()
    ]
    assert len(rows) == 5
    play = stage(4)
    names = {f"gpu-00{n}": f"h{n}" for n in range(1, 5)}
    job = play.submit(job_spec(hosts=4, restart=RestartBudget(max_restarts=50)))
    tried = 0
    for row in rows:
        assert row is not None
        if job.state is not JobState.ACTIVE:
            break
        tried += 1
        attempt = play.attempt(job.attempts[-1])
        play.settle()
        play.at(max(play.now / 1e6, int(row[1]) + int(row[2])))
        rank = attempt.members.index(HostId(names[row[3]]))
        play.exit(attempt, rank, "failed", failure(row[4], row[5]), attached=False, step=-1)
        play.settle()
    assert tried == 3
    assert job.state is JobState.FAILED
    assert job.reason is not None
    assert job.reason.token is Token.SAME_FAILURE_REPEATED
    assert "ModuleNotFoundError: No module named 'flash_attn'" in job.reason.sentence
    assert job.reason.numbers["times"] == 3
    assert play.states("h1", "h2", "h3", "h4") == ["ready"] * 4
    assert all(play.host(name).is_free() and not play.host(name).holds for name in names.values())


def test_a_requeue_by_a_person_starts_with_a_fresh_budget() -> None:
    play = stage(1)
    job = play.submit(job_spec(hosts=1, restart=RestartBudget(max_restarts=0)))
    play.settle()
    play.exit(play.attempt("job-1.a1"), 0, "failed", failure("ValueError", "x"), attached=False)
    play.settle()
    assert job.state is JobState.FAILED
    play.requeue("job-1")
    assert job.failures == ()
    assert job.state is JobState.ACTIVE


def test_a_step_ends_the_row_of_failures_at_start() -> None:
    """1. Two failures at start. 2. The third launch completes a step. 3. Two more at start do not stop the job."""
    play = stage(1)
    attempt = play.running(job_spec(hosts=1, restart=RestartBudget(max_restarts=50)))
    for restart in range(5):
        if restart == 2:
            play.train(attempt)
        play.settle()
        play.exit(attempt, 0, "failed", failure("ValueError", "x"), step=1 if restart == 2 else -1)
    assert play.job("job-1").state is JobState.ACTIVE
    assert len(play.job("job-1").failures) == 4


def test_a_result_that_finds_no_room_is_not_tried_again() -> None:
    """1. Both ranks of a job have waited for room as long as they were to. 2. It fails with what they say, at once:
    a restart would find the same disk. 3. The steps that are in no checkpoint count as lost, and no host is blamed."""
    play = stage(2)
    attempt = play.running(job_spec())
    play.published(attempt, 1100)
    said = failure(
        "TrainingError", f"{UNSAVED}: the save of step 1120 failed: /ckpt has 0 bytes free, the save needs 9"
    )
    for rank in (0, 1):
        play.exit(attempt, rank, "failed", said, step=1120)
    job = play.job("job-1")
    assert (job.state, len(attempt.epochs)) == (JobState.FAILED, 1)
    assert job.reason is not None
    assert job.reason.token is Token.RESULT_UNSAVED
    assert job.reason.sentence.startswith(f"rank 0 on h1: {UNSAVED}")
    assert job.reason.sentence.endswith("/ckpt has 0 bytes free, the save needs 9")
    assert play.account("job-1").steps_lost_unplanned == 20
    assert play.states("h1", "h2") == ["ready"] * 2
