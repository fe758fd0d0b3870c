"""A gang as a whole: one effect for many hosts, one event for many outcomes or exits, decided as if told one by one."""

from collections.abc import Callable

import pytest
from tests.unit.fixtures import Stage, failure, job_spec, of_kind, stage

from trainmaster.core.agent.board import Phase
from trainmaster.core.base.ids import EffectId, HostId
from trainmaster.core.base.reasons import Token
from trainmaster.core.base.value import decode, encode
from trainmaster.core.effects import (
    AnyEffect,
    AskWorkers,
    LaunchWorkers,
    PrepareAttempt,
    ReleaseAttempt,
    ReserveStore,
    StopWorkers,
    for_host,
    parts,
)
from trainmaster.core.engine import Engine
from trainmaster.core.recovery.attempt import Attempt, AttemptState
from trainmaster.core.recovery.events import EffectsEnded, Failure, How, Outcome, WorkersExited

PEER_LOST = failure("RuntimeError", "Connection closed by peer")


def ended(play: Stage, effect: AnyEffect, *hosts: str, outcome: Outcome = "done", detail: str = "") -> None:
    named = tuple(map(HostId, hosts)) or effect.hosts
    numbers: dict[str, int | float | str] = {"port": 29_500} if isinstance(effect, ReserveStore) else {}
    play.tell(EffectsEnded(at=play.now, hosts=named, effect=effect.id, outcome=outcome, detail=detail, numbers=numbers))


def all_exited(
    play: Stage, attempt: Attempt, hosts: tuple[HostId, ...], how: How, error: Failure | None = None, step: int = 5
) -> None:
    play.tell(
        WorkersExited(
            at=play.now,
            attempt=attempt.id,
            epoch=attempt.epoch.number,
            hosts=hosts,
            how=how,
            exit_code=1 if error else 0,
            signal=None,
            attached=True,
            phase=Phase.TRAINING,
            step=step,
            step_at=play.now,
            save_s=0.5,
            failure=error,
        )
    )


def whole(play: Stage, kind: type) -> AnyEffect:
    """The only pending effect of this kind, as the engine keeps it."""
    (effect,) = (effect for effect in play.engine.pending() if isinstance(effect, kind))
    return effect


def form(play: Stage) -> None:
    """Answers what is asked, each effect as a whole, until nothing is."""
    while waiting := play.engine.pending():
        effect = waiting[0]
        ended(play, effect, *(host for host in effect.hosts if host in play.engine.state.pending[effect.id].open_at))


def trains(play: Stage, attempt: Attempt) -> Attempt:
    form(play)
    for phase in (Phase.ATTACHED, Phase.GROUPED, Phase.RESTORED, Phase.TRAINING):
        play.phase(attempt, phase, 1)
    return attempt


def running(play: Stage, **more: int) -> Attempt:
    play.submit(job_spec(**more))
    return trains(play, play.attempt("job-1.a1"))


def test_what_a_host_is_sent() -> None:
    """1. A launch of three hosts with two ranks each. 2. Each host is sent its own ranks, under the same id. 3. What it
    is sent reads back from the wire. 4. A host that is not in it is a defect."""
    play = stage(3)
    play.submit(job_spec(hosts=3, ranks_per_host=2))
    ended(play, whole(play, PrepareAttempt))
    ended(play, whole(play, ReserveStore))
    launch = whole(play, LaunchWorkers)
    assert launch.hosts == ("h1", "h2", "h3")
    sent = [part for _, part in parts(launch) if isinstance(part, LaunchWorkers)]
    assert [(part.id, part.host, part.first_rank, part.nodes) for part in sent] == [
        (launch.id, "h1", 0, 3),
        (launch.id, "h2", 2, 3),
        (launch.id, "h3", 4, 3),
    ]
    assert sent == [for_host(launch, host) for host in launch.hosts]
    assert decode(encode(sent[2]), LaunchWorkers) == sent[2]
    assert play.engine.pending(HostId("h2")) == (sent[1],)
    with pytest.raises(AssertionError, match="is not addressed to h4"):
        for_host(launch, HostId("h4"))


def test_a_cycle_is_a_handful_of_effects() -> None:
    """1. A job of twenty hosts loses one: its peers fail at once. 2. To re-form it takes as many effects as for two."""
    counts = []
    for size in (2, 20):
        play = stage(size + 1)
        attempt = running(play, hosts=size, spares=1)
        play.disconnect("h2")
        before = play.engine.index
        effects = list(play.engine.handle(_echo_of_all_but(play, attempt, "h2")))
        counts.append(len(effects))
        form(play)
        assert attempt.state is AttemptState.RUNNING
        assert attempt.members == tuple(HostId(f"h{size + 1 if n == 2 else n}") for n in range(1, size + 1))
        assert play.engine.index - before <= 5
    assert counts == [2, 2], "stop the old ranks, reserve a store; the spare is warm already"


