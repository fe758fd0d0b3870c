"""A remedy is an operation of the planner on the host of a case: asked for here, carried out there.

The planner has the drain, the steps, the reboot, the verification and their deadlines; health adds nothing of its own,
so a repair and planned work meet in one visit instead of pulling at one host from two sides. What health asks for takes
no planned capacity (the host counts as failed from the moment it is taken) and is not delayed by contracts of jobs.
"""

from typing import Final

from trainmaster.core.base.ids import KindName, OperationId
from trainmaster.core.base.reasons import Reason
from trainmaster.core.fleet.lifecycle import Host
from trainmaster.core.health.book import Attempt, Case
from trainmaster.core.health.conduct import HEALTH
from trainmaster.core.health.ladder import Choice
from trainmaster.core.maintenance import gate
from trainmaster.core.maintenance.catalogue import Kind, Priority, takes_capacity
from trainmaster.core.maintenance.events import OperationRequested, OperationSpec
from trainmaster.core.maintenance.operation import OperationState
from trainmaster.core.step import Step

OUTCOMES: Final = {OperationState.DONE: "done", OperationState.FAILED: "failed"}
"""Of a try, by how its operation ended; every other end is *cancelled*: it says nothing of the remedy."""


def problem(step: Step, host: Host, name: KindName) -> str:
    """Why a kind of operation can't repair this host; empty: it can."""
    work = step.derived.planner.work(OperationSpec(kind=name, scope=(f"host/{host.id}",)))
    if not isinstance(work, Kind):
        return f"the catalogue has no kind {name}"
    if work.scope != "host":
        return f"{name} is done on a {work.scope}"
    if host.spec.kind not in work.units:
        return f"{name} is not for units of kind {host.spec.kind}"
    if not takes_capacity(work):
        return f"{name} leaves the host in service"
    if work.disturbs == "power" and host.spec.cluster not in step.derived.planner.controllers:
        return f"{name} needs a controller, and {host.spec.cluster} has none"
    return ""


def request(step: Step, case: Case, choice: Choice) -> OperationId:
    """Asks for the operation of a rung."""
    assert choice.rung is not None, case.id
    assert case.operation is None, case.id
    kind, number = choice.rung.kind, len(case.tries) + 1
    spec = OperationSpec(
        kind=kind,
        scope=(f"host/{case.host}",),
        priority=Priority.REPAIR,
        reason=f"{case.id}: {case.findings[0].summary}",
    )
    asked = OperationRequested(at=step.now, spec=spec, by=HEALTH, key=f"{case.id}/{number}")
    operation = gate.request(step, asked)
    case.operation = operation.id
    case.tries = (*case.tries, Attempt(at=step.now, remedy=choice.remedy, operation=operation.id))
    return operation.id


def withdraw(step: Step, case: Case, reason: Reason) -> None:
    """The remedy is not wanted any more. What has begun ends its present step first."""
    operation = step.state.maintenance.operations.get(case.operation) if case.operation is not None else None
    case.operation = None
    if operation is not None:
        end(case, "cancelled")
        gate.withdraw(step, operation, OperationState.CANCELLED, reason)


def end(case: Case, outcome: str) -> None:
    """The last try has ended."""
    case.tries = (*case.tries[:-1], case.tries[-1].but(outcome=outcome))
