"""Errands: what a host needs and can wait. A watched unit that asks for a reset *later*, or to be looked into.

Nothing is wrong enough to take a host from a job for it. So it is done when the host is idle and planned work could
have it, or comes along when planned work has the host out anyway; by operations of the planner, which count as planned
work. A few tries in a while, then it is left to people: what does not help is not repeated for ever.

Looking into a suspect can end the doubt both ways. If it finds nothing the suspicion is over; if it fails, that is a
finding, and it is bad.
"""

from typing import Final

from trainmaster.core.base.ids import HostId, KindName
from trainmaster.core.base.time import MINUTE, Duration, after
from trainmaster.core.fleet.lifecycle import Host, HostState
from trainmaster.core.health import cases, ladder, remedies, standing
from trainmaster.core.health.book import Errand, Standing
from trainmaster.core.health.conduct import HEALTH, HealthConduct
from trainmaster.core.health.finding import Finding
from trainmaster.core.health.words import Remedy, Verdict
from trainmaster.core.maintenance import gate
from trainmaster.core.maintenance.catalogue import Priority
from trainmaster.core.maintenance.events import OperationRequested, OperationSpec
from trainmaster.core.maintenance.operation import Operation, OperationState
from trainmaster.core.maintenance.visit import MAINTENANCE, VERSIONS, VisitPhase
from trainmaster.core.step import Step

TRIES: Final = 2
"""Within the cool-down."""
AGAIN: Final = Duration(10 * MINUTE)
"""How often it is looked whether the host is idle. A moment is enough, and there will be others."""

_CARRIED: Final = {Remedy.RESET_GPU_LATER: Remedy.RESET_GPU, Remedy.DIAGNOSE: Remedy.DIAGNOSE}
"""What carries out what is asked for."""
_JOINED: Final = (VisitPhase.OUT, VisitPhase.APPLYING)


def consider(step: Step, name: HostId) -> None:
    """Something else stands against a host without a case, or it came to another place: the errand that it needs is run
    now, or looked at again later."""
    wanted, wake = _wanted(step, name), f"errand/{name}"
    known = step.state.health.errands.get(name)
    if known is not None and known.operation is not None:
        return
    kind = _kind(step, name, wanted) if wanted is not None else None
    if wanted is None or kind is None:
        step.unwake(wake)
        return
    if _has_time(step, step.state.hosts[name]):
        _run(step, name, wanted, kind)
    elif wake not in step.state.wakes:
        step.wake(wake, after(step.now, AGAIN))


def _wanted(step: Step, name: HostId) -> Standing | None:
    """What asks for most of what can wait."""
    found = [
        each
        for each in standing.at(step, name)
        if each.finding.verdict is Verdict.WATCH and each.finding.remedy in _CARRIED
        if not each.finding.echo_of and each.during is None
    ]
    return max(found, key=lambda each: ladder.rank(each.finding.remedy), default=None)


def _kind(step: Step, name: HostId, wanted: Standing) -> KindName | None:
    """The kind of operation that may be run now; None: nothing is to be run."""
    health = step.state.health
    if name in health.case_of or not cases.acts(step, cases.pool_of(step, name)):
        return None
    known = health.errands.get(name)
    since = step.now - health.conduct.limits.cool_down
    if known is not None and sum(1 for at in known.tried if at > since) >= TRIES:
        return None
    kind = _kind_of(health.conduct, _CARRIED[wanted.finding.remedy])
    return kind if kind is not None and not remedies.problem(step, step.state.hosts[name], kind) else None


def _kind_of(conduct: HealthConduct, remedy: Remedy) -> KindName | None:
    rungs = (*conduct.ladder, ladder.DEEP_CHECK)
    return next((rung.kind for rung in rungs if rung.remedy is remedy), None)


def _has_time(step: Step, host: Host) -> bool:
    """It is idle and planned work could have it, or planned work has it out and nobody else holds it."""
    planner = step.derived.planner
    visit = step.state.maintenance.visits.get(host.id)
    if visit is not None:
        others = any(hold.owner not in (MAINTENANCE, VERSIONS) for hold in host.holds)
        return visit.phase in _JOINED and host.state is HostState.OUT_PLANNED and not others
    return host.is_free() and not planner.lines.get(planner.book_of([host.id])) and not planner.ledger.check([host.id])


def _run(step: Step, name: HostId, wanted: Standing, kind: KindName) -> None:
    step.unwake(f"errand/{name}")
    known = step.state.health.errands.get(name)
    since = step.now - step.state.health.conduct.limits.cool_down
    tried = tuple(at for at in known.tried if at > since) if known is not None else ()
    errand = Errand(remedy=wanted.finding.remedy, tried=(*tried, step.now))
    step.state.health.errands[name] = errand
    spec = OperationSpec(
        kind=kind, scope=(f"host/{name}",), priority=Priority.BACKGROUND, reason=wanted.finding.summary
    )
    errand.operation = gate.request(step, OperationRequested(at=step.now, spec=spec, by=HEALTH)).id


def ended(step: Step, operation: Operation) -> None:
    """An operation of health that belongs to no case has ended."""
    name = operation.executor
    errand = step.state.health.errands.get(name)
    if operation.by != HEALTH or errand is None or errand.operation != operation.id:
        return
    errand.operation = None
    if operation.state is OperationState.DONE:
        assert operation.started_at is not None, operation.id
        standing.answered(step, name, _CARRIED[errand.remedy], operation.started_at)
    elif operation.state is OperationState.FAILED and errand.remedy is Remedy.DIAGNOSE:
        standing.own(step, name, _found(operation), standing.DIAGNOSIS)
    step.ailing.append(name)


def _found(operation: Operation) -> Finding:
    why = operation.reason.sentence if operation.reason is not None else "it failed"
    return Finding(
        unit="host",
        verdict=Verdict.BAD,
        remedy=Remedy.TRIAGE,
        rule=operation.spec.kind,
        summary=f"{operation.spec.reason}; {operation.spec.kind} says: {why}",
        evidence=(why,),
    )
