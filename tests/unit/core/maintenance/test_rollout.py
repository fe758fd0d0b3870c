"""The life of a rollout: what passes it on, what holds it, what ends it."""

from typing import Any

import pytest

from trainmaster.core.base.ids import ComponentName, HostId, Owner, RolloutId
from trainmaster.core.base.machine import IllegalTransition
from trainmaster.core.base.reasons import Token, because
from trainmaster.core.base.time import HOUR, Instant
from trainmaster.core.base.value import decode, encode
from trainmaster.core.maintenance.rollout import (
    Rollout,
    RolloutState,
    advise,
    begin,
    deadline,
    decide,
    exposed,
    host_failed,
    is_bad,
    is_proven,
    may_begin,
    off_board,
    operation_ended,
    pass_stage,
    pause,
    resume,
    rollout_broken,
    stop,
)
from trainmaster.core.maintenance.stages import DAY, Percentages, Plan, RolloutSpec

ADA = Owner("person:ada")
GO_ON = because(Token.STAGE_PASSED, "person:ada takes the risk")


def made(hosts: int = 100, **changes: Any) -> tuple[Rollout, Plan]:
    """A rollout in stages of 10, 50 and 100 %, of which the first needs no proof."""
    spec = RolloutSpec(
        component=ComponentName("driver"),
        version="550.2",
        pool=tuple(HostId(f"h{number}") for number in range(hosts)),
        stages=Percentages(percents=(10.0, 50.0, 100.0)),
        unproven_percent=50.0,
    ).but(**changes)
    rollout = begin(RolloutId("r1"), spec, 1, ADA, Instant(0))
    return rollout, Plan(rollout.id, spec, 1)


def upgrade(rollout: Rollout, plan: Plan, failing: int = 0) -> None:
    """All hosts of the present stage get the version; the first ones of those that it adds don't come back."""
    for number, host in enumerate(plan.new_hosts(rollout.stage)):
        operation_ended(rollout, plan, host, succeeded=number >= failing)


def soak(rollout: Rollout, plan: Plan, hours: int = 12) -> None:
    count = plan.counts[rollout.stage]
    exposed(rollout, upgraded=count * hours * HOUR, others=(len(plan.order) - count) * hours * HOUR)


def fail(rollout: Rollout, plan: Plan, place: int, upgraded: bool, n1: int, n0: int) -> None:
    host_failed(rollout, plan, plan.order[place], upgraded=upgraded, under_load=True, n1=n1, n0=n0)


def test_a_stage_says_what_it_lacks() -> None:
    """1. Nothing has happened: operations and exposure are missing. 2. After the operations: exposure. 3. After half of
    the soak it says how much there is. 4. After all of it the stage passes, and the next begins with no exposure."""
    rollout, plan = made()
    verdict = advise(rollout, plan, Instant(0))
    assert verdict.decision == "hold"
    assert verdict.reason.token is Token.STAGE_HOLDS
    assert verdict.reason.sentence == (
        "stage 1 of 3 (10 of 100 hosts): 0 of 9 operations have ended; 0 of 120 loaded host-hours"
    )
    upgrade(rollout, plan)
    soak(rollout, plan, hours=6)
    verdict, _ = decide(rollout, plan, Instant(HOUR))
    assert verdict.reason.sentence == "stage 1 of 3 (10 of 100 hosts): 60 of 120 loaded host-hours"
    assert verdict.reason.numbers["exposure_host_h"] == 60
    assert verdict.reason.numbers["exposure_wanted_host_h"] == 120
    assert rollout.reason == verdict.reason
    soak(rollout, plan, hours=6)
    verdict, aftermath = decide(rollout, plan, Instant(2 * HOUR))
    assert (verdict.decision, aftermath) == ("pass", None)
    assert (rollout.state, rollout.stage, rollout.stage_began) == (RolloutState.STAGE, 1, 2 * HOUR)
    assert advise(rollout, plan, Instant(3 * HOUR)).reason.numbers["exposure_host_h"] == 0


def test_some_hosts_are_always_in_repair() -> None:
    """1. Nine of ten hosts of the stage have had their operation. 2. The stage passes after its soak."""
    rollout, plan = made()
    for host in plan.new_hosts(0)[:9]:
        operation_ended(rollout, plan, host, succeeded=True)
    soak(rollout, plan)
    assert advise(rollout, plan, Instant(0)).decision == "pass"


