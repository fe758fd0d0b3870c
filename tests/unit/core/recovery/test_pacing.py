"""How often a running job saves, where it leaves that to us: what is measured, chosen and told."""

import pytest
from tests.unit.fixtures import AskWorkers, Stage, failure, job_spec, of_kind, stage

from trainmaster.core.base.time import in_seconds, seconds
from trainmaster.core.checkpoint.choice import TRIAL_STEPS, Choice, ChoiceProblem
from trainmaster.core.checkpoint.interval import exact_s
from trainmaster.core.checkpoint.measured import Exposure, Pacing, added
from trainmaster.core.checkpoint.rate import estimate
from trainmaster.core.effects import PrepareAttempt
from trainmaster.core.recovery.attempt import Attempt
from trainmaster.core.recovery.events import CheckpointPublished
from trainmaster.core.recovery.pacing import BEYOND_SHARE, beyond_share, chosen, failures_per_s
from trainmaster.core.scheduling.request import CheckpointPolicy

STEP_S = 2.0
AUTO = job_spec(hosts=2, spares=1, checkpoint=CheckpointPolicy(auto=True))


def publish(play: Stage, attempt: Attempt, step: int, stall_s: float = 0.0, lag_s: float = 0.0) -> None:
    play.tell(
        CheckpointPublished(
            at=play.now,
            host=attempt.members[0],
            attempt=attempt.id,
            epoch=attempt.epoch.number,
            step=step,
            stall_s=stall_s,
            lag_s=lag_s,
        )
    )


def train_on(play: Stage, attempt: Attempt, step: int, steps: int, stall_s: float) -> int:
    """So many steps and a save."""
    play.wait(steps * STEP_S + stall_s)
    publish(play, attempt, step + steps, stall_s)
    return step + steps


def told(play: Stage, epoch: int = 0) -> list[int]:
    """The intervals that the ranks were told, each once though all hosts are told."""
    asked = [each for each in of_kind(play.sent, AskWorkers) if each.request == "interval"]
    once = {each.id: each.every_steps for each in asked if not epoch or each.epoch == epoch}
    return list(once.values())


def test_the_first_save_measures_and_the_interval_follows() -> None:
    """1. After the first step all ranks are told to save after ten. 2. The save took 4 s, a step 2 s: the interval is
    the optimum by the published rate, and all hosts are told. 3. Nothing changes at the next saves."""
    play = stage(3)
    attempt = play.running(AUTO)
    job = play.job("job-1")
    assert told(play) == [TRIAL_STEPS]
    assert job.pacing.choice is None
    step = train_on(play, attempt, 1, TRIAL_STEPS, 4.0)
    assert job.pacing.choice is not None
    wanted_s = exact_s(4.0, 86_400_000 / (2 * 4.0))
    assert job.pacing.every_steps * STEP_S == pytest.approx(wanted_s, rel=0.01)
    assert told(play) == [TRIAL_STEPS, job.pacing.every_steps]
    hosts = [each.host for each in of_kind(play.sent, AskWorkers) if each.every_steps == job.pacing.every_steps]
    assert hosts == list(attempt.members)
    assert "by the published rate" in job.pacing.choice.sentence
    for _ in range(5):
        step = train_on(play, attempt, step, job.pacing.every_steps, 4.1)
    assert len(told(play)) == 2


def test_a_lasting_change_of_the_cost_moves_it_and_one_slow_save_does_not() -> None:
    """1. One save takes a minute: nothing. 2. All take nine times as long: much rarer, as
    soon as the median has followed, and no more than three times."""
    play = stage(3)
    attempt = play.running(AUTO)
    pacing = play.job("job-1").pacing
    step = train_on(play, attempt, 1, TRIAL_STEPS, 1.0)
    first = pacing.every_steps
    for stall_s in (1.0, 1.0, 60.0, 1.0):
        step = train_on(play, attempt, step, 500, stall_s)
    assert pacing.every_steps == first
    for _ in range(9):
        step = train_on(play, attempt, step, 500, 9.0)
    assert 2 * first < pacing.every_steps < 3.1 * first
    assert told(play)[-1] == pacing.every_steps


