"""Planned leaves, told through the engine: drains, evictions, requeues."""

from tests.unit.fixtures import ALICE, OPS, Stage, failure, job_spec, of_kind, stage

from trainmaster.core.agent.board import Phase
from trainmaster.core.base.reasons import Token
from trainmaster.core.base.time import seconds
from trainmaster.core.effects import (
    AskWorkers,
    LaunchWorkers,
    PrepareAttempt,
    ReleaseAttempt,
    ReserveStore,
    StopWorkers,
    VerifyHost,
)
from trainmaster.core.recovery.attempt import Attempt, AttemptState
from trainmaster.core.scheduling.job import JobState


def asked(play: Stage, attempt: Attempt) -> list[str]:
    """Hosts whose ranks were asked to yield in the present epoch."""
    epoch = attempt.epoch.number
    return [effect.host for effect in of_kind(play.sent, AskWorkers) if effect.epoch == epoch]


def test_a_drain_with_a_spare() -> None:
    """1. A job of two with a spare runs; one host drains. 2. All ranks are asked to save and leave. 3. They do; the
    spare takes the place, in the same attempt. 4. The host is released and out. 5. The next epoch has a new store."""
    play = stage(3)
    attempt = play.running(job_spec(hosts=2, spares=1))
    play.drain("h2")
    assert asked(play, attempt) == ["h1", "h2"]
    assert attempt.handover is not None
    assert not attempt.handover.requeue
    play.wait(4)
    play.all_exit(attempt, "yielded", step=20)
    assert attempt.state is AttemptState.REFORMING
    assert attempt.members == ("h1", "h3")
    assert attempt.epochs[0].ended_by == "yielded"
    assert attempt.epochs[0].cause is not None
    assert attempt.epochs[0].cause.token is Token.DRAINED
    (store,) = play.pending(ReserveStore)
    assert (store.host, store.epoch) == ("h1", 2)
    play.train(attempt, restored=20)
    assert attempt.state is AttemptState.RUNNING
    assert play.states("h2") == ["out-planned"]
    assert play.job("job-1").failures == ()


def test_a_drain_without_a_spare_waits_until_one_comes() -> None:
    """1. No host is free: the job goes on, and the reason is told. 2. A host comes: it is prepared, the ranks yield.
    3. They leave, the newcomer takes the place."""
    play = stage(3)
    play.drain("h3")
    attempt = play.running(job_spec(hosts=2))
    play.drain("h2")
    assert attempt.state is AttemptState.RUNNING
    assert asked(play, attempt) == []
    assert attempt.waiting is not None
    assert attempt.waiting.token is Token.SPARE_MISSING
    assert attempt.waiting.sentence == "h2 drains; waits for a warm spare that takes its place"
    play.wait(600)
    play.resume("h3")
    play.settle()
    assert asked(play, attempt) == ["h1", "h2"]
    play.all_exit(attempt, "yielded")
    assert attempt.members == ("h1", "h3")
    play.train(attempt, restored=10)
    assert attempt.waiting is None
    assert play.states("h2") == ["out-planned"]


def test_a_drain_withdrawn_while_it_waits_leaves_no_trace() -> None:
    """1. A drain waits for a spare. 2. It is withdrawn. 3. The job waits for nothing, and takes no host that comes."""
    play = stage(3)
    play.drain("h3")
    attempt = play.running(job_spec(hosts=2))
    play.drain("h2")
    play.resume("h2")
    assert attempt.waiting is None
    assert attempt.id not in play.engine.state.wanting
    play.resume("h3")
    play.settle()
    assert play.host("h3").is_free()
    assert asked(play, attempt) == []


def test_a_drain_withdrawn_while_yielding_forms_again_on_the_same_hosts() -> None:
    """1. The ranks are asked to leave. 2. The drain is withdrawn before they have. 3. They leave, and the same hosts
    go on: a request on a board can't be taken back."""
    play = stage(3)
    attempt = play.running(job_spec(hosts=2, spares=1))
    play.drain("h2")
    play.resume("h2")
    play.all_exit(attempt, "yielded")
    play.train(attempt, restored=10)
    assert attempt.members == ("h1", "h2")
    assert attempt.spares == ("h3",)
    assert attempt.epoch.number == 2
    assert play.states("h2") == ["ready"]


