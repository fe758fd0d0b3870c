"""Jobs that stand still: what is ended and what is left alone, and what the engine makes of it."""

from typing import Any

import pytest
from tests.unit.fixtures import Stage, job_spec, stage

from trainmaster.core.base.ids import HostId
from trainmaster.core.base.reasons import Token
from trainmaster.core.base.time import HOUR, Duration, Instant, seconds
from trainmaster.core.diagnosis.answer import Diagnosis, Kind
from trainmaster.core.diagnosis.pace import PHASE_S, bound
from trainmaster.core.effects import LaunchWorkers, StopWorkers
from trainmaster.core.engine import Engine
from trainmaster.core.health.hangs import AGAIN_WITHIN, RULE
from trainmaster.core.recovery.attempt import Attempt, AttemptState
from trainmaster.core.recovery.events import HangFound
from trainmaster.core.recovery.hang import Hang, judge, restarts, signature
from trainmaster.core.scheduling.job import FailureNote, JobState
from trainmaster.core.scheduling.request import RestartBudget

# --- what is ended


def found(kind: Kind, *missing: int, confidence: Any = "high", **more: Any) -> Diagnosis:
    return Diagnosis(kind=kind, summary="told", missing_ranks=missing, confidence=confidence, **more)


STOPPED, USER, APART, FLIGHT = Kind.PROCESS_STOPPED, Kind.USER_CODE_STALL, Kind.DESYNC, Kind.IN_FLIGHT_STALL
ENDED: list[tuple[str, Diagnosis, float, tuple[int, ...] | None]] = [
    ("a stopped process, beyond the bound", found(STOPPED, 1), 3.1, (1,)),
    ("not yet", found(STOPPED, 1), 3.0, None),
    ("a tool holds it for a moment", found(STOPPED, 1, confidence="medium"), 29.0, None),
    ("a debugger holds it for long", found(STOPPED, 1, confidence="medium"), 31.0, (1,)),
    ("ranks went apart", found(APART, 2), 3.1, (2,)),
    ("another operation than the most", found(APART, differing_ranks=(3,)), 3.1, (3,)),
    ("apart, perhaps", found(APART, 2, confidence="medium"), 29.0, None),
    ("of a silent host", found(APART, 2, 3, confidence="medium", unseen_ranks=(2, 3)), 600.0, None),
    ("gone, and nobody told", found(Kind.KILLED, 0), 3.1, (0,)),
    ("code of its own may end", found(USER, 3), 29.0, None),
    ("and did not", found(USER, 3), 30.1, (3,)),
    ("both ranks of a host", found(USER, 2, 3), 30.1, (2, 3)),
    ("most are late: slow together", found(USER, 0, 1, 2), 600.0, None),
    ("all are stopped: somebody holds the job", found(STOPPED, 0, 1, 2, 3), 600.0, None),
    ("a collective may end", found(FLIGHT, confidence="low"), 29.0, None),
    ("and did not; nobody is named", found(FLIGHT, confidence="low"), 30.1, ()),
    ("a save, an evaluation, a compilation", found(Kind.SLOW_PHASE, 0), 6000.0, None),
    ("somebody is slow", found(Kind.STRAGGLER, slow_ranks=(1,)), 6000.0, None),
    ("now this one, now that", found(Kind.ROTATING_PAUSES), 6000.0, None),
    ("nothing is known", found(Kind.UNDETERMINED), 6000.0, None),
    ("nothing is wrong", found(Kind.NONE), 6000.0, None),
]


@pytest.mark.parametrize(("diagnosis", "still_s", "wanted"), [row[1:] for row in ENDED], ids=[row[0] for row in ENDED])
def test_what_is_ended(diagnosis: Diagnosis, still_s: float, wanted: tuple[int, ...] | None) -> None:
    got = judge(diagnosis, still_s, 3.0, 30.0, 4)
    assert got == (None if wanted is None else Hang(kind=diagnosis.kind, ranks=wanted))


def test_a_job_of_one_rank() -> None:
    assert judge(found(STOPPED, 0), 3.1, 3.0, 30.0, 1) == Hang(kind=STOPPED, ranks=(0,))


def test_patience() -> None:
    """1. Half a minute, or twice the bound. 2. Four times as long after each restart. 3. Where no pace is known, the
    time of slow phases. 4. The job file has the last word."""
    assert bound([0.1] * 10).patience_s() == 30.0
    assert bound([4.0] * 10).patience_s() == 40.0
    assert [bound([0.1] * 10).patience_s(count) for count in range(3)] == [30.0, 120.0, 480.0]
    assert bound([]).patience_s() == PHASE_S
    told = bound([0.1] * 10, told_s=5.0)
    assert (told.bound_s, told.patience_s(), told.patience_s(2)) == (5.0, 5.0, 5.0)
    assert told.sentence() == "a step may take 5 s, as the job file says"


def test_restarts_are_counted_by_kind_and_time() -> None:
    def note(at_s: float, of: str) -> FailureNote:
        return FailureNote(at=Instant(seconds(at_s)), signature=of, at_start=False, host=HostId("h1"), rank=0)

    notes = [note(10, signature(USER)), note(4000, signature(USER)), note(4100, signature(STOPPED)), note(4200, "x")]
    assert restarts(notes, USER, HOUR, Instant(seconds(4300))) == 1
    assert restarts(notes, USER, Duration(2 * HOUR), Instant(seconds(4300))) == 2


# --- what the engine makes of it


