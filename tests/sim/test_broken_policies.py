"""Would the seeds notice? Each row breaks one policy on purpose; a few seeds must fail, each for the reason given.

A simulation that passes proves nothing until it has been seen to fail.
"""

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from tests.sim import test_seeds
from tests.sim.test_seeds import Run, check_end
from trainmaster.core import engine
from trainmaster.core.base.reasons import Reason, Token
from trainmaster.core.events import EffectEnded, HangFound, ResumeRequested
from trainmaster.core.fleet import hosts
from trainmaster.core.fleet.lifecycle import Host
from trainmaster.core.recovery import budget, forming, handover, interrupt, reports
from trainmaster.core.recovery.attempt import Attempt
from trainmaster.core.recovery.budget import Advice
from trainmaster.core.scheduling.place import FreeIndex
from trainmaster.core.step import Step

SEEDS = range(8)
Break = Callable[[pytest.MonkeyPatch], None]


def ready_without_verification(patch: pytest.MonkeyPatch) -> None:
    def verify(step: Step, host: Host, why: str) -> None:
        hosts.move(step, host, hosts.HostState.VERIFYING, Reason(token=Token.VERIFIED, sentence=why))
        hosts.move(step, host, hosts.HostState.READY, Reason(token=Token.VERIFIED, sentence="taken on trust"))

    patch.setattr(hosts, "verify", verify)


def ready_before_it_is_clean(patch: pytest.MonkeyPatch) -> None:
    """A host that is let go is free at once, with the old ranks still on it."""

    def let_go(step: Step, leaving: Sequence[Host]) -> None:
        for host in leaving:
            host.allocation, host.role = None, ""
            step.refresh(host)

    patch.setattr(hosts, "let_go", let_go)


def resume_drops_all_holds(patch: pytest.MonkeyPatch) -> None:
    real = hosts.resume

    def resume(step: Step, event: ResumeRequested) -> None:
        for name in event.hosts:
            step.state.hosts[name].holds = ()
        real(step, event)

    patch.setitem(engine._APPLY, ResumeRequested, resume)  # type: ignore[arg-type]


def spare_given_twice(patch: pytest.MonkeyPatch) -> None:
    """The index keeps a host that was taken."""
    patch.setattr(FreeIndex, "remove", lambda self, host: None)


def budget_ignored(patch: pytest.MonkeyPatch) -> None:
    def advise(*_: Any) -> Advice:
        return Advice(again=True, reason=Reason(token=Token.RESTART, sentence="once more"))

    patch.setattr(budget, "advise", advise)
    patch.setattr(test_seeds, "FAULTS_UNTIL_S", -60.0)
    patch.setattr(test_seeds, "END_BOUND_S", 60.0)  # without faults all jobs end by then; a crash loop goes on for ever


def old_epochs_believed(patch: pytest.MonkeyPatch) -> None:
    def current(step: Step, event: Any) -> Attempt | None:
        attempt = step.state.attempts.get(event.attempt)
        return attempt if attempt is not None and attempt.is_live() else None

    patch.setattr(reports, "_current", current)


def a_vacant_place_forgotten(patch: pytest.MonkeyPatch) -> None:
    """An attempt that waits for a host is never served."""
    patch.setattr(interrupt, "want", lambda step, attempt: None)


def hand_over_without_saving(patch: pytest.MonkeyPatch) -> None:
    """A drain stops the ranks instead of asking them."""

    def hand_over(step: Step, attempt: Attempt) -> None:
        if attempt.state is handover.AttemptState.RUNNING and attempt.handover is None:
            leaving = handover.draining_members(step, attempt)
            handover.ask_to_leave(step, attempt, leaving[0].reason.but(token=Token.DRAINED), requeue=False)
            epoch = attempt.epoch
            epoch.ended_by, epoch.cause = "stopped", attempt.handover.reason if attempt.handover else None
            epoch.detected_at = epoch.decided_at = epoch.failed_at = step.now
            handover.stop_workers(step, attempt, attempt.members, handover.Duration(0))
            handover.move(step, attempt, handover.AttemptState.REFORMING, "in a hurry")
            handover.reform(step, attempt)

    patch.setattr(handover, "_hand_over", hand_over)


def a_member_forgotten(patch: pytest.MonkeyPatch) -> None:
    real = forming.store_reserved

    def reserved(step: Step, attempt: Attempt, event: EffectEnded) -> None:
        real(step, attempt, event)
        attempt.members = attempt.members[:-1]

    patch.setattr(forming, "store_reserved", reserved)


def a_lost_host_kept(patch: pytest.MonkeyPatch) -> None:
    """The loss of a host is noted and nobody is told."""
    real = Step.signal
    patch.setattr(Step, "signal", lambda self, kind, *more: None if kind == "host-lost" else real(self, kind, *more))


def a_hang_forgotten(patch: pytest.MonkeyPatch) -> None:
    """What the watch found is in the log, and nothing follows from it."""
    patch.setitem(engine._APPLY, HangFound, lambda step, event: None)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("breaks", "expected"),
    [
        (ready_without_verification, "ready without a verification"),
        (ready_before_it_is_clean, "AssertionError"),
        (resume_drops_all_holds, "7: "),
        (spare_given_twice, "('h0', 'job-1.a1')"),
        (budget_ignored, "job-3 active"),
        (old_epochs_believed, "of an older epoch changed the present one"),
        (a_vacant_place_forgotten, "nobody serves it"),
        (hand_over_without_saving, "steps_lost"),
        (a_member_forgotten, "has 3 members of 4"),
        (a_lost_host_kept, "without its members"),
        (a_hang_forgotten, "nobody ends it"),
    ],
)
def test_a_broken_policy_is_noticed(monkeypatch: pytest.MonkeyPatch, breaks: Break, expected: str) -> None:
    """1. One policy is broken. 2. Within eight seeds one fails, with the words of the rule that was broken."""
    breaks(monkeypatch)
    noticed = []
    for seed in SEEDS:
        try:
            run = Run(seed)
            run.play()
            check_end(run)
        except Exception as error:  # noqa: BLE001  (whatever it is, it was noticed)
            noticed.append(f"{type(error).__name__}: {error}")
            break
    assert noticed, "eight seeds passed with a broken policy"
    assert expected in noticed[0]
