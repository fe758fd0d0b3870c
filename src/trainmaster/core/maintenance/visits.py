"""What happens in a visit: the unit leaves production, is worked on in order, is booted once, and returns.

`go_on` is the heart: it looks at where the visit stands and takes the next step, if nothing is under way. It is called
whenever something changed: the unit is out, a lock was granted, an operation ended or joined.
"""

from trainmaster.core.base.ids import HostId, OperationId
from trainmaster.core.base.reasons import Reason, Token, because
from trainmaster.core.base.time import after
from trainmaster.core.effects import RebootHost, RunSteps
from trainmaster.core.fleet import hosts
from trainmaster.core.fleet.lifecycle import Hold, Host, HostState
from trainmaster.core.maintenance import drains, running
from trainmaster.core.maintenance.operation import REBOOT_DEADLINE, Operation, OperationState
from trainmaster.core.maintenance.visit import MAINTENANCE, VERSIONS, VISIT_MACHINE, Visit, VisitPhase
from trainmaster.core.recovery.events import EffectEnded
from trainmaster.core.step import Step

_P = VisitPhase


def move(step: Step, visit: Visit, phase: VisitPhase, cause: str) -> None:
    """Takes an edge of the visit machine."""
    visit.story = VISIT_MACHINE.step(visit.lock_name, visit.story, visit.phase, phase, step.now, cause)
    visit.phase, visit.since = phase, step.now


def join(step: Step, operation: Operation, unit: HostId) -> None:
    """An admitted operation needs the unit out: it opens a visit, or joins the one that is open."""
    visits = step.state.maintenance.visits
    visit = visits.get(unit)
    fresh = visit is None
    if visit is None:
        visit = visits[unit] = Visit(unit=unit, key=operation.key(), opened_at=step.now, since=step.now)
    hurry(step, visit, operation.key())
    if operation.is_wide():
        visit.wide = (*visit.wide, operation.id)
    else:
        visit.pending = _in_order(step, (*visit.pending, operation.id))
    visit.train = visit.train or operation.train
    if operation.evict_at is not None:
        visit.evict_at = min(visit.evict_at or operation.evict_at, operation.evict_at)
    host = step.state.hosts[unit]
    if fresh:
        _open(step, visit, host, operation)
    elif visit.phase is _P.RETURNING:
        hosts.hold(step, host, drains.hold_of(visit, operation, step.now))
    elif visit.phase is _P.NOTICED:
        drains.hurry(step, visit, host, operation)
    if visit.phase in (_P.NOTICED, _P.DRAINING) and operation.state is OperationState.ADMITTED:
        running.move(step, operation, OperationState.DRAINING, f"{unit} is to leave production")
        operation.reason = drains.waits(step, visit, host)
    elif visit.phase is _P.OUT:
        step.unit_signals.append(("go-on", unit))
    if operation.state is OperationState.ADMITTED and operation.reason is None:
        sentence = f"{unit} is {visit.phase.value}; it is next there"
        numbers: dict[str, int | float | str] = {"blockers": len(visit.applied) + (visit.current is not None)}
        operation.reason = Reason(token=Token.RESOURCE_BUSY, sentence=sentence, numbers=numbers)


def hurry(step: Step, visit: Visit, key: tuple[int, int]) -> None:
    """The visit's place in line is the best of its operations."""
    if visit.key <= key:
        return
    visit.key = key
    if visit.asked_lock:
        step.granted += step.derived.planner.locks.rekey(visit.lock_name, key)


def _in_order(step: Step, names: tuple[OperationId, ...]) -> tuple[OperationId, ...]:
    """Components in the order of the catalogue, other kinds behind them; of equals who came first."""
    operations, order = step.state.maintenance.operations, step.derived.planner.order

    def place(name: OperationId) -> tuple[int, tuple[int, int]]:
        operation = operations[name]
        return order.get(operation.spec.component, len(order)), operation.key()

    return tuple(sorted(names, key=place))


def _open(step: Step, visit: Visit, host: Host, operation: Operation) -> None:
    if host.state in (HostState.OUT_PLANNED, HostState.OUT_FAILED):
        hosts.hold(step, host, drains.hold_of(visit, operation, step.now))
        _is_out(step, visit)
    elif host.state is HostState.READY and host.allocation is not None and host.role == "member":
        drains.notice(step, visit, host, operation)
    else:
        drains.drain(step, visit, host, operation)
    if host.state is HostState.READY or visit.phase is not _P.NOTICED:
        return
    move(step, visit, _P.DRAINING, "it leaves production")


