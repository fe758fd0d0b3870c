"""Unplanned ends, told through the engine."""

import pytest
from tests.unit.fixtures import ECHO, Stage, failure, job_spec, of_kind, stage

from trainmaster.core.base.reasons import Token
from trainmaster.core.diagnosis.answer import Kind
from trainmaster.core.effects import LaunchWorkers, PrepareAttempt, ReleaseAttempt, ReserveStore, StopWorkers
from trainmaster.core.recovery.attempt import APART_SETTLE, FORM_DEADLINE, SETTLE, STOP_GRACE, Attempt, AttemptState
from trainmaster.core.recovery.events import HangFound
from trainmaster.core.scheduling.job import JobState
from trainmaster.core.scheduling.request import RestartBudget


def test_a_worker_dies_and_the_job_forms_again_on_the_same_hosts() -> None:
    """1. A rank is killed. 2. The rest is stopped without grace, and lives on where it
    can; all hosts stay. 3. The next epoch runs."""
    play = stage(3)
    attempt = play.running(job_spec(hosts=2, spares=1))
    play.exit(attempt, 1, "failed", signal=9)
    assert attempt.members == ("h1", "h2")
    assert [(effect.grace, effect.keep) for effect in play.pending(StopWorkers)] == [(0, True), (0, True)]
    play.train(attempt)
    assert attempt.state is AttemptState.RUNNING
    assert attempt.epoch.number == 2
    launches = [effect for effect in of_kind(play.sent, LaunchWorkers) if effect.epoch == 2]
    assert [(effect.first_rank, effect.world, effect.restart_count) for effect in launches] == [(0, 2, 1), (1, 2, 1)]


@pytest.mark.parametrize("begins", [0, 40])
def test_a_job_knows_the_step_that_it_began_with(begins: int) -> None:
    """1. At its start nothing is said. 2. The ranks begin anew, or with what another job had left. 3. Every launch
    after that says so, whatever was restored since."""
    play = stage(2)
    play.submit(job_spec(hosts=2))
    attempt = play.attempt("job-1.a1")
    play.train(attempt, restored=begins)
    play.exit(attempt, 1, "failed", signal=9)
    play.train(attempt, restored=begins + 5)
    play.exit(attempt, 1, "failed", signal=9)
    play.train(attempt, restored=begins + 7)
    told = {effect.epoch: effect.began_step for effect in of_kind(play.sent, LaunchWorkers)}
    assert told == {1: None, 2: begins, 3: begins}


def test_a_cold_member_changes_places_with_a_warm_spare() -> None:
    """1. A rank ends, and all that was imported ahead for it is gone. 2. The warm spare takes its place. 3. The host
    becomes the spare, and is prepared as one."""
    play = stage(3)
    attempt = play.running(job_spec(hosts=2, spares=1))
    play.exit(attempt, 0, "failed", signal=9, warm=False)
    assert attempt.members == ("h3", "h2")
    assert not play.pending(PrepareAttempt, "h1")
    play.train(attempt)
    assert (attempt.state, attempt.spares) == (AttemptState.RUNNING, ("h1",))


def test_cold_members_stay_where_nobody_is_warmer() -> None:
    """1. The spare is not prepared yet. 2. Two are cold: each may keep the only copy of the other's snapshot."""
    play = stage(3, ready=False)
    play.ready("h1", "h2")
    attempt = play.running(job_spec(hosts=2, spares=1))
    play.ready("h3")
    assert play.pending(PrepareAttempt, "h3")
    play.exit(attempt, 0, "failed", signal=9, warm=False)
    assert attempt.members == ("h1", "h2")
    play.train(attempt)
    play.exit(attempt, 0, "failed", failure("RuntimeError", ECHO), warm=False)
    play.exit(attempt, 1, "failed", signal=9, warm=False)
    assert attempt.members == ("h1", "h2")


def test_echoes_wait_for_the_cause() -> None:
    """1. A rank fails with an echo: nothing is decided. 2. Within the settling time the culprit's exit comes. 3. It is
    the cause; the budget counts one failure, not two."""
    play = stage(2)
    attempt = play.running(job_spec(hosts=2))
    play.exit(attempt, 0, "failed", failure("RuntimeError", ECHO))
    assert attempt.undecided
    play.wait(0.3)
    play.exit(attempt, 1, "failed", failure("ValueError", "nan"), epoch=1)
    assert not attempt.undecided
    assert attempt.epochs[0].cause is not None
    assert "rank 1 on h2 failed: ValueError: nan" in attempt.epochs[0].cause.sentence
    assert len(play.job("job-1").failures) == 1


