"""The life of a host, told through the engine."""

import pytest
from tests.unit.fixtures import ALICE, OPS, Stage, host_spec, job_spec, of_kind, stage

from trainmaster.core.base.ids import Owner
from trainmaster.core.base.reasons import Token
from trainmaster.core.commands import plan_resume
from trainmaster.core.effects import PrepareAttempt, ReleaseAttempt, ReserveStore, StopWorkers, VerifyHost
from trainmaster.core.events import AgentDisconnected, FleetDeclared, LeaseTaken
from trainmaster.core.fleet.lifecycle import VERIFICATION_TASKS
from trainmaster.core.scheduling.job import JobState


def test_from_declared_to_ready() -> None:
    """1. A host is declared and expected. 2. Its agent registers: it has to prove itself. 3. It does, and is free."""
    play = stage(1, ready=False)
    assert play.states("h1") == ["expected"]
    play.register("h1")
    assert play.states("h1") == ["verifying"]
    (verify,) = play.pending(VerifyHost)
    assert verify.tasks == VERIFICATION_TASKS
    assert not play.host("h1").is_free()
    play.answer(verify)
    assert play.states("h1") == ["ready"]
    assert play.host("h1").is_free()
    assert [chapter.end for chapter in play.host("h1").story] == ["verifying", "ready"]


def test_declaring_again_changes_nothing_and_adds_what_is_new() -> None:
    """1. A ready host. 2. The fleet is declared again, with one more. 3. The old one keeps its state."""
    play = stage(1)
    play.tell(FleetDeclared(at=play.now, hosts=(host_spec("h1"), host_spec("h2")), by=OPS))
    assert play.states("h1", "h2") == ["ready", "expected"]
    assert play.host("h2").position == 1


def test_a_host_that_never_comes_is_failed() -> None:
    """1. Nobody registers for 15 minutes. 2. The host counts as failed, and registering brings it back all the same."""
    play = stage(1, ready=False)
    play.at(899)
    assert play.states("h1") == ["expected"]
    play.at(901)
    assert play.states("h1") == ["out-failed"]
    play.ready("h1")
    assert play.states("h1") == ["ready"]


def test_verification_fails() -> None:
    """1. A task fails. 2. The host is out and says which. 3. Resume verifies again."""
    play = stage(1, ready=False)
    play.register("h1")
    play.answer(play.pending(VerifyHost)[0], "failed", "disk: only 1 GiB is free")
    host = play.host("h1")
    assert play.states("h1") == ["out-failed"]
    assert host.reason.token is Token.VERIFICATION_FAILED
    assert "disk: only 1 GiB is free" in host.reason.sentence
    play.resume("h1")
    play.settle(VerifyHost)
    assert play.states("h1") == ["ready"]


@pytest.mark.parametrize("outcome", ["not-run", "unknown"])
def test_a_verification_without_an_answer_is_asked_again(outcome: str) -> None:
    """1. The outcome says nothing. 2. It is no pass: the tasks are asked for again, and the deadline still runs."""
    play = stage(1, ready=False)
    play.register("h1")
    (first,) = play.pending(VerifyHost)
    play.answer(first, outcome)  # type: ignore[arg-type]
    assert play.states("h1") == ["verifying"]
    (second,) = play.pending(VerifyHost)
    assert second.id != first.id
    play.wait(121)
    assert play.states("h1") == ["out-failed"]
    assert "longer than 120 s" in play.host("h1").reason.sentence


def test_a_late_verification_of_a_lost_host_means_nothing() -> None:
    """1. The host falls silent while it is verified. 2. The pass arrives all the same. 3. It stays out."""
    play = stage(1, ready=False)
    play.register("h1")
    (verify,) = play.pending(VerifyHost)
    play.fall_silent("h1")
    play.answer(verify)
    assert play.states("h1") == ["out-failed"]