def test_a_drain_before_the_first_step_waits_for_something_to_save() -> None:
    """1. A host drains while the ranks restore. 2. Nobody is asked yet. 3. The first step is done: now they are."""
    play = stage(3)
    play.submit(job_spec(hosts=2, spares=1))
    attempt = play.attempt("job-1.a1")
    play.settle()
    play.drain("h1")
    assert attempt.waiting is not None
    assert attempt.waiting.token is Token.WAITING_FOR_CHECKPOINT
    assert asked(play, attempt) == []
    play.train(attempt)
    assert asked(play, attempt) == ["h1", "h2"]


def test_a_first_step_told_before_the_last_launch() -> None:
    """1. A host drains while the job launches. 2. Rank 0 tells of the first step before another agent's launch is
    known. 3. With that outcome the ranks are asked; the drain is not forgotten."""
    play = stage(3)
    play.submit(job_spec(hosts=2, spares=1))
    attempt = play.attempt("job-1.a1")
    play.settle(PrepareAttempt, ReserveStore)
    first, last = play.pending(LaunchWorkers)
    play.answer(first)
    play.drain("h2")
    play.phase(attempt, Phase.RESTORED, 0)
    play.phase(attempt, Phase.TRAINING, 1)
    assert asked(play, attempt) == []
    play.answer(last)
    assert asked(play, attempt) == ["h1", "h2"]


def test_ranks_that_do_not_leave_in_time_are_stopped() -> None:
    """1. The ranks are asked to leave and do not. 2. The deadline of the job passes. 3. They are stopped, the spare
    takes over, and the epoch says what happened."""
    play = stage(3)
    attempt = play.running(job_spec(hosts=2, spares=1, yield_deadline=seconds(30)))
    play.drain("h2")
    play.wait(29.9)
    assert attempt.state is AttemptState.RUNNING
    play.wait(0.2)
    assert attempt.members == ("h1", "h3")
    assert [effect.grace for effect in of_kind(play.sent, StopWorkers)] == [0, 0]
    cause = attempt.epochs[0].cause
    assert cause is not None
    assert cause.token is Token.DEADLINE_PASSED
    assert cause.numbers == {"yield_deadline_s": 30.0}
    assert attempt.epochs[0].ended_by == "stopped"
    assert play.job("job-1").failures == ()


def test_a_spare_that_drains_is_replaced() -> None:
    """1. A spare drains. 2. It is released at once, and a free host becomes the spare. 3. The job is not disturbed."""
    play = stage(4)
    attempt = play.running(job_spec(hosts=2, spares=1))
    play.drain("h3")
    assert attempt.spares == ("h4",)
    assert asked(play, attempt) == []
    play.settle(ReleaseAttempt)
    assert play.states("h3") == ["out-planned"]


def test_a_job_that_may_finish_is_left_alone() -> None:
    """1. A job with on_drain = finish runs on a draining host. 2. Nobody asks it to leave, and no host is taken for it.
    3. It finishes; the host leaves."""
    play = stage(3)
    attempt = play.running(job_spec(hosts=2, on_drain="finish"))
    play.drain("h1")
    assert asked(play, attempt) == []
    assert attempt.spares == ()
    play.all_exit(attempt, "finished")
    play.settle()
    assert play.job("job-1").state is JobState.FINISHED
    assert play.states("h1", "h2") == ["out-planned", "ready"]


def test_an_eviction_preempts_after_a_checkpoint() -> None:
    """1. A drain has a deadline with eviction; no host is free. 2. The deadline passes: the ranks save and leave, the
    attempt is preempted. 3. The job is queued again, with its reason; the other host is free."""
    play = stage(2)
    attempt = play.running(job_spec(hosts=2))
    play.drain("h2", deadline_s=60, evict=True)
    play.wait(59)
    assert asked(play, attempt) == []
    play.wait(2)
    assert asked(play, attempt) == ["h1", "h2"]
    play.all_exit(attempt, "yielded")
    assert attempt.state is AttemptState.PREEMPTED
    assert attempt.cause is not None
    assert attempt.cause.token is Token.DEADLINE_PASSED
    assert "h2 is evicted" in attempt.cause.sentence
    play.settle()
    job = play.job("job-1")
    assert job.state is JobState.QUEUED
    assert job.reason is not None
    assert job.reason.token is Token.NOT_ENOUGH_HOSTS
    assert play.states("h1", "h2") == ["ready", "out-planned"]