def drain_now(step: Step, name: str) -> None:
    """The moment has come (a checkpoint was just published, the job has ended, or it can wait no longer)."""
    visit = step.state.maintenance.visits.get(HostId(name))
    if visit is None or visit.phase is not _P.NOTICED or not (visit.pending or visit.wide):
        return
    drains.forget(step, visit)
    host = step.state.hosts[visit.unit]
    operations = step.state.maintenance.operations
    gone = step.derived.planner.ledger.check_start((visit.unit,))
    if gone is not None:
        for other in (*visit.pending, *visit.wide):
            running.back_to_gate(step, operations[other], "the capacity that it was promised is gone")
        return
    first = (*visit.pending, *visit.wide)[0]
    move(step, visit, _P.DRAINING, "the moment has come")
    drains.drain(step, visit, host, operations[first])
    for other in (*visit.pending, *visit.wide):
        operations[other].reason = drains.waits(step, visit, host)


def unit_out(step: Step, unit: HostId) -> None:
    """Nothing runs on the unit any more, or it has passed its verification and somebody holds it still."""
    visit = step.state.maintenance.visits.get(unit)
    if visit is None:
        return
    if visit.phase is _P.RETURNING:
        _passed(step, visit)
    elif visit.phase in (_P.NOTICED, _P.DRAINING):
        _is_out(step, visit)


def unit_ready(step: Step, unit: HostId) -> None:
    visit = step.state.maintenance.visits.get(unit)
    if visit is not None and visit.phase is _P.RETURNING:
        _passed(step, visit)


def _is_out(step: Step, visit: Visit) -> None:
    drains.forget(step, visit)
    host, wanting = step.state.hosts[visit.unit], (*visit.pending, *visit.wide)
    if host.hold_of(MAINTENANCE) is None and wanting:  # somebody else drained it while it waited for its moment
        drains.drain(step, visit, host, step.state.maintenance.operations[wanting[0]])
    visit.drained_at = step.now
    move(step, visit, _P.OUT, "nothing runs on it")
    step.unit_signals.append(("go-on", visit.unit))


def go_on(step: Step, unit: HostId) -> None:
    """Takes the next step of a visit in which nothing is under way."""
    visit = step.state.maintenance.visits.get(unit)
    if visit is None or visit.current is not None or visit.reboot is not None:
        return
    if visit.phase in (_P.NOTICED, _P.DRAINING):
        if not visit.pending and not visit.wide:
            _called_off(step, visit)
        return
    if visit.phase is _P.RETURNING:
        if not visit.pending and not visit.wide:  # who joined on its way back was taken back
            hosts.lift(step, step.state.hosts[unit], MAINTENANCE, "nobody needs it out any more")
        return
    if visit.phase is _P.OUT and (visit.pending or visit.needs_reboot):
        has_lock = _has_lock(step, visit)
        for name in visit.wide:
            _ask_wide(step, step.state.maintenance.operations[name])
        if not has_lock:
            return
    if visit.phase is _P.OUT and visit.pending:
        move(step, visit, _P.APPLYING, "its lock is held")
    if visit.phase is _P.APPLYING and _apply_next(step, visit):
        return
    if visit.phase is _P.APPLYING and _undo_next(step, visit):
        return
    if visit.phase in (_P.APPLYING, _P.OUT) and visit.needs_reboot:
        _reboot(step, visit)
        return
    if visit.phase is _P.CHECKING and _check_next(step, visit):
        return
    if visit.phase in (_P.APPLYING, _P.CHECKING):
        move(step, visit, _P.OUT, "all is carried out")
        _release_lock(step, visit)
    if visit.phase is _P.OUT:
        if visit.pending:
            go_on(step, unit)
            return
        _release_lock(step, visit)  # also where what it was for has been taken back
        for name in visit.wide:
            _ask_wide(step, step.state.maintenance.operations[name])
        if not visit.wide:
            _return(step, visit)


def _has_lock(step: Step, visit: Visit) -> bool:
    if visit.locked or visit.asked_lock:
        return visit.locked
    index = step.derived.planner
    visit.asked_lock = True
    visit.locked = index.locks.request(visit.lock_name, visit.key, index.unit_scope(visit.unit))
    if not visit.locked:
        reason = running.busy(step, visit.lock_name)
        for name in visit.pending:
            step.state.maintenance.operations[name].reason = reason
    return visit.locked


def lock_granted(step: Step, unit: HostId) -> None:
    visit = step.state.maintenance.visits.get(unit)
    if visit is None or visit.locked or not step.derived.planner.locks.holds(visit.lock_name):
        return  # it gave the lock back before it was told
    visit.locked = True
    go_on(step, unit)


def _release_lock(step: Step, visit: Visit) -> None:
    if visit.asked_lock:
        running.give_back(step, visit.lock_name)
    visit.locked = visit.asked_lock = False


