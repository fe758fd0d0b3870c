"""What the API shows of a job, from the state and from heartbeats of a moment ago."""

from tests.unit.fixtures import Stage, job_spec, stage

from trainmaster.core.agent.board import Phase
from trainmaster.core.agent.wire import GroupProgress, Heartbeat, RankProgress
from trainmaster.core.base.ids import HostId, SessionId
from trainmaster.core.base.reasons import Token
from trainmaster.core.effects import LaunchWorkers, PrepareAttempt, ReserveStore
from trainmaster.core.recovery.attempt import Attempt
from trainmaster.live.server.liveview import LiveView
from trainmaster.live.server.resources import JobView
from trainmaster.live.server.views import job_view


def beat(play: Stage, attempt: Attempt, step: int) -> LiveView:
    live = LiveView()
    rank = RankProgress(
        rank=0, phase=Phase.TRAINING, step=step, step_at=play.now, loss=1.0, step_s=0.1, published_step=-1, note=""
    )
    group = GroupProgress(attempt=attempt.id, epoch=1, ranks=(rank,))
    live.beat(Heartbeat(at=play.now, host=HostId("h1"), session=SessionId("s1"), groups=(group,)), play.now)
    return live


def seen(play: Stage, live: LiveView) -> JobView:
    return job_view(play.engine.state, play.job("job-1"), live, play.now)


def test_the_step_is_never_behind_what_was_saved() -> None:
    """1. A heartbeat told of step 18; since then step 20 was done and published, which is told at once. 2. Both are 20.
    3. So they are where no heartbeat has come yet."""
    play = stage(1)
    attempt = play.running(job_spec(hosts=1))
    play.published(attempt, 20)
    for live in (beat(play, attempt, 18), LiveView()):
        assert (seen(play, live).step, seen(play, live).published_step) == (20, 20)
    assert seen(play, beat(play, attempt, 21)).step == 21


def test_a_module_that_could_not_be_imported_ahead_is_told() -> None:
    """1. A host can't import what the job wants ahead; its ranks start all the same. 2. The job says so while it runs,
    with the host. 3. A failing save is worse, and told instead."""
    play = stage(1)
    play.submit(job_spec(hosts=1, preload=("torchh",)))
    for effect in play.pending(PrepareAttempt):
        play.answer(effect, detail="preload of torchh: ModuleNotFoundError: No module named 'torchh'")
    play.settle(ReserveStore, LaunchWorkers)
    attempt = play.attempt("job-1.a1")
    play.train(attempt)
    reason = seen(play, LiveView()).reason
    assert reason is not None
    assert (reason.token, reason.sentence) == (
        Token.PRELOAD_FAILED,
        "h1: preload of torchh: ModuleNotFoundError: No module named 'torchh'",
    )
    attempt.epoch.save_failure = "no space"
    reason = seen(play, LiveView()).reason
    assert reason is not None
    assert reason.token is Token.SAVE_FAILED