def test_echoes_alone_are_decided_after_the_settling_time() -> None:
    play = stage(2)
    attempt = play.running(job_spec(hosts=2))
    play.exit(attempt, 0, "failed", failure("RuntimeError", ECHO))
    play.wait(SETTLE / 1e6)
    assert not attempt.undecided
    assert attempt.epochs[0].cause is not None
    assert attempt.epochs[0].cause.token is Token.PEER_LOST


def apart(play: Stage, attempt: Attempt) -> None:
    """Gloo ends rank 0, which got more bytes than it expected; another one loses it."""
    said = "what():  [enforce fail at pair.cc:456] op.preamble.length <= op.nbytes. 8 vs 4."
    play.exit(attempt, 0, "failed", failure("SIGABRT", said), signal=6)
    play.exit(attempt, 1, "failed", failure("RuntimeError", ECHO))


def test_who_met_another_collective_is_not_to_blame_for_it() -> None:
    """1. Ranks met in different collectives, and one is ended by that: nothing is decided for longer than an echo
    waits. 2. The recorders say which rank went astray: that is the cause, its process goes, the others live."""
    play = stage(2)
    attempt = play.running(job_spec(hosts=2, ranks_per_host=2))
    apart(play, attempt)
    play.wait(2 * SETTLE / 1e6)
    assert attempt.undecided
    told = HangFound(
        at=play.now, attempt=attempt.id, epoch=1, kind=Kind.DESYNC, ranks=(3,), step=5, still_s=0.0, bound_s=0.0,
        summary="rank 3 skipped one",
    )  # fmt: skip
    play.tell(told.but(kind=Kind.USER_CODE_STALL))
    assert attempt.undecided  # a stall explains no failure
    play.tell(told)
    cause = attempt.epochs[0].cause
    assert cause is not None
    assert cause.sentence == "rank 3 on h2 went astray (desync) after step 5; rank 3 skipped one"
    assert (cause.token, cause.numbers["rank"], cause.numbers["host"]) == (Token.RANK_HUNG, 3, "h2")
    assert [(stop.keep, stop.kill) for stop in play.pending(StopWorkers)] == [(True, (3,)), (True, (3,))]
    play.tell(told.but(ranks=(2,)))  # a second look changes nothing
    assert attempt.epochs[0].cause == cause
    play.train(attempt)
    assert attempt.state is AttemptState.RUNNING


def test_where_no_recorder_tells_who_went_astray_nobody_is_blamed() -> None:
    play = stage(2)
    attempt = play.running(job_spec(hosts=2))
    apart(play, attempt)
    play.wait(APART_SETTLE / 1e6)
    assert not attempt.undecided
    cause = attempt.epochs[0].cause
    assert cause is not None
    assert cause.token is Token.PEER_LOST
    assert cause.sentence.startswith("ranks met in different collectives, and no recorder says which went astray")
    assert "host" not in cause.numbers


def test_a_closed_connection_and_an_echo_name_the_host_at_once() -> None:
    """1. A host's connection closes: not yet a loss. 2. A peer's echo comes. 3. Together they are proof: the spare
    takes over without waiting for the grace, and the job is not to blame."""
    play = stage(3)
    attempt = play.running(job_spec(hosts=2, spares=1))
    play.disconnect("h2")
    assert attempt.state is AttemptState.RUNNING
    play.exit(attempt, 0, "failed", failure("RuntimeError", ECHO))
    assert attempt.members == ("h1", "h3")
    assert attempt.epochs[0].cause is not None
    assert attempt.epochs[0].cause.token is Token.HOST_LOST
    assert play.job("job-1").failures == ()


def test_the_echo_may_come_first() -> None:
    play = stage(3)
    attempt = play.running(job_spec(hosts=2, spares=1))
    play.exit(attempt, 0, "failed", failure("RuntimeError", ECHO))
    play.wait(0.2)
    play.disconnect("h2")
    assert attempt.members == ("h1", "h3")


def test_no_host_for_the_place_waits_with_a_reason() -> None:
    """1. A host is lost, none is free. 2. The attempt waits and says so. 3. The host returns and is taken back."""
    play = stage(2)
    attempt = play.running(job_spec(hosts=2))
    play.lose("h2")
    assert attempt.waiting is not None
    assert attempt.waiting.token is Token.SPARE_MISSING
    assert attempt.waiting.numbers == {"vacant": 1, "spares": 0}
    play.wait(1000)
    play.ready("h2")
    assert attempt.waiting is None
    play.train(attempt)
    assert attempt.state is AttemptState.RUNNING