def test_an_eviction_of_a_job_that_may_finish() -> None:
    play = stage(2)
    attempt = play.running(job_spec(hosts=1, on_drain="finish"))
    play.drain("h1", deadline_s=10, evict=True)
    play.wait(10)
    play.all_exit(attempt, "yielded")
    play.settle()
    assert play.states("h1") == ["out-planned"]
    assert play.attempt("job-1.a2").members == ("h2",)


def test_a_deadline_without_eviction_evicts_nobody() -> None:
    play = stage(2)
    attempt = play.running(job_spec(hosts=2))
    play.drain("h2", deadline_s=10)
    play.wait(3600)
    assert attempt.state is AttemptState.RUNNING


def test_an_eviction_goes_with_its_hold() -> None:
    """1. One person drains with eviction, another without. 2. The first resumes before the deadline. 3. The deadline
    passes, and the job still runs: who is left can wait."""
    play = stage(2)
    attempt = play.running(job_spec(hosts=2))
    play.drain("h2", by=OPS, deadline_s=60, evict=True)
    play.drain("h2", by=ALICE)
    play.resume("h2", by=OPS)
    play.wait(120)
    assert attempt.state is AttemptState.RUNNING
    assert play.host("h2").evict_at is None


def test_the_earliest_eviction_counts() -> None:
    play = stage(2)
    attempt = play.running(job_spec(hosts=2))
    play.drain("h2", by=OPS, deadline_s=60, evict=True)
    play.drain("h2", by=ALICE, deadline_s=30, evict=True)
    play.wait(31)
    assert asked(play, attempt) == ["h1", "h2"]


def test_an_eviction_does_not_reach_those_who_have_left() -> None:
    """1. A host drains with eviction; the job moves to a spare and runs. 2. Its release is slow, the deadline passes.
    3. The job, no longer there, is not disturbed."""
    play = stage(3)
    attempt = play.running(job_spec(hosts=2, spares=1))
    play.drain("h2", deadline_s=60, evict=True)
    play.all_exit(attempt, "yielded")
    play.settle(PrepareAttempt, ReserveStore, LaunchWorkers)
    for phase, step in ((Phase.RESTORED, 10), (Phase.TRAINING, 11)):
        play.phase(attempt, phase, step)
    assert play.host("h2").role == "releasing"
    play.wait(61)
    assert attempt.state is AttemptState.RUNNING
    assert attempt.handover is None


def test_a_host_lost_while_the_ranks_leave() -> None:
    """1. The ranks are asked to leave. 2. Another member is lost. 3. It becomes an unplanned recovery; the draining
    host stays for now, since the only spare goes to the vacant place."""
    play = stage(3)
    attempt = play.running(job_spec(hosts=2, spares=1))
    play.drain("h2")
    play.fall_silent("h1")
    assert attempt.members == ("h3", "h2")
    assert attempt.handover is None
    play.train(attempt)
    assert attempt.waiting is not None
    assert attempt.waiting.token is Token.SPARE_MISSING


def test_a_requeue_saves_first() -> None:
    """1. A person requeues a running job. 2. The ranks save and leave. 3. It is queued and, as hosts are there, placed
    again as another attempt."""
    play = stage(2)
    attempt = play.running(job_spec(hosts=2))
    play.requeue("job-1")
    assert asked(play, attempt) == ["h1", "h2"]
    play.all_exit(attempt, "yielded")
    assert attempt.state is AttemptState.PREEMPTED
    play.settle()
    assert play.job("job-1").attempts == ("job-1.a1", "job-1.a2")
    assert play.job("job-1").state is JobState.ACTIVE