def test_proof_is_asked_for_before_the_share_is_passed() -> None:
    """1. At 50 % all is well, but 100 % would be beyond the share. 2. No host failed: silence is no proof, and there is
    no forecast. 3. After failures of others the sentence says how many more, and how long that takes. 4. With enough of
    them the version is proven and the stage passes."""
    rollout, plan = made(hosts=400)
    for _ in range(2):
        upgrade(rollout, plan)
        soak(rollout, plan)
        decide(rollout, plan, Instant(0))
    assert rollout.stage == 1
    verdict = advise(rollout, plan, Instant(0))
    assert verdict.reason.sentence == (
        "stage 2 of 3 (200 of 400 hosts): proof under load needs about 21 more failures in the pool; none was seen yet"
    )
    fail(rollout, plan, 399, False, 200, 200)
    verdict = advise(rollout, plan, Instant(0))
    assert "about 17 more failures in the pool, so 81600 loaded host-hours" in verdict.reason.sentence
    assert verdict.reason.numbers["failures_more"] == 17
    assert not is_proven(rollout)
    for number in range(4):
        fail(rollout, plan, 398 - number, False, 200, 199 - number)
    assert is_proven(rollout)
    assert decide(rollout, plan, Instant(0))[0].decision == "pass"
    assert rollout.stage == 2


def test_the_last_stage_passes_without_a_comparison() -> None:
    """1. A pool too small for proof asks for none. 2. It completes on operations and soak; the version counts as
    proven, and every host of the pool may have it."""
    rollout, plan = made(hosts=4, unproven_percent=100.0)
    for _ in plan.counts:
        upgrade(rollout, plan)
        soak(rollout, plan)
        assert decide(rollout, plan, Instant(0))[0].decision == "pass"
    assert rollout.state is RolloutState.COMPLETE
    assert is_proven(rollout)
    assert all(may_begin(rollout, plan, host) for host in plan.order)


def test_hosts_that_do_not_come_back_reject_it() -> None:
    """1. Two of the canary's first hosts don't come back. 2. The version is off-boarded before its stage is over, with
    the numbers. 3. The touched hosts are to be rolled back, and no other host may begin. 4. What is told later changes
    nothing."""
    rollout, plan = made()
    for host in plan.order[:2]:
        operation_ended(rollout, plan, host, succeeded=False)
    assert is_bad(rollout)
    verdict, aftermath = decide(rollout, plan, Instant(HOUR))
    assert verdict.decision == "reject"
    assert verdict.reason.token is Token.VERSION_REJECTED
    assert verdict.reason.sentence == "driver 550.2 is rejected: 2 of 2 operations failed"
    assert aftermath is not None
    assert (aftermath.action, aftermath.hosts) == ("roll-back", plan.order[:2])
    assert rollout.state is RolloutState.OFF_BOARDED
    assert not any(may_begin(rollout, plan, host) for host in plan.order)
    before = encode(rollout)
    operation_ended(rollout, plan, plan.order[2], succeeded=True)
    fail(rollout, plan, 3, True, 5, 95)
    exposed(rollout, upgraded=1, others=1)
    assert encode(rollout) == before


def test_failures_under_load_reject_it() -> None:
    """1. Hosts with the version fail, others don't. 2. It holds while in doubt, though all else is there. 3. One more
    rejects it; the policy of the rollout holds its hosts."""
    rollout, plan = made(on_failure="hold")
    upgrade(rollout, plan)
    soak(rollout, plan)
    for place in range(3):
        fail(rollout, plan, place, True, 10 - place, 90)
    verdict = advise(rollout, plan, Instant(0))
    assert "failures under load speak against it" in verdict.reason.sentence
    assert verdict.decision == "hold"
    for place in range(3, 5):
        fail(rollout, plan, place, True, 10 - place, 90)
    verdict, aftermath = decide(rollout, plan, Instant(0))
    assert "5 of 5 failures under load fell on upgraded hosts (stage of 10 of 100)" in verdict.reason.sentence
    assert aftermath is not None
    assert aftermath.action == "hold"
    assert set(aftermath.hosts) == set(plan.stage_hosts(0))


def test_a_common_shock_is_not_the_versions_fault() -> None:
    """1. A power dip fells half of the hosts, by where they stand. 2. Nothing is rejected; a harmless version gains."""
    rollout, plan = made()
    upgrade(rollout, plan)
    n1, n0 = 10, 90
    for host in rollout.spec.pool[::2]:
        upgraded = plan.is_on_trial(host, 0)
        host_failed(rollout, plan, host, upgraded=upgraded, under_load=True, n1=n1, n0=n0)
        n1, n0 = n1 - upgraded, n0 - (not upgraded)
    assert not is_bad(rollout)
    assert rollout.evidence.load.now < 0


def test_a_pause_counts_evidence_and_not_time() -> None:
    """1. Paused: nothing begins, and the stage says so. 2. Resumed after a day: its limit is a day later. 3. Paused
    again, the version turns out bad: it is rejected at once."""
    rollout, plan = made()
    first = deadline(rollout)
    pause(rollout, Instant(HOUR), ADA, "exhibition")
    assert not may_begin(rollout, plan, plan.order[0])
    verdict, _ = decide(rollout, plan, Instant(20 * DAY))
    assert (verdict.decision, verdict.reason.token) == ("hold", Token.ROLLOUT_PAUSED)
    assert verdict.reason.sentence == "person:ada: exhibition"
    resume(rollout, Instant(HOUR + DAY), GO_ON)
    assert (rollout.state, rollout.paused_at) == (RolloutState.CANARY, None)
    assert deadline(rollout) == first + DAY
    pause(rollout, Instant(2 * DAY), ADA, "again")
    for host in plan.order[:2]:
        operation_ended(rollout, plan, host, succeeded=False)
    assert decide(rollout, plan, Instant(2 * DAY))[0].decision == "reject"


