"""Gang upgrades: a breaking upgrade of all hosts of a job in one go.

A version that the hosts of one job must agree on can't slide under it. So the job is asked to save and leave as a
whole, all its hosts are upgraded together, and it starts again where it was, on hosts that agree. Nobody else gets the
hosts in between: the job keeps its place, and whoever stands behind it waits. The ledger is asked for all hosts at
once; until it allows them, the job runs on.
"""

from trainmaster.core.base.ids import HostId, JobId
from trainmaster.core.base.reasons import Token, because
from trainmaster.core.maintenance import gate
from trainmaster.core.maintenance.book import GangUpgrade
from trainmaster.core.maintenance.events import GangUpgradeRequested, OperationSpec
from trainmaster.core.maintenance.operation import Operation
from trainmaster.core.recovery import handover
from trainmaster.core.recovery.attempt import Attempt
from trainmaster.core.step import Step


def request(step: Step, event: GangUpgradeRequested) -> None:
    """Notes the wish, and begins at once if the capacity is there."""
    gangs = step.state.maintenance.gangs
    assert event.job not in gangs, event.job
    gangs[event.job] = GangUpgrade(
        job=event.job,
        component=event.component,
        version=event.version,
        by=event.by,
        why=event.reason,
        asked_at=step.now,
    )
    _begin(step, gangs[event.job])


def serve(step: Step) -> None:
    """Capacity came back: those that wait for it look again."""
    for _, gang in sorted(step.state.maintenance.gangs.items()):
        if gang.began_at is None:
            _begin(step, gang)


def _live_attempt(step: Step, job: JobId) -> Attempt | None:
    attempts = step.state.jobs[job].attempts
    attempt = step.state.attempts[attempts[-1]] if attempts else None
    return attempt if attempt is not None and attempt.is_live() else None


def _begin(step: Step, gang: GangUpgrade) -> None:
    attempt = _live_attempt(step, gang.job)
    if attempt is None:
        del step.state.maintenance.gangs[gang.job]  # it has no hosts any more: there is nothing that must agree
        step.capacity_came = True
        return
    units = (*attempt.members, *attempt.spares)
    refusal = step.derived.planner.ledger.check(units)
    if refusal is not None:
        gang.reason = refusal
        return
    gang.began_at, gang.hosts = step.now, units
    gang.reason = because(
        Token.GANG_UPGRADE,
        f"all its hosts get {gang.component} {gang.version}, asked for by {gang.by}: {gang.why}",
        hosts=len(units),
    )
    handover.leave_for_queue(step, attempt, gang.reason)
    asked = [_ask(step, gang, unit) for unit in units]
    gang.operations = tuple(operation.id for operation in asked)
    for operation in asked:
        gate.consider(step, operation)


def _ask(step: Step, gang: GangUpgrade, unit: HostId) -> Operation:
    spec = OperationSpec(
        scope=(f"host/{unit}",), component=gang.component, version=gang.version, reason=f"gang upgrade of {gang.job}"
    )
    operation = gate.create(step, spec, gang.by)
    operation.job = gang.job
    return operation


def operation_ended(step: Step, operation: Operation) -> None:
    gang = step.state.maintenance.gangs.get(operation.job) if operation.job is not None else None
    if gang is None or operation.id not in gang.operations:
        return
    gang.operations = tuple(name for name in gang.operations if name != operation.id)
    if not gang.operations:
        del step.state.maintenance.gangs[gang.job]
        step.capacity_came = True
