"""Would the seeds of maintenance notice? Each row breaks one policy of the planner on purpose; a few seeds must fail,
each for the reason given.
"""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from tests.sim.maintenance_run import MaintenanceRun, check_end
from trainmaster.core import engine
from trainmaster.core.base.ids import HostId
from trainmaster.core.events import ResumeRequested
from trainmaster.core.fleet import hosts
from trainmaster.core.fleet.lifecycle import Hold, Host
from trainmaster.core.maintenance import drains, due, gate, losses, running, visits
from trainmaster.core.maintenance.index import PlannerIndex
from trainmaster.core.maintenance.ledger import Ledger
from trainmaster.core.maintenance.operation import Operation, OperationState
from trainmaster.core.maintenance.scope import Scope
from trainmaster.core.maintenance.visit import MAINTENANCE, Visit
from trainmaster.core.step import Step

SEEDS = range(20)
Break = Callable[[pytest.MonkeyPatch], None]


def a_lock_that_sees_no_racks(patch: pytest.MonkeyPatch) -> None:
    """Visits lock their host and mark nothing wider, so they meet no operation on the rack."""
    real = PlannerIndex.unit_scope

    def unit_scope(self: PlannerIndex, unit: HostId) -> Scope:
        return real(self, unit).but(shared=())

    patch.setattr(PlannerIndex, "unit_scope", unit_scope)


def the_ledger_is_not_asked(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Ledger, "check", lambda self, units: None)


def the_ledger_is_not_asked_again(patch: pytest.MonkeyPatch) -> None:
    """Failures between a notice and its drain are not looked at."""
    patch.setattr(Ledger, "check_start", lambda self, units: None)


def a_promise_leaks(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Ledger, "unpromise", lambda self, units: None)