def _apply_next(step: Step, visit: Visit) -> bool:
    """Starts the next operation of the unit; False if none is left."""
    while visit.pending:
        name = visit.pending[0]
        visit.pending = visit.pending[1:]
        operation = step.state.maintenance.operations[name]
        missing = _failed_before(step, visit, operation)
        if missing:
            sentence = f"{missing} failed in the same visit, and {operation.spec.component} comes after it"
            reason = Reason(token=Token.PREDECESSOR_FAILED, sentence=sentence)
            running.finish(step, operation, OperationState.FAILED, reason)
            continue
        visit.current = name
        running.start(step, operation)
        return True
    return False


def _undo_next(step: Step, visit: Visit) -> bool:
    """Takes back what was applied, is to be taken back, and would have been checked after a reboot; no reboot comes for
    it."""
    operations = step.state.maintenance.operations
    for name in visit.unchecked:
        operation = operations[name]
        if operation.ends_as is None:
            continue
        visit.unchecked = tuple(other for other in visit.unchecked if other != name)
        visit.applied = tuple(other for other in visit.applied if other != name)
        visit.unbooted = tuple(other for other in visit.unbooted if other != name)
        visit.current = name
        if running.wants_undo(step, operation):
            running.send(step, operation, "undo")
        else:
            running.finish(step, operation, operation.ends_as, operation.failure)
        return True
    return False


def _boots(step: Step, operation: Operation) -> bool:
    return running.work_of(step, operation).disturbs == "reboot"


def _failed_before(step: Step, visit: Visit, operation: Operation) -> str:
    before: tuple[str, ...] = getattr(running.work_of(step, operation), "after", ())
    return next((name for name in before if name in visit.failed), "")


def _check_next(step: Step, visit: Visit) -> bool:
    while visit.unchecked:
        name = visit.unchecked[0]
        visit.unchecked = visit.unchecked[1:]
        visit.current = name
        running.send(step, step.state.maintenance.operations[name], "check")
        return True
    return False


def leg_ended(step: Step, effect: RunSteps, event: EffectEnded) -> None:
    """A leg has an outcome: on with the operation, or with its undo, or with what comes after it."""
    operation = running.leg_ended(step, effect, event)
    if operation is None:
        return
    if running.wants_undo(step, operation):
        running.send(step, operation, "undo")
    elif operation.failure is not None or operation.ends_as is not None:
        _failed(step, operation, event)
    elif not operation.units:
        running.finish(step, operation, OperationState.DONE, None)
    else:
        _carried_out(step, operation)


def _failed(step: Step, operation: Operation, event: EffectEnded) -> None:
    assert operation.failure is not None, operation.id
    reason = operation.failure
    if operation.leg == "undo" and event.outcome != "done":
        reason = running.not_undone(step, operation, event.detail or event.outcome)
    elif operation.leg == "undo":
        none = operation.spec.component and not operation.previous
        told = "and was undone: no version was known before, so none is there now" if none else "and was undone"
        reason = reason.but(sentence=f"{reason.sentence}; {told}")
    running.finish(step, operation, operation.ends_as or OperationState.FAILED, reason)


def _carried_out(step: Step, operation: Operation) -> None:
    """Applied, or checked after the reboot: its units are next."""
    assert operation.state is OperationState.RUNNING, (operation.id, operation.state)
    assert operation.leg in ("apply", "check"), (operation.id, operation.leg)
    visits, wide, after_boot = step.state.maintenance.visits, operation.is_wide(), _boots(step, operation)
    checked = operation.leg == "check"
    there = [unit for unit in operation.units if not wide or _needs(visits.get(unit), operation.id)]
    if wide:
        operation.left = tuple(there)
        running.give_back(step, operation.id)
        operation.locked = operation.asked_lock = False
        if len(there) < len(operation.units):
            gone = len(operation.units) - len(there)
            sentence = f"{gone} of {len(operation.units)} units were lost while it was carried out"
            operation.failure = because(Token.UNIT_LOST, sentence, lost=gone, units=len(operation.units))
        if not there:
            running.finish(step, operation, OperationState.FAILED, operation.failure)
            return
        step.derived.planner.ledger.unpromise(unit for unit in operation.units if unit not in there)
    if wide or not after_boot or checked:
        running.move(step, operation, OperationState.VERIFYING, "carried out; its units are to be verified")
    for unit in there:
        _note_applied(step, visits[unit], operation, boot=after_boot and not checked)


def _needs(visit: Visit | None, name: OperationId) -> bool:
    return visit is not None and name in visit.wide


def _note_applied(step: Step, visit: Visit, operation: Operation, boot: bool) -> None:
    """The visit goes on without it, until the unit is verified."""
    running.demand(step, visit, operation)
    visit.wide = running.without(visit.wide, operation.id)
    if operation.id not in visit.applied:
        visit.applied = (*visit.applied, operation.id)
    if boot:
        visit.unbooted = (*visit.unbooted, operation.id)
        if not operation.is_wide():
            visit.unchecked = (*visit.unchecked, operation.id)
    if visit.current == operation.id:
        visit.current = None
    step.unit_signals.append(("go-on", visit.unit))