@pytest.mark.parametrize("stop_at", ["placed", "launching", "re-forming"])
@pytest.mark.parametrize("lost", ["h1", "h2"])
def test_a_host_lost_on_the_way(stop_at: str, lost: str) -> None:
    """1. An attempt is placed, launching or re-forming. 2. A member is lost. 3. The spare takes its place and the job
    runs, without a failure of the job."""
    play = stage(3)
    if stop_at == "re-forming":
        attempt = play.running(job_spec(hosts=2, spares=1))
        play.exit(attempt, 0, "failed", signal=9)
        failures = 1
    else:
        attempt = play.attempt(play.submit(job_spec(hosts=2, spares=1)).attempts[-1])
        failures = 0
        if stop_at == "launching":
            play.settle(PrepareAttempt, ReserveStore)
    assert attempt.state.value == stop_at
    play.fall_silent(lost)
    assert "h3" in attempt.members
    play.train(attempt)
    assert attempt.state is AttemptState.RUNNING
    assert len(play.job("job-1").failures) == failures


@pytest.mark.parametrize("lost", ["h1", "h2"])
def test_a_store_of_a_given_up_epoch_launches_nothing(lost: str) -> None:
    """1. A store is being reserved, a member is lost, and no host is free. 2. The reservation succeeds. 3. Nothing is
    launched on a gang that is not whole."""
    play = stage(2)
    attempt = play.attempt(play.submit(job_spec(hosts=2)).attempts[-1])
    play.fall_silent(lost)
    play.settle()
    assert attempt.state is AttemptState.REFORMING
    assert of_kind(play.sent, LaunchWorkers) == []
    play.ready(lost)
    play.train(attempt)
    assert attempt.state is AttemptState.RUNNING


def test_a_failure_before_a_session_takes_a_new_attempt() -> None:
    """1. A script that opens no session fails. 2. It can't resume in place: the attempt ends, the job is queued and
    placed anew, and the reason says why."""
    play = stage(2)
    job = play.submit(job_spec(hosts=2))
    play.settle()
    attempt = play.attempt("job-1.a1")
    play.exit(attempt, 0, "failed", failure("ValueError", "x"), attached=False, step=-1)
    assert attempt.state is AttemptState.FAILED
    assert attempt.cause is not None
    assert "opened no training session" in attempt.cause.sentence
    play.settle()
    assert job.attempts == ("job-1.a1", "job-1.a2")
    assert play.attempt("job-1.a2").state is AttemptState.RUNNING


def test_all_finished() -> None:
    """1. All ranks but one have finished: the job runs. 2. The last one: finished, hosts are released and free."""
    play = stage(2)
    attempt = play.running(job_spec(hosts=2, ranks_per_host=2))
    for rank in (0, 1, 2):
        play.exit(attempt, rank, "finished", step=40)
    assert attempt.state is AttemptState.RUNNING
    play.exit(attempt, 3, "finished", step=40)
    assert attempt.state is AttemptState.FINISHED
    assert play.job("job-1").state is JobState.FINISHED
    assert play.job("job-1").ended_at == play.now
    play.settle(ReleaseAttempt)
    assert play.host("h1").is_free()


def test_mixed_ends_are_no_success() -> None:
    """1. One rank finishes, the other yields. 2. The work is not whole: the attempt forms again, the budget counts."""
    play = stage(2)
    attempt = play.running(job_spec(hosts=2))
    play.exit(attempt, 0, "finished", step=40)
    play.exit(attempt, 1, "yielded", step=40)
    assert attempt.epochs[0].cause is not None
    assert attempt.epochs[0].cause.token is Token.MIXED_OUTCOME
    assert attempt.epochs[0].cause.sentence == "the ranks did not end alike: rank 0 finished, rank 1 yielded"
    assert len(play.job("job-1").failures) == 1


def test_a_success_after_a_failure_is_none() -> None:
    play = stage(2)
    attempt = play.running(job_spec(hosts=2))
    play.exit(attempt, 0, "finished", step=40)
    play.exit(attempt, 1, "failed", failure("ValueError", "at the very end"), step=40, epoch=1)
    assert play.job("job-1").state is JobState.ACTIVE
    assert attempt.epoch.number == 2


def test_ranks_that_leave_unasked_go_on() -> None:
    """1. All ranks yield though nobody asked (a signal by hand). 2. They have saved: the next epoch goes on."""
    play = stage(1)
    attempt = play.running(job_spec(hosts=1))
    play.all_exit(attempt, "yielded")
    play.train(attempt, restored=10)
    assert attempt.state is AttemptState.RUNNING
    assert attempt.epochs[0].cause is not None
    assert attempt.epochs[0].cause.token is Token.YIELDED


def test_a_cancel_is_gentle() -> None:
    """1. A running job is cancelled. 2. The ranks get SIGTERM and a grace. 3. Only when they are gone hosts are
    released, then they are free. Spares are released at once."""
    play = stage(3)
    attempt = play.running(job_spec(hosts=2, spares=1))
    play.cancel("job-1")
    assert attempt.state is AttemptState.CANCELLED
    assert play.job("job-1").state is JobState.CANCELLED
    assert {(effect.grace, effect.keep) for effect in play.pending(StopWorkers)} == {(STOP_GRACE, False)}
    assert [effect.host for effect in play.pending(ReleaseAttempt)] == ["h3"]
    play.settle(StopWorkers)
    assert not play.host("h1").is_free()
    play.settle(ReleaseAttempt)
    assert all(play.host(name).is_free() for name in ("h1", "h2", "h3"))