def test_failures_of_hosts_are_the_fleets_and_failures_of_ranks_the_jobs() -> None:
    """1. A rank dies twice and its host stays: the job fails more often than the fleet. 2. A host dies: the history of
    the fleet. 3. Each new epoch is told at its first step, and saves more often than before."""
    play = stage(5)
    attempt = play.running(AUTO)
    job = play.job("job-1")
    step = train_on(play, attempt, 1, TRIAL_STEPS, 1.0)
    before = job.pacing.every_steps
    for number in (2, 3):
        step = train_on(play, attempt, step, 1_000, 1.0)
        play.exit(attempt, 0, "failed", failure("ValueError", f"bad batch {number}"), step=step)
        play.wait(1.0)
        assert attempt.epoch.number == number
        play.train(attempt, restored=step)
        assert told(play, number)[0] == job.pacing.every_steps
    assert (job.pacing.failures, play.engine.state.exposure.failures) == (2, 0)
    assert job.pacing.every_steps < before
    train_on(play, attempt, step, 1_000, 1.0)
    play.lose(attempt.members[1])
    assert attempt.epoch.number == 4
    assert (job.pacing.failures, play.engine.state.exposure.failures) == (2, 1)
    play.wait(25.0)
    play.train(attempt, restored=step)
    assert len(job.pacing.restarts_s) == 3
    assert job.pacing.restarts_s[-1] == pytest.approx(25.0, abs=8)
    assert told(play, 4) == [job.pacing.every_steps]


def test_host_time_is_counted_once_whatever_ends_an_epoch() -> None:
    """Two hosts train for 100 s, are handed over, train for 50 s, are cancelled: 300 host-seconds, of any job."""
    play = stage(4)
    attempt = play.running(job_spec(hosts=2, spares=1))
    exposure = play.engine.state.exposure
    play.wait(60)
    publish(play, attempt, 30)
    play.wait(40)
    play.drain("h2")
    play.settle(AskWorkers)
    play.all_exit(attempt, "yielded")
    assert in_seconds(exposure.host_time) == 200
    play.wait(30)
    play.train(attempt)
    play.wait(50)
    play.cancel("job-1")
    assert in_seconds(exposure.host_time) == 300
    assert exposure.failures == 0
    assert play.job("job-1").pacing.trained == seconds(150)
    assert told(play) == []


def test_a_job_with_an_interval_of_its_own_is_told_nothing() -> None:
    play = stage(2)
    attempt = play.running(job_spec(hosts=2, checkpoint=CheckpointPolicy(every_steps=100)))
    train_on(play, attempt, 1, 100, 5.0)
    assert told(play) == []
    assert play.job("job-1").pacing.choice is None
    assert play.job("job-1").pacing.stalls_s == (5.0,)


def test_saves_of_unknown_cost_choose_nothing() -> None:
    """1. An older agent tells no stall: it stays with the trial. 2. A clock that went back makes no step."""
    play = stage(2)
    attempt = play.running(job_spec(hosts=2, checkpoint=CheckpointPolicy(auto=True)))
    train_on(play, attempt, 1, TRIAL_STEPS, 0.0)
    assert told(play) == [TRIAL_STEPS]
    assert added((), -3.0) == ()
    assert added((1.0,) * 20, 2.0) == (1.0,) * 8 + (2.0,)


def measured(**more: object) -> Pacing:
    return Pacing(stalls_s=(5.0,), steps_s=(1.0,), **more)  # type: ignore[arg-type]


