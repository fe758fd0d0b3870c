"""A member whose agent is away while a peer dies: what runs there is whole, and only the dead host is replaced."""

from tests.unit.fixtures import ECHO, Stage, failure, job_spec, stage

from trainmaster.core.base.reasons import Token
from trainmaster.core.recovery.attempt import Attempt, AttemptState

PEER = failure("RuntimeError", ECHO)


def away_and_dead(spares: int = 1) -> tuple[Stage, Attempt]:
    """1. The agent of h2 is killed at 30 s. 2. A second later host h3 dies; rank 0 notices first, then its connection
    closes."""
    play = stage(3 + spares)
    attempt = play.running(job_spec(hosts=3, spares=spares))
    play.at(30)
    play.disconnect("h2")
    play.at(31)
    play.exit(attempt, 0, "failed", PEER, step=30)
    play.wait(0.05)
    play.disconnect("h3")
    return play, attempt


def test_an_agent_that_comes_back_keeps_its_place() -> None:
    """1. h3 is the first cause, and lost; its spare waits. 2. The job says whom it waits for. 3. The agent of h2 is
    back after a second: the next epoch has h2 at its place, and the spare at that of h3."""
    play, attempt = away_and_dead()
    cause = attempt.epoch.cause
    assert cause is not None
    assert (cause.token, "h3" in cause.sentence) == (Token.HOST_LOST, True)
    assert play.states("h2", "h3") == ["ready", "out-failed"]
    assert attempt.waiting is not None
    assert (attempt.waiting.token, attempt.waiting.numbers["away"]) == (Token.AGENT_AWAY, 1)
    play.wait(1.0)
    play.register("h2", session="s2", attempts=[(attempt.id, 1)])
    assert attempt.members == ("h1", "h2", "h4")
    play.train(attempt, restored=30)
    assert attempt.state is AttemptState.RUNNING
    assert play.account("job-1").incidents[0].left == ("h3",)


def test_an_agent_that_stays_away_is_lost_after_its_grace() -> None:
    """1. The agent of h2 does not come back. 2. When its grace is over its host is lost too, and both are replaced."""
    play, attempt = away_and_dead(spares=2)
    play.at(34.9)
    assert len(attempt.epochs) == 1
    play.at(35.1)
    assert play.states("h2", "h3") == ["out-failed", "out-failed"]
    assert set(attempt.members) == {"h1", "h4", "h5"}


def test_an_agent_that_comes_back_after_a_reboot_has_lost_all() -> None:
    play, attempt = away_and_dead(spares=2)
    play.register("h2", boot="b2", session="s2")
    assert set(attempt.members) == {"h1", "h4", "h5"}


def test_an_error_of_a_rank_does_not_cost_the_host_of_an_agent_that_is_away() -> None:
    """1. The agent of h2 is away; a rank elsewhere fails by an error of its own. 2. That is the cause, and no host is
    lost. 3. The agent is back: the same hosts go on."""
    play = stage(3)
    attempt = play.running(job_spec(hosts=3))
    play.at(30)
    play.disconnect("h2")
    play.at(31)
    play.exit(attempt, 2, "failed", failure("ValueError", "loss is nan"), step=30)
    assert attempt.epoch.cause is not None
    assert attempt.epoch.cause.token is Token.WORKER_EXITED
    play.wait(0.5)
    play.register("h2", session="s2", attempts=[(attempt.id, 1)])
    assert (attempt.members, len(attempt.epochs)) == (("h1", "h2", "h3"), 2)


def test_the_only_one_that_is_away_explains_it_in_the_end() -> None:
    """1. A connection closes; the peers' echoes come seconds later, and nothing else. 2. When they have settled, that
    host is lost: it is all that explains them."""
    play = stage(4)
    attempt = play.running(job_spec(hosts=3, spares=1))
    play.at(30)
    play.disconnect("h2")
    play.at(32)
    play.exit(attempt, 0, "failed", PEER, step=30)
    assert attempt.undecided
    play.at(32.6)
    assert play.states("h2") == ["out-failed"]
    assert attempt.members == ("h1", "h4", "h3")


def test_two_that_close_together_are_both_lost() -> None:
    """1. Two connections close within a moment of the first echo. 2. Both hosts are lost at once, without a wait."""
    play = stage(5)
    attempt = play.running(job_spec(hosts=3, spares=2))
    play.at(30)
    play.disconnect("h2")
    play.disconnect("h3")
    play.exit(attempt, 0, "failed", PEER, step=30)
    assert play.states("h2", "h3") == ["out-failed", "out-failed"]
    assert set(attempt.members) == {"h1", "h4", "h5"}


def test_a_lost_host_that_is_back_as_a_spare_meanwhile_stays_one() -> None:
    """1. While h2 is waited for, h5 drains, and h3 is back and verified: a spare, beside h4. 2. h4 takes its place, and
    h3 stays a spare."""
    play, attempt = away_and_dead(spares=2)
    play.drain("h5")
    play.ready("h3")
    assert attempt.spares == ("h4", "h3")
    play.register("h2", session="s2", attempts=[(attempt.id, 1)])
    assert (attempt.members, attempt.spares) == (("h1", "h2", "h4"), ("h3",))
    assert (play.host("h3").role, play.host("h3").allocation) == ("spare", attempt.id)
