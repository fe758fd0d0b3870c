"""When a unit leaves production: as late as is useful.

A unit without a job drains at once. A job gets the notice that its contract asks for; then its hosts drain right after
its next checkpoint is published (nothing is saved twice), or when they can wait no longer: `checkpoint_wait` after the
notice. All hosts of a job that a stop takes drain in the same moment, so that the job moves once.
"""

from trainmaster.core.base.ids import AttemptId, HostId
from trainmaster.core.base.reasons import Reason, Token, because
from trainmaster.core.base.time import Instant, after, in_seconds
from trainmaster.core.fleet import hosts
from trainmaster.core.fleet.lifecycle import Hold, Host
from trainmaster.core.maintenance.catalogue import Priority
from trainmaster.core.maintenance.operation import Operation
from trainmaster.core.maintenance.visit import MAINTENANCE, Visit, VisitPhase
from trainmaster.core.step import Step


def hold_of(visit: Visit, operation: Operation, now: Instant) -> Hold:
    train = f"{visit.train}: " if visit.train else ""
    reason = f"{train}{operation.id} ({operation.spec.kind} {operation.spec.component})".replace(" )", ")")
    return Hold(owner=MAINTENANCE, reason=reason, since=now, evict_at=visit.evict_at)


def notice(step: Step, visit: Visit, host: Host, operation: Operation) -> None:
    """A job runs on the unit: it is told, and the moment is waited for."""
    assert host.allocation is not None, host.id
    attempt = step.state.attempts[host.allocation]
    contract = step.state.jobs[attempt.job].spec.contract
    if operation.spec.priority is Priority.EMERGENCY or operation.job is not None:
        drain(step, visit, host, operation)
        return
    visit.drain_from = after(step.now, contract.notice)
    visit.drain_by = after(visit.drain_from, contract.checkpoint_wait)
    if visit.drain_by <= step.now:
        drain(step, visit, host, operation)
        return
    step.derived.planner.noticed.setdefault(attempt.id, set()).add(host.id)
    step.wake(f"visit/{host.id}", visit.drain_by)


def hurry(step: Step, visit: Visit, host: Host, operation: Operation) -> None:
    """Another operation joins a visit that still waits for its moment: an emergency does not wait."""
    if operation.spec.priority is Priority.EMERGENCY:
        step.wake(f"visit/{host.id}", step.now)


def drain(step: Step, visit: Visit, host: Host, operation: Operation) -> None:
    """Holds the unit: nothing new is placed on it, and what runs there is moved."""
    hosts.hold(step, host, hold_of(visit, operation, step.now))


def forget(step: Step, visit: Visit) -> None:
    """The moment is waited for no longer."""
    step.unwake(f"visit/{visit.unit}")
    visit.drain_from = visit.drain_by = None
    noticed = step.derived.planner.noticed
    for attempt, units in list(noticed.items()):
        units.discard(visit.unit)
        if not units:
            del noticed[attempt]


def checkpoint_published(step: Step, attempt: AttemptId) -> None:
    """The best moment: nothing would be saved twice."""
    visits = step.state.maintenance.visits
    for unit in sorted(step.derived.planner.noticed.get(attempt, ())):
        visit = visits[unit]
        if visit.drain_from is not None and visit.drain_from <= step.now:
            step.unit_signals.append(("drain", unit))


def job_left(step: Step, unit: HostId) -> None:
    """What ran on a noticed unit has gone: nothing is to be waited for."""
    visit = step.state.maintenance.visits.get(unit)
    if visit is not None and visit.phase is VisitPhase.NOTICED:
        step.unit_signals.append(("drain", unit))


def waits(step: Step, visit: Visit, host: Host) -> Reason:
    """What an operation waits on while its unit leaves production."""
    if visit.phase is VisitPhase.NOTICED and visit.drain_by is not None:
        left_s = in_seconds(visit.drain_by - step.now)
        sentence = f"the job on {host.id} was told; it moves after its next checkpoint, or in {left_s:.0f} s"
        return because(Token.NOTICE_GIVEN, sentence, left_s=round(left_s, 3))
    on = f"; {host.allocation} is on it" if host.allocation else ""
    return Reason(token=Token.UNITS_LEAVING, sentence=f"{host.id} leaves production{on}")
