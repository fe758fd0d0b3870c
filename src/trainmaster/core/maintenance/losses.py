"""A unit, or the agent that carries a leg out, is lost in the middle of maintenance.

What was not started goes back to the gate and waits for the repair. What was under way has failed. Of what was carried
out and only waited for the verification, the unproven versions are blamed, or else what had not been checked yet, or
else all. Whatever was begun on the unit is still to be verified before it returns, whoever brings it back.
"""

from trainmaster.core.base.ids import HostId, OperationId
from trainmaster.core.base.reasons import Reason, Token
from trainmaster.core.fleet import hosts
from trainmaster.core.maintenance import running, visits
from trainmaster.core.maintenance.operation import Operation, OperationState
from trainmaster.core.maintenance.visit import MAINTENANCE
from trainmaster.core.step import Step


def unit_lost(step: Step, unit: HostId) -> None:
    """The unit counts as failed: what was not started goes back to the gate, what was under way has failed."""
    maintenance = step.state.maintenance
    visit = maintenance.visits.get(unit)
    if visit is None:
        return
    host = step.state.hosts[unit]
    waiting, applied, current = (*visit.pending, *visit.wide), visit.applied, visit.current
    checked = [name for name in applied if maintenance.operations[name].state is OperationState.VERIFYING]
    on_trial = [name for name in applied if maintenance.operations[name].rollout is not None]
    visit.pending = visit.wide = visit.applied = visit.unchecked = visit.unbooted = ()
    if visit.reboot is not None:
        step.give_up(visit.reboot)
    begun = [name for name in (current, *waiting) if name is not None and _has_begun(step, name)]
    for name in begun:
        running.demand(step, visit, maintenance.operations[name])
    host.demands = tuple(dict.fromkeys((*host.demands, *visit.tasks)))
    visit.current = visit.reboot = None
    visits.close(step, visit, "the unit was lost")
    hosts.lift(step, host, MAINTENANCE, "the unit was lost")
    lost = Reason(token=Token.UNIT_LOST, sentence=f"{unit} was lost during its maintenance: {host.reason.sentence}")
    for name in dict.fromkeys((*((current,) if current else ()), *applied)):
        operation = maintenance.operations.get(name)
        if operation is not None:
            innocent = name in checked and (name not in on_trial if on_trial else len(checked) < len(applied))
            _lose(step, operation, unit, None if innocent else lost)
    for name in waiting:
        operation = maintenance.operations.get(name)
        if operation is None:
            continue
        if operation.state is not OperationState.RUNNING:
            running.back_to_gate(step, operation, f"{unit} was lost before it started")
        elif operation.effect is None:  # its own executor was lost
            _lose(step, operation, unit, lost)


def _has_begun(step: Step, name: OperationId) -> bool:
    operation = step.state.maintenance.operations.get(name)
    return operation is not None and operation.state is OperationState.RUNNING


def _lose(step: Step, operation: Operation, unit: HostId, lost: Reason | None) -> None:
    """An operation that was under way, or carried out, on a unit that is lost now."""
    if lost is not None:
        operation.failure = operation.failure or lost
    running.unit_done(step, operation, unit)
    if operation.left or (
        operation.state is OperationState.RUNNING and operation.effect is not None and operation.is_wide()
    ):
        return
    if operation.failure is not None:
        running.finish(step, operation, operation.ends_as or OperationState.FAILED, operation.failure)
    else:
        running.finish(step, operation, OperationState.DONE, None)


def orphaned(step: Step, name: OperationId) -> None:
    """The agent that carried a leg out is gone with its host."""
    operation = step.state.maintenance.operations.get(name)
    if operation is None or operation.effect is None or operation.effect in step.state.pending:
        return
    operation.effect = None
    step.unwake(f"op/{operation.id}")
    sentence = f"{operation.executor}, which carried it out, was lost"
    reason = operation.failure or Reason(token=Token.UNIT_LOST, sentence=sentence)
    running.finish(step, operation, operation.ends_as or OperationState.FAILED, reason)