def _echo_of_all_but(play: Stage, attempt: Attempt, lost: str) -> WorkersExited:
    return WorkersExited(
        at=play.now,
        attempt=attempt.id,
        epoch=attempt.epoch.number,
        hosts=tuple(host for host in attempt.members if host != lost),
        how="failed",
        exit_code=1,
        signal=None,
        attached=True,
        phase=Phase.TRAINING,
        step=5,
        step_at=play.now,
        save_s=0.0,
        failure=PEER_LOST,
    )


def one_by_one(play: Stage, attempt: Attempt, how: How, error: Failure | None) -> None:
    epoch = attempt.epoch.number
    for rank in range(len(attempt.members) * 2):
        play.exit(attempt, rank, how, error, step=5, epoch=epoch, save_s=0.5)


def at_once(play: Stage, attempt: Attempt, how: How, error: Failure | None) -> None:
    all_exited(play, attempt, attempt.members, how, error)


@pytest.mark.parametrize(("how", "error"), [("finished", None), ("yielded", None), ("failed", PEER_LOST)])
def test_exits_at_once_mean_what_they_mean_one_by_one(how: How, error: Failure | None) -> None:
    """1. All ranks end alike, told in one event or in one event a rank. 2. The epoch ends in the same way, for the same
    reason, at the same step."""
    tellers: list[Callable[[Stage, Attempt, How, Failure | None], None]] = [one_by_one, at_once]
    ends = []
    for tell in tellers:
        play = stage(3)
        attempt = running(play, hosts=3, ranks_per_host=2)
        play.at(10)
        tell(play, attempt, how, error)
        play.wait(1)
        epoch = attempt.epochs[0]
        ends.append((attempt.state, epoch.ended_by, epoch.cause, epoch.last_step, epoch.save_s, epoch.failed_at))
    assert ends[0] == ends[1]
    assert ends[0][1] == ("interrupted" if how == "failed" else how)


def test_an_own_failure_among_echoes_at_once() -> None:
    """1. Two hosts tell of echoes in one event. 2. The ranks of a third failed of themselves, in one event too. 3. Its
    first rank is the cause, and all failed ranks are counted."""
    play = stage(4)
    attempt = running(play, hosts=4, ranks_per_host=2)
    first, second, third, _ = attempt.members
    all_exited(play, attempt, (first, third), "failed", PEER_LOST)
    assert attempt.undecided
    all_exited(play, attempt, (second,), "failed", failure("AcceleratorError", "CUDA error: uncorrectable ECC error"))
    cause = attempt.epochs[0].cause
    assert cause is not None
    assert cause.sentence.startswith("rank 2 on h2 failed: AcceleratorError")
    assert cause.numbers == {"rank": 2, "host": "h2", "ranks_failed": 6}


def test_ranks_told_twice_count_once() -> None:
    """1. One rank of a host finishes by itself. 2. Then all ranks of all hosts are told to have. 3. And again: nothing.
    4. The job is finished, once."""
    play = stage(2)
    attempt = running(play, hosts=2, ranks_per_host=2)
    play.exit(attempt, 2, "finished")
    all_exited(play, attempt, attempt.members[1:], "finished")
    all_exited(play, attempt, attempt.members[1:], "finished")
    assert (attempt.exits.count, [each.first.rank for each in attempt.exits.told]) == (2, [2, 3])
    assert attempt.is_live()
    all_exited(play, attempt, attempt.members, "finished")
    assert attempt.state is AttemptState.FINISHED


def test_ways_of_many_are_told_briefly() -> None:
    """1. Two hosts finish, one yields, each told as a whole. 2. The sentence names the hosts folded."""
    play = stage(3)
    attempt = running(play, hosts=3, ranks_per_host=4)
    all_exited(play, attempt, attempt.members[:2], "finished")
    all_exited(play, attempt, attempt.members[2:], "yielded")
    cause = attempt.epochs[0].cause
    assert cause is not None
    assert cause.token is Token.MIXED_OUTCOME
    assert cause.sentence == "the ranks did not end alike: 8 ranks on h[1-2] finished, 4 ranks on h3 yielded"


def test_hosts_that_are_no_members_have_no_ranks() -> None:
    play = stage(3)
    attempt = running(play, hosts=2)
    with pytest.raises(AssertionError, match="no members"):
        all_exited(play, attempt, (HostId("h3"),), "finished")