def test_a_short_absence_is_forgiven() -> None:
    """1. An agent restarts within the grace. 2. Meanwhile its host is not free. 3. Afterwards it is."""
    play = stage(1)
    play.disconnect("h1")
    assert play.states("h1") == ["ready"]
    assert not play.host("h1").is_free()
    play.wait(4.9)
    play.register("h1", session="s2")
    play.wait(60)
    assert play.states("h1") == ["ready"]
    assert play.host("h1").is_free()
    assert play.pending(VerifyHost) == []


def test_a_long_absence_is_a_loss() -> None:
    """1. The agent stays away beyond the grace. 2. The host is lost and says for how long."""
    play = stage(1)
    play.disconnect("h1")
    play.wait(5.0)
    assert play.states("h1") == ["out-failed"]
    assert play.host("h1").reason.sentence == "its agent has been away for 5.0 s"
    play.ready("h1")
    assert play.states("h1") == ["ready"]


def test_a_connection_of_an_older_session_may_close_late() -> None:
    """1. An agent comes back before the old connection is seen to close. 2. The close of the old one means nothing."""
    play = stage(1)
    old = play.host("h1").session
    play.register("h1", session="s2")
    play.tell(AgentDisconnected(at=play.now, host=play.host("h1").id, session=old))
    assert play.host("h1").connected


def test_silence_is_a_loss_at_once_but_not_during_maintenance() -> None:
    """1. A ready host falls silent: lost. 2. A host that is out for planned work may be off: it stays planned."""
    play = stage(2)
    play.fall_silent("h1")
    play.drain("h2")
    play.fall_silent("h2")
    assert play.states("h1", "h2") == ["out-failed", "out-planned"]


def test_a_reboot_during_work_loses_the_host() -> None:
    """1. A job runs. 2. A host comes back with another boot id, sooner than its connection closed. 3. Its ranks are
    gone: it is lost, the spare takes over. 4. The host proves itself again before it is free."""
    play = stage(3)
    attempt = play.running(job_spec(hosts=2, spares=1))
    play.register("h2", boot="b2", session="s2")
    assert play.states("h2") == ["verifying"]
    assert attempt.members == ("h1", "h3")
    assert attempt.epochs[0].cause is not None
    assert "it rebooted" in attempt.epochs[0].cause.sentence
    play.settle(VerifyHost)
    assert play.states("h2") == ["ready"]


def test_a_reboot_while_verifying_starts_over() -> None:
    play = stage(1, ready=False)
    play.register("h1")
    (first,) = play.pending(VerifyHost)
    play.register("h1", boot="b2", session="s2")
    (second,) = play.pending(VerifyHost)
    assert second.id != first.id
    play.answer(first)
    assert play.states("h1") == ["verifying"]


def test_holds_of_two_owners() -> None:
    """1. Two people drain an idle host: it is out. 2. One resumes: it stays out, held by the other. 3. The other
    resumes: back through verification."""
    play = stage(1)
    play.drain("h1", by=OPS)
    assert play.states("h1") == ["out-planned"]
    play.drain("h1", by=ALICE)
    play.resume("h1", by=OPS)
    assert play.states("h1") == ["out-planned"]
    assert [hold.owner for hold in play.host("h1").holds] == [ALICE]
    play.resume("h1", by=ALICE)
    assert play.states("h1") == ["verifying"]
    play.settle(VerifyHost)
    assert play.states("h1") == ["ready"]


def test_a_stranger_lifts_nothing() -> None:
    play = stage(1)
    play.drain("h1", by=OPS)
    play.resume("h1", by=Owner("person:eve"))
    assert play.states("h1") == ["out-planned"]
    assert play.host("h1").hold_of(OPS) is not None


def test_a_second_drain_of_one_owner_is_the_same_hold() -> None:
    play = stage(1)
    play.drain("h1")
    play.drain("h1")
    assert len(play.host("h1").holds) == 1