def hang(play: Stage, attempt: Attempt, *ranks: int, kind: Kind = STOPPED, epoch: int = 0) -> None:
    event = HangFound(
        at=play.now, attempt=attempt.id, epoch=epoch or attempt.epoch.number, kind=kind, ranks=ranks, step=12,
        still_s=4.0, bound_s=3.0, summary="told",
    )  # fmt: skip
    play.tell(event)


def test_a_hung_rank_is_ended_and_the_others_live() -> None:
    """1. Rank 2 of four, on two hosts, is stopped. 2. It alone is killed; who can leave the epoch lives on. 3. The job
    goes on on the same hosts, for one restart of its budget. 4. The incident names rank, host, kind, time and bound.
    5. The same log gives the same state."""
    play = stage(3)
    attempt = play.running(job_spec(hosts=2, ranks_per_host=2, spares=1))
    play.at(30)
    hang(play, attempt, 2)
    assert [(stop.keep, stop.kill, stop.grace) for stop in play.pending(StopWorkers)] == [(True, (2,), 0)] * 2
    assert attempt.state is AttemptState.REFORMING
    play.train(attempt)
    assert (attempt.state, attempt.epoch.number, attempt.members) == (AttemptState.RUNNING, 2, ("h1", "h2"))
    cause = attempt.epochs[0].cause
    assert cause is not None
    assert cause.token is Token.RANK_HUNG
    assert cause.sentence == (
        "rank 2 on h2 hung (process-stopped): no step for 4.0 s after step 12, and a step may take 3.0 s; told"
    )
    assert {key: cause.numbers[key] for key in ("host", "rank", "kind")} == {
        "host": "h2", "rank": 2, "kind": "process-stopped"
    }  # fmt: skip
    (note,) = play.job("job-1").failures
    assert (note.signature, note.host, note.rank) == ("hang: process-stopped", "h2", 2)
    (incident,) = play.account("job-1").incidents
    assert (incident.hosts, incident.ranks, incident.planned) == (("h2",), (2,), False)
    again = Engine()
    for event in play.told:
        again.handle(event)
    assert again.snapshot() == play.engine.snapshot()


def test_without_a_name_all_start_anew() -> None:
    """1. All ranks are in a collective that does not end. 2. None lives on, and no host is named."""
    play = stage(2)
    attempt = play.running(job_spec(hosts=2))
    hang(play, attempt, kind=FLIGHT)
    assert [(stop.keep, stop.kill) for stop in play.pending(StopWorkers)] == [(False, ())] * 2
    cause = attempt.epochs[0].cause
    assert cause is not None
    assert "nobody is named" in cause.sentence
    assert "host" not in cause.numbers
    play.train(attempt)
    assert attempt.state is AttemptState.RUNNING


def test_ranks_of_several_hosts() -> None:
    """Two ranks, on two hosts: both are killed, and no host is blamed."""
    play = stage(4)
    attempt = play.running(job_spec(hosts=4))
    hang(play, attempt, 1, 3)
    assert {stop.kill for stop in play.pending(StopWorkers)} == {(1, 3)}
    cause = attempt.epochs[0].cause
    assert cause is not None
    assert cause.sentence.startswith("ranks 1, 3 on h2, h4 hung")
    assert "host" not in cause.numbers


@pytest.mark.parametrize("late", ["an older epoch", "it forms", "it has ended", "it was interrupted"])
def test_a_word_that_comes_too_late_changes_nothing(late: str) -> None:
    play = stage(3)
    attempt = play.running(job_spec(hosts=2, spares=1))
    if late == "it has ended":
        play.all_exit(attempt, "finished")
    else:
        play.exit(attempt, 1, "failed", signal=9)
    if late == "an older epoch":
        play.train(attempt)
    before = (attempt.state, attempt.epoch.number, len(play.job("job-1").failures), len(play.sent))
    hang(play, attempt, 0, epoch=1 if late in ("an older epoch", "it was interrupted") else 0)
    assert (attempt.state, attempt.epoch.number, len(play.job("job-1").failures), len(play.sent)) == before


def test_a_host_where_ranks_hang_again_gives_its_place_to_a_spare() -> None:
    """1. A rank hangs: its host keeps its place, and nothing stands against it. 2. It hangs there again: the spare
    takes the place, and the host is suspect. 3. It becomes the spare. 4. Long after, that is forgotten."""
    play = stage(3)
    attempt = play.running(job_spec(hosts=2, spares=1, restart=RestartBudget(max_restarts=9)))

    def suspect() -> bool:
        return any(each.finding.rule == RULE for each in play.engine.state.health.standings.get(HostId("h2"), ()))

    hang(play, attempt, 1)
    assert (attempt.members, suspect()) == (("h1", "h2"), False)
    play.train(attempt)
    play.wait(600)
    hang(play, attempt, 1)
    assert (attempt.members, suspect()) == (("h1", "h3"), True)
    play.train(attempt)
    assert attempt.spares == ("h2",)
    play.wait(AGAIN_WITHIN / 1e6 + 1)
    hang(play, attempt, 1)
    assert attempt.members == ("h1", "h3")


def test_a_job_that_hangs_again_and_again_fails() -> None:
    """1. Two restarts are allowed. 2. The third hang within the hour ends the job, with the hang in the reason."""
    play = stage(2)
    attempt = play.running(job_spec(hosts=2, restart=RestartBudget(max_restarts=2)))
    for _ in range(2):
        play.wait(60)
        hang(play, attempt, 1)
        play.train(attempt)
    hang(play, attempt, 1)
    job = play.job("job-1")
    assert job.state is JobState.FAILED
    assert job.reason is not None
    assert "rank 1 on h2 hung" in job.reason.sentence
    assert not list(play.pending(LaunchWorkers))
