"""Carrying an operation out: locks, legs of steps, and its end.

A *leg* is one row of steps that one agent carries out as one effect: apply, check (after a reboot), undo. What the leg
observed decides. An outcome that nobody knows is settled by looking (a check) before anything is done anew; a leg that
was not run because its sender was replaced is sent again. A leg past its deadline makes the operation failed, and, if
the unit is out for it, the unit too: nothing is stuck for ever, and the loss is booked where it belongs, on the side of
failures.
"""

from trainmaster.core.base.ids import HostId, OperationId, Owner
from trainmaster.core.base.reasons import Reason, Token, because
from trainmaster.core.base.time import after, in_seconds
from trainmaster.core.effects import RunSteps
from trainmaster.core.fleet import hosts
from trainmaster.core.fleet.lifecycle import Hold, HostState
from trainmaster.core.maintenance.catalogue import Component, Kind
from trainmaster.core.maintenance.operation import (
    ANSWER_SLACK,
    ENDED_KEPT,
    OPERATION_MACHINE,
    EndedOperation,
    Leg,
    Operation,
    OperationState,
)
from trainmaster.core.maintenance.visit import UNDONE, Visit
from trainmaster.core.recovery.events import EffectEnded
from trainmaster.core.step import Step

TRIES: int = 3
"""How often a leg is sent that was not run; then somebody has to look."""


def move(step: Step, operation: Operation, state: OperationState, cause: str) -> None:
    """Takes an edge of the operation machine."""
    operation.story = OPERATION_MACHINE.step(operation.id, operation.story, operation.state, state, step.now, cause)
    operation.state, operation.since = state, step.now


def work_of(step: Step, operation: Operation) -> Component | Kind:
    work = step.derived.planner.work(operation.spec)
    assert work is not None, operation.spec
    return work


def component_of(operation: Operation) -> str:
    """What it is about, for the order in a visit: its component, or its kind."""
    return operation.spec.component or operation.spec.kind


def ask_lock(step: Step, operation: Operation) -> None:
    """Asks for the operation's own resources, and starts it if it leads on all of them."""
    operation.asked_lock = True
    if step.derived.planner.locks.request(operation.id, operation.key(), operation.scope):
        granted(step, operation)
    else:
        operation.reason = busy(step, operation.id)


def busy(step: Step, name: str) -> Reason:
    """Who has, or comes first on, what `name` asked for."""
    index = step.derived.planner
    found = index.locks.blockers(name)
    told = ", ".join(f"{blocker.name} at {index.resources.name(blocker.resource)}" for blocker in found)
    return Reason(token=Token.RESOURCE_BUSY, sentence=f"waits for {told}", numbers={"blockers": len(found)})


def granted(step: Step, operation: Operation) -> None:
    operation.locked = True
    start(step, operation)


def start(step: Step, operation: Operation) -> None:
    """Its resources are its own, and its units are out."""
    operation.reason = None
    move(step, operation, OperationState.RUNNING, "it leads on all its resources")
    operation.started_at = step.now
    executor = step.state.hosts[operation.executor]
    if operation.spec.component:
        operation.previous = executor.versions.get(operation.spec.component, "")
    send(step, operation, "apply")


def send(step: Step, operation: Operation, leg: Leg) -> None:
    """Asks the executor for a leg."""
    steps, observe, limit = step.derived.planner.commands(operation, leg)
    effect = step.emit(
        RunSteps(
            id=step.next_id(),
            host=operation.executor,
            operation=operation.id,
            leg=leg,  # type: ignore[arg-type]
            steps=steps,
            observe=observe,
        )
    )
    operation.leg, operation.effect = leg, effect.id
    step.wake(f"op/{operation.id}", after(step.now, limit + ANSWER_SLACK))


def leg_ended(step: Step, effect: RunSteps, event: EffectEnded) -> Operation | None:
    """Books the outcome of a leg. Returns the operation if the leg is over; what follows is decided above."""
    operation = step.state.maintenance.operations.get(effect.operation)
    if operation is None or operation.effect != effect.id:
        return None
    operation.effect = None
    step.unwake(f"op/{operation.id}")
    version = event.numbers.get("version")
    if isinstance(version, str) and version and effect.observe is not None:
        operation.observed = version
        hosts.observed(step, step.state.hosts[effect.host], effect.observe.component, version)
    elif operation.leg == "undo" and event.outcome == "done" and operation.spec.component and not operation.previous:
        operation.observed = ""
        hosts.removed(step, step.state.hosts[effect.host], operation.spec.component)
    taken_back = operation.ends_as is not None and operation.leg == "apply"
    if event.outcome == "not-run" and operation.tries < TRIES and not taken_back:
        operation.tries += 1
        send(step, operation, operation.leg)
        return None
    if event.outcome == "unknown" and operation.leg == "apply" and operation.tries < TRIES and not taken_back:
        operation.tries += 1
        _look(step, operation)
        return None
    if event.outcome != "done" and operation.leg != "undo":
        _note_failure(operation, event)
    return operation