def test_a_hold_outlives_a_loss() -> None:
    """1. A host is drained, then fails. 2. It returns and passes verification. 3. It is out for its hold, not ready."""
    play = stage(1, ready=False)
    play.register("h1")
    play.drain("h1")
    play.fall_silent("h1")
    assert play.states("h1") == ["out-failed"]
    play.ready("h1")
    assert play.states("h1") == ["out-planned"]
    assert play.host("h1").reason.sentence == "held by person:ops: firmware"


def test_a_resume_of_an_absent_host_waits_for_its_agent() -> None:
    """1. A drained host is off. 2. Its hold is lifted: it can't be verified yet. 3. Its agent registers: it is
    verified, as the answer to the resume had promised."""
    play = stage(1)
    play.drain("h1")
    play.disconnect("h1")
    play.resume("h1")
    assert play.states("h1") == ["out-planned"]
    play.register("h1", boot="b2", session="s2")
    play.settle(VerifyHost)
    assert play.states("h1") == ["ready"]


def test_maintenance_that_takes_too_long_is_a_failure() -> None:
    """1. A host is out for planned work for more than a week. 2. It moves to the failure side."""
    play = stage(1)
    play.drain("h1")
    play.wait(7 * 86_400 + 1)
    assert play.states("h1") == ["out-failed"]
    assert play.host("h1").hold_of(OPS) is not None


def test_a_release_that_fails_takes_the_host_out() -> None:
    """1. A job is cancelled. 2. One host cannot clean up. 3. It is out, with the reason; the other one is free."""
    play = stage(2)
    play.running(job_spec(hosts=2))
    play.cancel("job-1")
    play.settle(StopWorkers)
    first, second = play.pending(ReleaseAttempt)
    play.answer(first, "failed", "pid 4711 can't be killed (state D)")
    play.answer(second)
    assert play.states(first.host, second.host) == ["out-failed", "ready"]
    assert "pid 4711" in play.host(first.host).reason.sentence
    assert play.host(second.host).is_free()


def test_leftovers_are_cleaned_before_a_host_is_ready() -> None:
    """1. A host is lost while a job runs on it, with its agent only cut off. 2. The agent returns and reports the old
    ranks. 3. They are released, and a pass of verification alone does not make the host ready. 4. Clean: ready."""
    play = stage(3)
    attempt = play.running(job_spec(hosts=2, spares=1))
    play.lose("h2")
    play.register("h2", session="s2", attempts=[(attempt.id, 1)])
    (release,) = play.pending(ReleaseAttempt, "h2")
    assert release.attempt == attempt.id
    play.settle(VerifyHost)
    assert play.states("h2") == ["verifying"]
    play.answer(release)
    assert play.states("h2") == ["ready"]


def test_a_release_is_not_asked_twice() -> None:
    """1. A release is under way. 2. The agent restarts and still reports the ranks. 3. No second release."""
    play = stage(2)
    attempt = play.running(job_spec(hosts=2))
    play.cancel("job-1")
    play.settle(StopWorkers)
    play.disconnect("h1")
    play.register("h1", session="s2", attempts=[(attempt.id, 1)])
    assert len(play.pending(ReleaseAttempt, "h1")) == 1


def test_a_restart_of_the_agent_keeps_its_own_ranks() -> None:
    play = stage(2)
    attempt = play.running(job_spec(hosts=2))
    play.disconnect("h1")
    play.register("h1", session="s2", attempts=[(attempt.id, 1)])
    assert play.pending(ReleaseAttempt) == []
    assert attempt.state.value == "running"


def test_a_new_server_waits_for_its_agents() -> None:
    """1. Hosts run a job. 2. Another server takes the lease: nobody is connected, nobody is blamed. 3. An agent that
    comes back keeps its job. 4. One that does not within the grace is lost."""
    play = stage(2)
    attempt = play.running(job_spec(hosts=2))
    play.tell(LeaseTaken(at=play.now, lease=2, by=Owner("policy:server")))
    assert play.host("h1").is_unheard()
    assert not play.host("h1").is_gone()
    play.wait(10)
    play.register("h1", session="s2", attempts=[(attempt.id, 1)])
    assert play.states("h1", "h2") == ["ready", "ready"]
    play.wait(6)
    assert play.states("h1", "h2") == ["ready", "out-failed"]
    assert "after the server had restarted" in play.host("h2").reason.sentence