def test_reports_of_an_ended_epoch_change_nothing() -> None:
    """1. A rank dies, the next epoch forms. 2. A late exit of the old epoch comes. 3. It is booked there and interrupts
    nothing."""
    play = stage(2)
    attempt = play.running(job_spec(hosts=2))
    play.exit(attempt, 1, "failed", signal=9, step=7)
    play.exit(attempt, 0, "failed", failure("RuntimeError", ECHO), epoch=1, step=8)
    assert attempt.epoch.number == 2
    assert attempt.epochs[0].last_step == 8
    assert not attempt.epoch.ended_by


def test_a_hung_release_costs_the_host_and_not_the_others() -> None:
    """1. A job is cancelled; one host never answers. 2. After the deadline it counts as failed, with the reason."""
    play = stage(2)
    play.running(job_spec(hosts=2))
    play.silent.add(play.host("h2").id)
    play.cancel("job-1")
    play.settle()
    play.wait(121)
    assert play.states("h1", "h2") == ["ready", "out-failed"]
    assert play.host("h2").reason.sentence == "what ran there was not cleaned up within 120 s"


def test_who_does_not_launch_in_time_is_lost() -> None:
    """1. One of two hosts never launches its ranks. 2. After the deadline it is lost, and the spare takes its place."""
    play = stage(3)
    attempt = play.attempt(play.submit(job_spec(hosts=2, spares=1)).attempts[-1])
    play.silent.add(play.host("h2").id)
    play.settle()
    play.wait(FORM_DEADLINE / 1e6)
    assert play.states("h2") == ["out-failed"]
    assert attempt.members == ("h1", "h3")


def test_the_window_of_the_budget_ends_a_crash_loop() -> None:
    """1. A job fails again and again after some steps. 2. The budget of three restarts is spent: failed for good, with
    the cause and the numbers."""
    play = stage(1)
    attempt = play.running(job_spec(hosts=1))
    for number in range(4):
        play.exit(attempt, 0, "failed", failure("ValueError", f"row {'abcd'[number]} is bad"))
        if number < 3:
            play.train(attempt)
    job = play.job("job-1")
    assert job.state is JobState.FAILED
    assert job.reason is not None
    assert job.reason.token is Token.RESTART_BUDGET_SPENT
    assert "row d is bad" in job.reason.sentence
    assert job.reason.numbers["failures"] == 4


def test_a_spare_that_cannot_be_prepared_is_not_asked_again() -> None:
    """1. A spare cannot be prepared. 2. It is released, free for others, and another becomes the spare. 3. That one
    fails too: the job runs with none, and nobody is asked for ever."""
    play = stage(4)
    attempt = play.attempt(play.submit(job_spec(hosts=2, spares=1)).attempts[-1])
    for name in ("h3", "h4"):
        assert attempt.spares == (name,)
        (prepare,) = play.pending(PrepareAttempt, name)
        play.answer(prepare, "failed", "No space left on device")
        play.settle(ReleaseAttempt)
    assert attempt.spares == ()
    play.train(attempt)
    play.wait(600)
    assert play.pending(PrepareAttempt) == []
    assert play.host("h3").is_free()


def test_ranks_stopped_by_a_shutdown_cost_no_budget() -> None:
    """1. A job that may not restart runs. 2. The agents of both hosts are ended in order and stop their ranks. 3. The
    job goes on; nothing counts against it, and the reason says what it was."""
    play = stage(2)
    attempt = play.running(job_spec(hosts=2, restart=RestartBudget(max_restarts=0)))
    for rank in (0, 1):
        play.exit(attempt, rank, "stopped", signal=15)
    assert play.job("job-1").failures == ()
    assert attempt.is_live()
    cause = attempt.epochs[0].cause
    assert cause is not None
    assert (cause.token, cause.numbers) == (Token.HOST_SHUT_DOWN, {"hosts": 2})


@pytest.mark.parametrize("standby", [False, True])
def test_members_and_spares_start_their_workers_ahead_if_asked(standby: bool) -> None:
    play = stage(3)
    play.submit(job_spec(hosts=2, spares=1, ranks_per_host=4, restart=RestartBudget(standby=standby)))
    prepared = {host: effect.standby for effect in of_kind(play.sent, PrepareAttempt) for host in effect.hosts}
    assert prepared == dict.fromkeys(("h1", "h2", "h3"), 4 if standby else 0)