def _reboot(step: Step, visit: Visit) -> None:
    move(step, visit, _P.REBOOTING, "something asks for a reboot")
    asked, visit.unbooted = visit.unbooted, ()
    why = f"{MAINTENANCE}: {', '.join(asked)}"
    effect = step.emit(RebootHost(id=step.next_id(), host=visit.unit, operation=asked[0], why=why))
    visit.reboot = effect.id
    step.wake(f"reboot/{visit.unit}", after(step.now, REBOOT_DEADLINE))


def booted(step: Step, effect: RebootHost, event: EffectEnded) -> None:
    visit = step.state.maintenance.visits.get(effect.host)
    if visit is None or visit.reboot != effect.id:
        return
    if event.outcome == "done":
        _came_back(step, visit)
    else:
        running.lose_unit(step, effect.host, f"it could not be rebooted: {event.detail or event.outcome}")


def _came_back(step: Step, visit: Visit) -> None:
    visit.reboot = None
    step.unwake(f"reboot/{visit.unit}")
    move(step, visit, _P.CHECKING, "booted anew")
    go_on(step, visit.unit)


def reboot_overdue(step: Step, name: str) -> None:
    visit = step.state.maintenance.visits.get(HostId(name))
    if visit is not None and visit.reboot is not None:
        running.lose_unit(step, visit.unit, "it did not come back from its reboot in time")


def _ask_wide(step: Step, operation: Operation) -> None:
    """A wide operation asks for its resources once all its units are out."""
    if operation.asked_lock or operation.state is OperationState.RUNNING:
        return
    visits = step.state.maintenance.visits
    if all(visits[unit].phase in (_P.OUT, _P.APPLYING, _P.REBOOTING, _P.CHECKING) for unit in operation.units):
        running.ask_lock(step, operation)
    else:
        here = sum(1 for unit in operation.units if visits[unit].drained_at is not None)
        sentence = f"{here} of {len(operation.units)} units are out; the others still leave production"
        operation.reason = Reason(
            token=Token.UNITS_LEAVING, sentence=sentence, numbers={"out": here, "units": len(operation.units)}
        )


def _return(step: Step, visit: Visit) -> None:
    """Nobody needs the unit out any more: it proves that it works."""
    assert not visit.pending, visit.unit
    assert not visit.wide, visit.unit
    move(step, visit, _P.RETURNING, "nobody needs it out any more")
    _release_lock(step, visit)
    host = step.state.hosts[visit.unit]
    _check_versions(step, host)
    hosts.bring_back(step, host, MAINTENANCE, visit.tasks, "its maintenance is done")


def _check_versions(step: Step, host: Host) -> None:
    """A unit does not go back to production with versions that do not go together."""
    broken = step.derived.planner.broken_rules(host.versions)
    if broken:
        told = "; ".join(rule.sentence for rule in broken)
        hosts.hold(step, host, Hold(owner=VERSIONS, reason=told, since=step.now))
    elif host.hold_of(VERSIONS) is not None:
        hosts.lift(step, host, VERSIONS, "its versions go together again")


def _passed(step: Step, visit: Visit) -> None:
    """The unit has proved that it works."""
    operations = step.state.maintenance.operations
    applied, visit.applied = visit.applied, ()
    visit.tasks, visit.failed = (), ()
    for name in applied:
        operation = operations[name]
        running.unit_done(step, operation, visit.unit)
        if operation.left:
            continue
        if operation.failure is not None:
            running.finish(step, operation, OperationState.FAILED, operation.failure)
        else:
            running.finish(step, operation, OperationState.DONE, None)
    maintenance = step.state.maintenance
    maintenance.visited[visit.unit] = maintenance.visited.get(visit.unit, 0) + 1
    if visit.pending or visit.wide:
        move(step, visit, _P.OUT, "somebody needs it out again")
        step.unit_signals.append(("go-on", visit.unit))
    else:
        close(step, visit, "returned")


def close(step: Step, visit: Visit, why: str) -> None:
    """The visit is over; what its operations still need is the business of who closes it."""
    drains.forget(step, visit)
    step.unwake(f"reboot/{visit.unit}")
    _release_lock(step, visit)
    move(step, visit, _P.CLOSED, why)
    del step.state.maintenance.visits[visit.unit]


def _called_off(step: Step, visit: Visit) -> None:
    """Everything that needed the unit out was taken back before it had left."""
    close(step, visit, "called off")
    host, why = step.state.hosts[visit.unit], "the maintenance was called off"
    hosts.lift(step, host, MAINTENANCE, why)
    if host.state is HostState.OUT_PLANNED and not host.holds:
        hosts.verify(step, host, why)