def test_the_first_id_of_a_fleet_stays() -> None:
    """1. A server draws an id for a fleet that has none. 2. Jobs are prepared with it. 3. Later ones change nothing."""
    play = stage(1)
    play.tell(LeaseTaken(at=play.now, lease=2, by=Owner("policy:server"), fleet="f3a9c2d1"))
    play.tell(LeaseTaken(at=play.now, lease=3, by=Owner("policy:server"), fleet="00000000"))
    assert play.engine.state.fleet == "f3a9c2d1"
    play.ready("h1")
    play.submit(job_spec(hosts=1))
    assert [effect.fleet for effect in of_kind(play.sent, PrepareAttempt)] == ["f3a9c2d1"]


def test_a_lease_never_goes_back() -> None:
    play = stage(1)
    with pytest.raises(AssertionError):
        play.tell(LeaseTaken(at=play.now, lease=1, by=Owner("policy:server")))


def test_a_drained_host_of_an_ended_job_leaves_when_it_is_clean() -> None:
    """1. A host drains under a job that may finish. 2. The job ends. 3. The host leaves only after its release."""
    play = stage(2)
    attempt = play.running(job_spec(hosts=2, on_drain="finish"))
    play.drain("h1")
    assert play.states("h1") == ["draining"]
    play.all_exit(attempt, "finished")
    assert play.job("job-1").state is JobState.FINISHED
    assert play.states("h1") == ["draining"]
    play.settle()
    assert play.states("h1", "h2") == ["out-planned", "ready"]


def test_a_drain_without_a_deadline_never_kills_a_job() -> None:
    """1. A host drains under a job that may finish. 2. Days go by. 3. Both are still there."""
    play = stage(2)
    attempt = play.running(job_spec(hosts=2, on_drain="finish"))
    play.drain("h1")
    play.wait(5 * 86_400)
    assert play.states("h1") == ["draining"]
    assert attempt.state.value == "running"


def test_effects_of_a_lost_host_are_settled() -> None:
    """1. A job is being placed. 2. A member is lost. 3. Nothing is expected of that host any more."""
    play = stage(2)
    play.submit(job_spec(hosts=2))
    assert play.pending(PrepareAttempt, "h2")
    play.fall_silent("h2")
    assert play.pending(PrepareAttempt, "h2") == []
    assert of_kind(play.engine.pending(), ReserveStore)


def test_an_answer_to_a_settled_effect_means_nothing() -> None:
    play = stage(1)
    (verify,) = of_kind(play.sent, VerifyHost)
    before = play.host("h1").story
    assert play.answer(verify, "failed") == ()
    assert play.host("h1").story == before


def test_positions_follow_the_declaration() -> None:
    play = Stage(host_spec("h9"), host_spec("h2"))
    assert [play.host(name).position for name in ("h9", "h2")] == [0, 1]


def test_each_of_two_owners_lifts_its_own_hold() -> None:
    """1. Two people drain one host. 2. The first one resumes: the plan lifts that hold and says who keeps the host
    out. 3. The second one resumes: the host returns."""
    play = stage(1)
    play.drain("h1", by=OPS)
    play.drain("h1", by=ALICE)
    (item,) = plan_resume(play.engine.state, ("h1",), OPS)  # type: ignore[arg-type]
    assert (item.changed, item.refused) == (True, True)
    assert ALICE in item.sentence
    play.resume("h1", by=OPS)
    assert [hold.owner for hold in play.host("h1").holds] == [ALICE]
    (item,) = plan_resume(play.engine.state, ("h1",), ALICE)  # type: ignore[arg-type]
    assert (item.changed, item.refused) == (True, False)
    play.resume("h1", by=ALICE)
    play.settle(VerifyHost)
    assert play.states("h1") == ["ready"]