def test_a_stage_out_of_time_is_held_for_a_person() -> None:
    """1. A microsecond before its limit the stage holds by itself. 2. At the limit it is held, with what is missing.
    3. Time alone changes nothing any more. 4. A person gives it more time; the limit begins anew."""
    rollout, plan = made()
    upgrade(rollout, plan)
    decide(rollout, plan, Instant(deadline(rollout) - 1))
    assert rollout.state is RolloutState.CANARY
    verdict, _ = decide(rollout, plan, deadline(rollout))
    assert verdict.overdue
    assert rollout.state is RolloutState.HELD
    assert rollout.reason is not None
    assert rollout.reason.token is Token.STAGE_OVERDUE
    assert rollout.reason.sentence == (
        "stage 1 of 3 (10 of 100 hosts): 0 of 120 loaded host-hours; its limit of 14 days is over"
    )
    later = Instant(30 * DAY)
    assert decide(rollout, plan, later) == (verdict.but(overdue=False), None)
    resume(rollout, later, GO_ON)
    assert deadline(rollout) == later + 14 * DAY
    assert [chapter.end for chapter in rollout.story] == ["held", "canary"]


def test_a_person_passes_a_held_stage() -> None:
    rollout, plan = made()
    decide(rollout, plan, deadline(rollout))
    pass_stage(rollout, plan, Instant(15 * DAY), GO_ON)
    assert (rollout.state, rollout.stage) == (RolloutState.STAGE, 1)


def test_a_stopped_rollout_leaves_hosts_as_they_are() -> None:
    rollout, plan = made()
    operation_ended(rollout, plan, plan.order[3], succeeded=True)
    aftermath = stop(rollout, plan, Instant(1), ADA, "another version comes")
    assert (aftermath.action, aftermath.hosts) == ("keep", plan.order[3:4])
    assert rollout.state is RolloutState.STOPPED
    assert not may_begin(rollout, plan, plan.order[4])
    assert list(rollout_broken(rollout, plan, plan.order[3:4])) == []


def test_an_ended_rollout_moves_no_more() -> None:
    """1. Off-boarded by a person. 2. Every further edge raises and tells the story."""
    rollout, plan = made()
    off_board(rollout, plan, Instant(1), because(Token.VERSION_REJECTED, "person:ada saw corrupt results"))
    with pytest.raises(IllegalTransition, match="ada saw corrupt results"):
        pause(rollout, Instant(2), ADA, "too late")
    with pytest.raises(IllegalTransition):
        pass_stage(rollout, plan, Instant(2), GO_ON)
    with pytest.raises(AssertionError):
        decide(rollout, plan, Instant(2))


def test_the_invariant_finds_a_version_that_ran_ahead() -> None:
    """1. Hosts of the stage have the version: all is well. 2. One of the next stage has it: a sentence with both.
    3. So has one that is not in the pool."""
    rollout, plan = made()
    assert list(rollout_broken(rollout, plan, plan.stage_hosts(0))) == []
    stranger = HostId("x1")
    assert list(rollout_broken(rollout, plan, [plan.order[10], stranger])) == [
        f"5: {plan.order[10]} got the version of r1 (driver 550.2) at stage 1, and belongs to stage 2",
        "5: x1 got the version of r1 (driver 550.2) and is not in its pool",
    ]
    assert not may_begin(rollout, plan, plan.order[10])
    assert not may_begin(rollout, plan, stranger)


def test_the_invariant_finds_a_policy_that_forgets_to_ask() -> None:
    """1. The evidence rejects the version, and nobody decides: a sentence. 2. After the decision: none. 3. A stage that
    was reached past the machine: a sentence."""
    rollout, plan = made()
    for host in plan.order[:2]:
        operation_ended(rollout, plan, host, succeeded=False)
    assert [text.partition(":")[0] for text in rollout_broken(rollout, plan, [])] == ["5"]
    decide(rollout, plan, Instant(1))
    assert list(rollout_broken(rollout, plan, [])) == []
    forged, plan = made()
    forged.stage = 1
    assert list(rollout_broken(forged, plan, [])) == ["r1 (driver 550.2) is a canary at stage 2"]
    forged.state = RolloutState.COMPLETE
    assert list(rollout_broken(forged, plan, [])) == ["r1 (driver 550.2) is complete at stage 2 of 3"]


def test_a_rollout_survives_a_snapshot() -> None:
    rollout, plan = made()
    upgrade(rollout, plan, failing=1)
    fail(rollout, plan, 5, True, 9, 90)
    decide(rollout, plan, Instant(1))
    back = decode(encode(rollout), Rollout)
    assert back == rollout
    assert Plan(back.id, back.spec, back.seed).order == plan.order
    assert advise(back, plan, Instant(2)) == advise(rollout, plan, Instant(2))