def _look(step: Step, operation: Operation) -> None:
    """Nobody knows how it ended: observe, if there is something to observe, else do it again. What shows only after a
    boot can't be observed yet, and steps are idempotent."""
    _, observe, _ = step.derived.planner.commands(operation, "check")
    after_boot = work_of(step, operation).disturbs == "reboot"
    send(step, operation, "check" if observe is not None and not after_boot else "apply")


def _note_failure(operation: Operation, event: EffectEnded) -> None:
    if operation.failure is not None:
        return
    numbers = {name: value for name, value in event.numbers.items() if name in ("exit_code", "step", "version")}
    sentence = f"{operation.leg} on {operation.executor} {event.outcome}: {event.detail or 'no detail'}"
    operation.failure = Reason(token=Token.STEPS_FAILED, sentence=sentence, numbers=numbers)


def not_undone(step: Step, operation: Operation, detail: str) -> Reason:
    """Nobody knows what is on its units now, so they are held until a person has looked. What the operation ends
    with."""
    units = operation.units or (operation.executor,)
    first = operation.failure.sentence if operation.failure is not None else operation.id
    sentence = f"{first}; and could not be undone: {detail}"
    for unit in units:
        told = f"{operation.id} could not be undone: {detail}"
        hold = Hold(owner=Owner(f"{UNDONE}{operation.id}"), reason=told, since=step.now)
        hosts.hold(step, step.state.hosts[unit], hold)
    numbers = operation.failure.numbers if operation.failure is not None else {}
    return Reason(token=Token.UNDO_FAILED, sentence=sentence, numbers={**numbers, "units": len(units)})


def wants_undo(step: Step, operation: Operation) -> bool:
    """It failed or is taken back, and there is something to undo it with."""
    ends = operation.failure is not None or operation.ends_as is not None
    return ends and operation.leg != "undo" and bool(work_of(step, operation).undo)


def finish(step: Step, operation: Operation, state: OperationState, reason: Reason | None) -> None:
    """The end: everything it has or waits for is given back, and whoever waited for it is told."""
    maintenance = step.state.maintenance
    if operation.state is OperationState.RUNNING and state is not OperationState.DONE:
        _mark_units(step, operation)
    led = bool(operation.line)  # others may have waited behind it
    was_held = let_go(step, operation) or led
    move(step, operation, state, reason.sentence if reason is not None else state.word)
    operation.reason = reason
    if operation.effect is not None:
        step.give_up(operation.effect)
        step.unwake(f"op/{operation.id}")
    if operation.spec.not_before is not None:
        step.unwake(f"gate/{operation.id}")
    del maintenance.operations[operation.id]
    _remember(step, operation)
    for name in step.derived.planner.dependents.pop(operation.id, ()):
        _released(step, maintenance.operations.get(name), operation)
    step.ended_operations.append(operation)
    step.lines_due = step.lines_due or was_held


def _mark_units(step: Step, operation: Operation) -> None:
    """It was begun on its units and will not be carried to its end: what comes after it there is not tried, and what it
    touched is verified all the same."""
    for unit in operation.units:
        visit = step.state.maintenance.visits.get(unit)
        if visit is not None and operation.id in (visit.current, *visit.wide, *visit.applied):
            visit.failed = (*visit.failed, component_of(operation))
            demand(step, visit, operation)


def demand(step: Step, visit: Visit, operation: Operation) -> None:
    """What the operation touched has to be verified before the unit returns."""
    known, verify = visit.tasks, work_of(step, operation).verify
    if any(task not in known for task in verify):
        visit.tasks = tuple(dict.fromkeys((*known, *verify)))