def demands_are_forgotten(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(running, "demand", lambda step, visit, operation: None)


def the_hold_of_another_is_lifted(patch: pytest.MonkeyPatch) -> None:
    """Maintenance that returns a host takes all holds off."""
    real = hosts.bring_back

    def bring_back(step: Step, host: Host, *more: Any) -> None:
        host.holds = ()
        real(step, host, *more)

    patch.setattr(hosts, "bring_back", bring_back)


def a_person_lifts_the_hold_of_maintenance(patch: pytest.MonkeyPatch) -> None:
    real = hosts.resume

    def resume(step: Step, event: ResumeRequested) -> None:
        for name in event.hosts:
            hosts.lift(step, step.state.hosts[name], MAINTENANCE, "all holds at once")
        real(step, event)

    patch.setitem(engine._APPLY, ResumeRequested, resume)  # type: ignore[arg-type]


def a_cancelled_operation_boots_all_the_same(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(visits, "_undo_next", lambda step, visit: False)


def a_failed_predecessor_is_as_good_as_any(patch: pytest.MonkeyPatch) -> None:
    real = running._released

    def released(step: Step, later: Operation | None, earlier: Operation) -> None:
        ended, earlier.state = earlier.state, OperationState.DONE
        real(step, later, earlier)
        earlier.state = ended

    patch.setattr(running, "_released", released)


def an_ended_predecessor_is_not_looked_at(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(gate, "_too_late", lambda step, spec: None)


def a_visit_forgets_wide_operations(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(visits, "_ask_wide", lambda step, operation: None)


def steps_without_a_deadline(patch: pytest.MonkeyPatch) -> None:
    real = running.send

    def send(step: Step, operation: Operation, leg: Any) -> None:
        real(step, operation, leg)
        step.unwake(f"op/{operation.id}")

    patch.setattr(running, "send", send)


def in_production_between_two_operations(patch: pytest.MonkeyPatch) -> None:
    """Who joins a visit whose unit is on its way back does not hold it."""
    real = hosts.hold

    def hold(step: Step, host: Host, wanted: Hold) -> None:
        visit = step.state.maintenance.visits.get(host.id)
        if visit is None or visit.phase.value != "returning":
            real(step, host, wanted)

    patch.setattr(hosts, "hold", hold)


def a_lost_unit_is_forgotten(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(losses, "unit_lost", lambda step, unit: None)


def applied_again_after_an_unknown_end(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(running, "_look", lambda step, operation: running.send(step, operation, "apply"))


def a_lock_is_kept_for_nothing(patch: pytest.MonkeyPatch) -> None:
    """A visit gives its lock back only at its end."""
    real = visits.close

    def close(step: Step, visit: Visit, why: str) -> None:
        if visit.asked_lock:
            running.give_back(step, visit.lock_name)
            visit.locked = visit.asked_lock = False
        real(step, visit, why)

    patch.setattr(visits, "_release_lock", lambda step, visit: None)
    patch.setattr(visits, "close", close)


def a_reboot_outlives_its_visit(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Step, "give_up", lambda self, effect: None)


def repairs_stand_in_line(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Ledger, "takes", lambda self, units: True)


def an_end_is_counted_twice(patch: pytest.MonkeyPatch) -> None:
    real = running._remember

    def remember(step: Step, operation: Operation) -> None:
        real(step, operation)
        if operation.state is OperationState.FAILED:
            step.state.maintenance.counts["failed"] += 1

    patch.setattr(running, "_remember", remember)


def a_failing_version_goes_on(patch: pytest.MonkeyPatch) -> None:
    """Every host is of the first stage."""
    may_begin = lambda rollout, plan, host: rollout.is_moving()  # noqa: E731
    patch.setattr(due, "rollouts", SimpleNamespace(may_begin=may_begin, is_proven=due.rollouts.is_proven))


def versions_are_not_looked_at(patch: pytest.MonkeyPatch) -> None:
    """Any free host may join any job."""
    patch.setattr(PlannerIndex, "stack_of", lambda self, versions: "")


def a_notice_is_remembered_for_ever(patch: pytest.MonkeyPatch) -> None:
    """What is derived from the state goes its own way."""

    def forget(step: Step, visit: Visit) -> None:
        step.unwake(f"visit/{visit.unit}")
        visit.drain_from = visit.drain_by = None

    patch.setattr(drains, "forget", forget)


NOTICED_BY = {
    repairs_stand_in_line: 12,
    the_ledger_is_not_asked_again: 4,
    a_failing_version_goes_on: 3,
    in_production_between_two_operations: 2,
}
"""Seeds that are tried first, since those before them take long and notice nothing."""


@pytest.mark.parametrize(
    ("breaks", "expected"),
    [
        (a_lock_that_sees_no_racks, "1: "),
        (the_ledger_is_not_asked, "2: planned work was admitted on"),
        (the_ledger_is_not_asked_again, "2: planned work was begun on"),
        (a_promise_leaks, "2: "),
        (demands_are_forgotten, "3: "),
        (versions_are_not_looked_at, "4: hosts of"),
        (a_notice_is_remembered_for_ever, "9: units that wait"),
        (the_hold_of_another_is_lifted, "7: the holds of"),
        (a_person_lifts_the_hold_of_maintenance, "7: "),
        (a_cancelled_operation_boots_all_the_same, "no operation wants it any more"),
        (a_failed_predecessor_is_as_good_as_any, "before it ended as"),
        (an_ended_predecessor_is_not_looked_at, "before it ended as"),
        (a_visit_forgets_wide_operations, "nothing is under way"),
        (steps_without_a_deadline, "runs without a deadline"),
        (in_production_between_two_operations, "7: "),
        (a_lost_unit_is_forgotten, "6: the visit of"),
        (applied_again_after_an_unknown_end, "and is again"),
        (a_lock_is_kept_for_nothing, "has nothing to do"),
        (a_reboot_outlives_its_visit, "10: "),
        (repairs_stand_in_line, "6: "),
        (an_end_is_counted_twice, "operations were requested"),
        (a_failing_version_goes_on, "5: "),
    ],
)
def test_a_broken_policy_of_the_planner_is_noticed(
    monkeypatch: pytest.MonkeyPatch, breaks: Break, expected: str
) -> None:
    """1. One policy is broken. 2. Within twenty seeds one fails, with the words of the rule that was broken."""
    breaks(monkeypatch)
    noticed = []
    first = NOTICED_BY.get(breaks, 0)
    for seed in (*SEEDS[first:], *SEEDS[:first]):
        try:
            run = MaintenanceRun(seed)
            run.play()
            check_end(run)
        except Exception as error:  # noqa: BLE001  (whatever it is, it was noticed)
            noticed.append(f"{type(error).__name__}: {error}")
            break
    assert noticed, "twenty seeds passed with a broken policy"
    assert expected in noticed[0]