def test_ranks_that_die_often_count_for_the_job_alone() -> None:
    """1. None of its own, or one: the rate of its hosts. 2. Thirty in a day: it fails more often, and saves more."""
    rate = estimate(Exposure().history())
    for failures in (0, 1):
        assert failures_per_s(4, Pacing(failures=failures, trained=60_000_000), rate, 1.0) == rate.per_s(4)
    many = measured(failures=300, trained=int(86_400e6) * 10)
    assert failures_per_s(4, many, rate, 1.0) == pytest.approx(299 / 864_000 + rate.per_s(4))
    spec = AUTO.but(hosts=4)
    calm, troubled = chosen(spec, measured(), Exposure()), chosen(spec, many, Exposure())
    assert not isinstance(calm, ChoiceProblem | None)
    assert not isinstance(troubled, ChoiceProblem | None)
    assert troubled.every_steps < calm.every_steps / 4


def test_where_no_interval_makes_sense_it_says_so() -> None:
    """A job whose restart takes a day, at a failure a minute."""
    spec = AUTO.but(hosts=4)
    history = Exposure(failures=1_000, host_time=int(60e6) * 4_000)
    found = chosen(spec, measured(restarts_s=(86_400.0,)), history)
    assert isinstance(found, ChoiceProblem)
    assert "would not get on" in str(found)


def test_with_snapshots_storage_is_for_what_memory_does_not_survive() -> None:
    """1. Ranks write: every loss of a host goes back to that save. 2. From a snapshot: one in twenty does, so saves are
    rarer by about the root of that; without copies at a peer all do. 3. None begins before the one before it is
    published. 4. The share follows the fleet: where half of the losses took several hosts, it is nearly so."""
    spec = AUTO.but(hosts=256)
    alone = chosen(spec, measured(), Exposure())
    backed = chosen(spec, measured(lags_s=(40.0,)), Exposure())
    late = chosen(spec, measured(lags_s=(9_000.0,)), Exposure())
    assert isinstance(alone, Choice)
    assert isinstance(backed, Choice)
    assert isinstance(late, Choice)
    assert 4 * alone.every_steps < backed.every_steps < 4.6 * alone.every_steps
    assert late.every_steps == 9_000
    assert "only 5.0% of the losses of hosts count" in backed.sentence
    uncopied = chosen(
        spec.but(checkpoint=CheckpointPolicy(auto=True, replicate_every_steps=0)), measured(lags_s=(40.0,)), Exposure()
    )
    assert isinstance(uncopied, Choice)
    assert uncopied.every_steps == alone.every_steps
    assert beyond_share(Exposure()) == BEYOND_SHARE
    assert beyond_share(Exposure(failures=200, beyond_memory=100)) == pytest.approx(0.46, abs=0.01)


def test_a_save_shows_whether_there_are_snapshots() -> None:
    """1. A save from a snapshot. 2. That of a hand-over does not count. 3. The next one was written by the ranks:
    memory was refused, so there are none."""
    play = stage(3)
    attempt = play.running(job_spec(hosts=2, checkpoint=CheckpointPolicy(auto=True)))
    pacing = play.job("job-1").pacing
    play.wait(10 * STEP_S)
    publish(play, attempt, 11, 0.5, lag_s=40.0)
    assert pacing.lag_s() == 40.0
    play.drain("h2")
    play.settle(PrepareAttempt)
    publish(play, attempt, 12, 9.0)
    assert pacing.lag_s() == 40.0
    play.settle(AskWorkers)
    play.all_exit(attempt, "yielded", step=12)
    play.train(attempt, restored=12)
    train_on(play, attempt, 13, 10, 0.5)
    assert pacing.lags_s == ()


def test_losses_of_several_hosts_are_counted_apart() -> None:
    """1. Two hosts go at once, two spares take their places: one loss, and one that memory does not survive."""
    play = stage(6)
    attempt = play.running(job_spec(hosts=3, spares=2))
    play.wait(10)
    one, two = attempt.members[1:]
    play.disconnect(one)
    play.disconnect(two)
    play.wait(6.0)
    play.train(attempt)
    assert attempt.epoch.number == 2
    assert len(attempt.epoch.changes) == 2
    assert (play.engine.state.exposure.failures, play.engine.state.exposure.beyond_memory) == (1, 1)