def test_a_requeue_during_a_hand_over_ends_in_the_queue() -> None:
    play = stage(3)
    attempt = play.running(job_spec(hosts=2, spares=1))
    play.drain("h2")
    play.requeue("job-1")
    play.all_exit(attempt, "yielded")
    assert attempt.state is AttemptState.PREEMPTED


def test_a_requeue_that_is_not_followed_in_time() -> None:
    play = stage(2)
    attempt = play.running(job_spec(hosts=2, yield_deadline=seconds(5)))
    play.requeue("job-1")
    play.wait(6)
    assert attempt.state is AttemptState.PREEMPTED
    assert attempt.cause is not None
    assert attempt.cause.token is Token.DEADLINE_PASSED


def test_a_requeue_before_a_step_has_nothing_to_save() -> None:
    play = stage(2)
    play.submit(job_spec(hosts=2))
    play.settle()
    play.requeue("job-1")
    assert play.attempt("job-1.a1").state is AttemptState.PREEMPTED
    assert asked(play, play.attempt("job-1.a1")) == []


def test_a_requeue_survives_a_failure_on_the_way() -> None:
    """1. A requeue is under way. 2. A rank fails. 3. The job is queued as was asked, instead of re-forming."""
    play = stage(2)
    attempt = play.running(job_spec(hosts=2))
    play.requeue("job-1")
    play.exit(attempt, 1, "failed", failure("ValueError", "x"))
    assert attempt.state is AttemptState.PREEMPTED
    assert len(play.job("job-1").failures) == 1


def test_a_spare_that_dies_is_replaced_at_once() -> None:
    """1. A spare's host dies while another is free. 2. The free one is the new spare; the job is not disturbed."""
    play = stage(4)
    attempt = play.running(job_spec(hosts=2, spares=1))
    play.lose("h3")
    assert attempt.spares == ("h4",)
    assert [effect.host for effect in play.pending(PrepareAttempt)] == ["h4"]
    assert (attempt.state, attempt.epoch.number) == (AttemptState.RUNNING, 1)


def test_a_spare_that_dies_is_replaced_when_a_host_comes() -> None:
    """1. A spare's host dies and no host is free. 2. It comes back through verification and is the spare again."""
    play = stage(3)
    attempt = play.running(job_spec(hosts=2, spares=1))
    play.lose("h3")
    assert attempt.spares == ()
    play.register("h3", boot="b2", session="s2")
    play.settle()
    assert attempt.spares == ("h3",)
    assert (attempt.state, attempt.epoch.number) == (AttemptState.RUNNING, 1)


def test_a_spare_that_cannot_be_prepared_is_replaced() -> None:
    """1. The keeper of a spare does not start. 2. Another host is taken, and the first is not asked again."""
    play = stage(4)
    attempt = play.running(job_spec(hosts=2, spares=1))
    play.lose("h3")
    (prepare,) = play.pending(PrepareAttempt, "h4")
    play.answer(prepare, "failed", "no space left")
    play.settle(ReleaseAttempt)
    assert attempt.spares == ()
    play.register("h3", boot="b2", session="s2")
    play.settle()
    assert attempt.spares == ("h3",)


def test_a_spare_drained_while_it_warms_up_disturbs_nobody() -> None:
    """1. A job runs; its spare is drained and resumed, and asked to prepare again. 2. It is drained once more before
    that has ended. 3. The preparation ends as failed, since what it started was cleaned up. 4. The epoch runs on and
    the budget is untouched. 5. The spare comes back and is prepared as if nothing had been."""
    play = stage(3)
    attempt = play.running(job_spec(hosts=2, spares=1))
    play.drain("h3")
    play.settle(ReleaseAttempt)
    play.resume("h3")
    play.settle(VerifyHost)
    (prepare,) = play.pending(PrepareAttempt)
    assert attempt.spares == ("h3",)
    play.drain("h3")
    play.answer(prepare, "failed", "the keeper of the attempt ended")
    assert (attempt.state, attempt.epoch.number) == (AttemptState.RUNNING, 1)
    assert play.job("job-1").failures == ()
    play.settle(ReleaseAttempt)
    play.resume("h3")
    play.settle(VerifyHost, PrepareAttempt)
    assert attempt.spares == ("h3",)
    assert attempt.unfit == ()