def _remember(step: Step, operation: Operation) -> None:
    maintenance, outcome, spec = step.state.maintenance, operation.state.word, operation.spec
    counts = maintenance.counts
    counts[outcome] = counts.get(outcome, 0) + 1
    of_kind = f"{spec.kind}/{outcome}"
    counts[of_kind] = counts.get(of_kind, 0) + 1
    maintenance.ended.append(
        EndedOperation(
            id=operation.id,
            spec=spec,
            state=operation.state,
            reason=operation.reason,
            requested_at=operation.requested_at,
            started_at=operation.started_at,
            ended_at=step.now,
            units=len(operation.units),
            observed=operation.observed,
            previous=operation.previous,
            story=operation.story,
            train=operation.train,
            rollout=operation.rollout,
        )
    )
    if len(maintenance.ended) >= 2 * ENDED_KEPT:
        forgotten = {ended.id for ended in maintenance.ended[:-ENDED_KEPT]}
        maintenance.ended = maintenance.ended[-ENDED_KEPT:]
        maintenance.keys = {key: name for key, name in maintenance.keys.items() if name not in forgotten}


def _released(step: Step, later: Operation | None, earlier: Operation) -> None:
    """One that waited for another that has ended now."""
    if later is None:
        return
    later.after = tuple(name for name in later.after if name != earlier.id)
    if earlier.state is not OperationState.DONE:
        sentence = f"{earlier.id} had to be done before, and it ended as {earlier.state.value}"
        finish(step, later, OperationState.CANCELLED, Reason(token=Token.PREDECESSOR_FAILED, sentence=sentence))
    elif not later.after:
        step.reconsider.append(later.id)


def let_go(step: Step, operation: Operation) -> bool:
    """Gives back capacity, locks, and its places in lines and visits. True if capacity was given back."""
    index = step.derived.planner
    if operation.line:
        index.leave_line(operation)
        operation.line = ""
    if operation.asked_lock:
        give_back(step, operation.id)
        operation.locked = operation.asked_lock = False
    held = operation.promised
    if held:
        index.ledger.unpromise(operation.promised_units())
        operation.promised = False
    for unit in operation.units:
        _leave_visit(step, operation, unit)
    return held


def unit_done(step: Step, operation: Operation, unit: HostId) -> None:
    """A unit of an operation that was carried out is back, or lost: the operation needs it no longer."""
    if unit in operation.left:
        operation.left = tuple(other for other in operation.left if other != unit)
        step.derived.planner.ledger.unpromise((unit,))
        step.lines_due = True


def give_back(step: Step, name: str) -> None:
    """Gives locks back, or the place in their queues; also locks that were granted and not told yet."""
    locks = step.derived.planner.locks
    freed = locks.release(name) if locks.holds(name) else locks.withdraw(name)
    if freed:
        step.granted += freed


def _leave_visit(step: Step, operation: Operation, unit: HostId) -> None:
    visit = step.state.maintenance.visits.get(unit)
    if visit is None:
        return
    visit.pending = without(visit.pending, operation.id)
    visit.wide = without(visit.wide, operation.id)
    visit.applied = without(visit.applied, operation.id)
    visit.unchecked = without(visit.unchecked, operation.id)
    visit.unbooted = without(visit.unbooted, operation.id)
    if visit.current == operation.id:
        visit.current = None
    step.unit_signals.append(("go-on", unit))


def without(names: tuple[OperationId, ...], gone: OperationId) -> tuple[OperationId, ...]:
    return tuple([name for name in names if name != gone]) if gone in names else names


def back_to_gate(step: Step, operation: Operation, why: str) -> None:
    """It was admitted and has not started: what it was promised is given back, and it is considered anew."""
    let_go(step, operation)
    move(step, operation, OperationState.REQUESTED, why)
    step.reconsider.append(operation.id)
    step.lines_due = True


def overdue(step: Step, name: str) -> None:
    """A leg has not been answered in time."""
    operation = step.state.maintenance.operations.get(OperationId(name))
    if operation is None or operation.effect is None:
        return
    step.give_up(operation.effect)
    operation.effect = None
    waited_s = in_seconds(step.now - operation.since)
    sentence = f"{operation.leg} on {operation.executor} has not ended after {waited_s:.0f} s"
    reason = because(Token.DEADLINE_PASSED, sentence, waited_s=round(waited_s, 3))
    if operation.units and operation.executor in operation.units:
        operation.failure = reason
        lose_unit(step, operation.executor, f"{operation.id}: {sentence}")
        return
    if operation.leg == "undo":
        reason = not_undone(step, operation, sentence)
    finish(step, operation, operation.ends_as or OperationState.FAILED, reason)


def lose_unit(step: Step, unit: HostId, why: str) -> None:
    """A unit that was out for work did not come back from it; it may have counted as failed before."""
    host = step.state.hosts[unit]
    if host.state is HostState.OUT_FAILED:
        step.unit_signals.append(("lost", unit))
    else:
        hosts.lose(step, host, why)