def test_an_effect_is_pending_until_its_last_host_has_answered() -> None:
    """1. A launch of three hosts; two answer, one twice. 2. It is pending at the third alone, also after a restore, and
    goes out again under its old id. 3. The third answers: the job runs."""
    play = stage(3)
    play.submit(job_spec(hosts=3))
    ended(play, whole(play, PrepareAttempt))
    ended(play, whole(play, ReserveStore))
    launch = whole(play, LaunchWorkers)
    ended(play, launch, "h3", "h1")
    ended(play, launch, "h1")
    again = Engine.restore(play.engine.snapshot())
    for engine in (play.engine, again):
        assert engine.pending(HostId("h1")) == engine.pending(HostId("h3")) == ()
        assert engine.pending(HostId("h2")) == (for_host(launch, HostId("h2")),)
    assert again.snapshot() == play.engine.snapshot()
    assert play.attempt("job-1.a1").state is AttemptState.LAUNCHING
    ended(play, launch, "h2")
    assert play.attempt("job-1.a1").state is AttemptState.RUNNING


def test_a_stranger_does_not_answer() -> None:
    play = stage(3)
    play.submit(job_spec(hosts=2))
    with pytest.raises(AssertionError, match=r"h3 answers for h\[1-2\]"):
        ended(play, whole(play, PrepareAttempt), "h1", "h3")
    ended(play, play.engine.pending()[0].but(id=EffectId("e1.1")), "h3")  # nobody asked, or long ago: no news


def test_a_lost_host_is_not_waited_for() -> None:
    """1. One of three hosts dies while the job launches. 2. The launch is pending at the other two."""
    play = stage(4)
    play.submit(job_spec(hosts=3))
    ended(play, whole(play, PrepareAttempt))
    ended(play, whole(play, ReserveStore))
    launch = whole(play, LaunchWorkers)
    play.lose("h2")
    assert play.engine.state.pending[launch.id].open_at == {"h1", "h3"}


def test_no_host_could_launch_at_once() -> None:
    """1. All hosts of a launch refuse in one event. 2. The cause is common, and none is blamed."""
    play = stage(3)
    play.submit(job_spec(hosts=3))
    ended(play, whole(play, PrepareAttempt))
    ended(play, whole(play, ReserveStore))
    ended(play, whole(play, LaunchWorkers), outcome="failed", detail="no driver")
    cause = play.attempt("job-1.a1").cause
    assert cause is not None
    assert cause.sentence.startswith("3 of 3 hosts could not launch: the cause is common to them")


def test_a_hand_over_and_an_end_as_a_whole() -> None:
    """1. A host drains: one effect asks all ranks to go. 2. They left: the next epoch. 3. The job is cancelled: one
    effect stops all members, one lets the spare go, and one lets all go that were stopped."""
    play = stage(5)
    attempt = running(play, hosts=3, spares=1)
    play.drain("h2")
    ask = whole(play, AskWorkers)
    assert ask.hosts == ("h1", "h2", "h3")
    ended(play, ask)
    all_exited(play, attempt, attempt.members, "yielded")
    trains(play, attempt)
    assert (attempt.members, attempt.spares) == (("h1", "h4", "h3"), ("h5",))
    assert play.states("h2") == ["out-planned"]
    play.cancel("job-1")
    assert whole(play, StopWorkers).hosts == ("h1", "h4", "h3")
    assert whole(play, ReleaseAttempt).hosts == ("h5",)
    ended(play, whole(play, StopWorkers))
    assert [effect.hosts for effect in play.engine.pending()] == [("h5",), ("h1", "h4", "h3")]
    form(play)
    assert play.engine.free_hosts() == {"c": 4}
    assert not of_kind(play.engine.pending(), ReleaseAttempt)


def test_who_was_in_an_epoch_that_is_over() -> None:
    """1. A gang loses a host, hands another one over, and goes on. 2. Each epoch keeps what changed, and the hosts of
    each can still be told. 3. So can who left and who joined in each incident."""
    play = stage(6)
    attempt = running(play, hosts=3, spares=1)
    seen = [attempt.members]
    play.lose("h2")
    seen.append(trains(play, attempt).members)
    play.drain("h3")
    form(play)
    all_exited(play, attempt, attempt.members, "yielded")
    seen.append(trains(play, attempt).members)
    assert [attempt.hosts_of(number) for number in (1, 2, 3)] == seen
    assert [len(epoch.changes) for epoch in attempt.epochs] == [0, 1, 1]
    incidents = play.account("job-1").incidents
    assert [(incident.left, incident.joined) for incident in incidents] == [(("h2",), ("h4",)), (("h3",), ("h5",))]
