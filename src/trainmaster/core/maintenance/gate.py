"""The gate: requests come in, and leave it as admitted operations.

An operation passes when its predecessors are done, its time has come, its train is not paused, its executor lives, the
contracts of the jobs on its units allow it, and the ledger has the capacity. What refuses it decides in which *line* it
waits, so that only those are asked again whom a change may concern:

    unit/H     the unit is not there, or has failed and this is no repair
    train/T    the train is paused
    BOOK       capacity, or the contract of a job, in the order of keys

In the line of a book nobody overtakes one whom only the ledger refuses: a wide request would starve behind narrow
ones. Who takes no capacity (a repair, a hand-over) stands in no line, since a limit that is spent must not block what
brings capacity back. Those refused by a job's contract do not hold up the others, nor do those that the limits never
allow. A line is served when capacity comes back; from its head, at most `CONTRACTS_ASKED` such refusals far, so the
work per event is bounded.
"""

from typing import Final

from trainmaster.core.base.ids import HostId, OperationId, operation_id
from trainmaster.core.base.reasons import Reason, Token, because
from trainmaster.core.base.time import Instant, in_seconds
from trainmaster.core.fleet.lifecycle import HostState
from trainmaster.core.health.conduct import HEALTH
from trainmaster.core.maintenance import contract, running, visits
from trainmaster.core.maintenance.catalogue import Component, Kind, takes_capacity
from trainmaster.core.maintenance.events import OperationCancelled, OperationRequested, OperationSpec
from trainmaster.core.maintenance.operation import Operation, OperationState, aged
from trainmaster.core.maintenance.scope import Scope
from trainmaster.core.step import Step

CONTRACTS_ASKED: Final = 64


def request(step: Step, event: OperationRequested) -> Operation:
    """A new operation. Asking again with the key of a known one changes nothing and returns it."""
    state = step.state.maintenance
    if event.key and event.key in state.keys:
        return state.operations.get(state.keys[event.key])  # type: ignore[return-value]
    operation = create(step, event.spec, event.by)
    if event.key:
        state.keys[event.key] = operation.id
    reason = _too_late(step, event.spec) if event.spec.after else None
    if reason is not None:
        running.finish(step, operation, OperationState.CANCELLED, reason)
    else:
        consider(step, operation)
    return operation


def _too_late(step: Step, spec: OperationSpec) -> Reason | None:
    """Whether something that had to be done before has ended already, otherwise than done."""
    gone = [name for name in spec.after if name not in step.state.maintenance.operations]
    for ended in step.state.maintenance.ended if gone else ():
        if ended.id in gone and ended.state is not OperationState.DONE:
            sentence = f"{ended.id} had to be done before, and it ended as {ended.state.value}"
            return Reason(token=Token.PREDECESSOR_FAILED, sentence=sentence)
    return None


def create(step: Step, spec: OperationSpec, by: str) -> Operation:
    """An operation at the gate that nobody has looked at yet."""
    state, index = step.state.maintenance, step.derived.planner
    operation = draft(step, spec, by)
    state.requested += 1
    state.operations[operation.id] = operation
    for other in operation.after:
        index.dependents.setdefault(other, []).append(operation.id)
        inherit(step, state.operations[other], operation)
    return operation


def draft(step: Step, spec: OperationSpec, by: str) -> Operation:
    """The next operation as it would be; nobody knows of it."""
    state, index = step.state.maintenance, step.derived.planner
    work, scope = index.work(spec), index.resources.resolve(spec.scope)
    assert work is not None, spec
    assert isinstance(scope, Scope), scope
    number = state.requested + 1
    members = index.resources.scope_units(scope)
    assert members, scope
    units = _disturbed(step, work, members)
    return Operation(
        id=operation_id(number),
        spec=spec,
        by=by,  # type: ignore[arg-type]
        requested_at=step.now,
        sequence=number,
        aged_at=aged(spec, step.now),
        scope=scope,
        units=units,
        executor=_executor(step, members),
        since=step.now,
        after=tuple([other for other in spec.after if other in state.operations]) if spec.after else (),
    )


def _disturbed(step: Step, work: Component | Kind, members: tuple[HostId, ...]) -> tuple[HostId, ...]:
    if not takes_capacity(work):
        return ()
    hosts = step.state.hosts
    return tuple([unit for unit in members if hosts[unit].spec.kind != "controller"])


def _executor(step: Step, members: tuple[HostId, ...]) -> HostId:
    """The unit itself; for what is wider, the controller of its cluster, or the first unit where there is none."""
    if len(members) == 1:
        return members[0]
    controller = step.derived.planner.controllers.get(step.state.hosts[members[0]].spec.cluster)
    return controller if controller is not None else members[0]


def inherit(step: Step, earlier: Operation, later: Operation) -> None:
    """Who is waited for goes at least as early as who waits."""
    if earlier.key() <= later.key():
        return
    index = step.derived.planner
    if earlier.line:
        index.leave_line(earlier)
    earlier.aged_at = Instant(later.aged_at - 1)
    if earlier.line:
        index.enter_line(earlier)
        step.lines_due = True
    if earlier.asked_lock:
        step.granted += index.locks.rekey(earlier.id, earlier.key())
    for unit in earlier.units if earlier.state is not OperationState.REQUESTED else ():
        visit = step.state.maintenance.visits.get(unit)
        if visit is not None and earlier.id in (*visit.pending, *visit.wide):
            visits.hurry(step, visit, earlier.key())
    for name in earlier.after:
        inherit(step, step.state.maintenance.operations[name], earlier)


def consider(step: Step, operation: Operation) -> bool:
    """Admits an operation that stands in no line, or puts it into the right one."""
    assert operation.state is OperationState.REQUESTED, (operation.id, operation.state)
    found = _refusal(step, operation)
    if found is None:
        admit(step, operation)
        return True
    line, reason = found
    operation.reason = reason
    if line:
        operation.line = line
        step.derived.planner.enter_line(operation)
    return False


def refusal(step: Step, operation: Operation) -> Reason | None:
    """What forbids it now."""
    found = _refusal(step, operation)
    return found[1] if found is not None else None


def _refusal(step: Step, operation: Operation) -> tuple[str, Reason] | None:
    """What forbids it now, and the line in which it waits for a change."""
    if operation.after:
        names = ", ".join(operation.after[:3])
        sentence = f"{names} must be done before"
        return "", because(Token.WAITS_FOR_OPERATION, sentence, predecessors=len(operation.after))
    not_before = operation.spec.not_before
    if not_before is not None and not_before > step.now:
        step.wake(f"gate/{operation.id}", not_before)
        wait_s = in_seconds(not_before - step.now)
        return "", because(Token.NOT_BEFORE, f"not before its time, in {wait_s:.0f} s", wait_s=round(wait_s, 3))
    if operation.train is not None:
        paused = step.state.maintenance.paused.get(operation.train)
        if paused is not None:
            return f"train/{operation.train}", paused
    absent = _absent(step, operation)
    if absent is not None:
        return absent
    if not operation.units:
        return None
    book, ledger = step.derived.planner.book_of(operation.units), step.derived.planner.ledger
    reason = _refusal_of_ledger(step, operation)[0] or contract.refusal(step, operation)
    if reason is None and (not ledger.takes(operation.units) or _first_in_line(step, book, operation)):
        return None
    return book, reason or _in_line(step, book)


def _refusal_of_ledger(step: Step, operation: Operation) -> tuple[Reason | None, bool]:
    """Why the ledger does not allow it now, and whether it never will with the limits as they are."""
    ledger = step.derived.planner.ledger
    reason = ledger.check(operation.units)
    never = ledger.never(operation.units) if reason is not None else None
    if never is not None:
        return never.but(sentence=f"with the limits as they are it can never begin: {never.sentence}"), True
    return reason, False


def _absent(step: Step, operation: Operation) -> tuple[str, Reason] | None:
    """A unit that has to be there is not."""
    work = step.derived.planner.work(operation.spec)
    if (isinstance(work, Kind) and work.repairs) or operation.by == HEALTH:
        return None  # what health asks for is a repair, whatever the kind is used for otherwise
    hosts = step.state.hosts
    for name in (operation.executor, *operation.units):
        host = hosts[name]
        if host.state is HostState.OUT_FAILED or host.state is HostState.EXPECTED:
            sentence = f"{name} is {host.state.value}: {host.reason.sentence}"
            return f"unit/{name}", Reason(token=Token.UNIT_FAILED, sentence=sentence)
    return None


def _first_in_line(step: Step, book: str, operation: Operation) -> bool:
    """Nobody who waits for capacity only comes before it."""
    for _, _, name in step.derived.planner.lines.get(book, ()):
        other = step.state.maintenance.operations[name]
        if other.key() >= operation.key():
            break
        waits_for_job = other.reason is not None and other.reason.token in contract.TOKENS
        if not waits_for_job and step.derived.planner.ledger.never(other.units) is None:
            return False
    return True


def _in_line(step: Step, book: str) -> Reason:
    line = step.derived.planner.lines[book]
    sentence = f"{line[0][2]} comes first; waiting for capacity of {book}: {len(line)}"
    return Reason(token=Token.IN_LINE, sentence=sentence, numbers={"ahead": len(line)})


def admit(step: Step, operation: Operation) -> None:
    """Promises the capacity, and asks for what it needs."""
    operation.reason = None
    running.move(step, operation, OperationState.ADMITTED, "admitted")
    if not operation.units:
        running.ask_lock(step, operation)
        return
    step.derived.planner.ledger.promise(operation.units)
    operation.promised = True
    for unit in operation.units:
        visits.join(step, operation, unit)


def again(step: Step, name: str) -> None:
    """Its time has come."""
    operation = step.state.maintenance.operations.get(OperationId(name))
    if operation is not None and operation.state is OperationState.REQUESTED and not operation.line:
        consider(step, operation)


def serve_lines(step: Step) -> None:
    """Capacity came back: whoever may go now, goes."""
    for line in sorted(step.derived.planner.lines):
        if not line.startswith(("unit/", "train/")):
            _serve(step, line)


def serve_line(step: Step, line: str) -> None:
    """What this line waited for has changed: all of it is considered anew."""
    for _, _, name in tuple(step.derived.planner.lines.get(line, ())):
        operation = step.state.maintenance.operations[name]
        leave(step, operation)
        consider(step, operation)


def _of_books(step: Step) -> list[Operation]:
    """All that wait in the lines of books, in the order of their keys."""
    operations = step.state.maintenance.operations
    lines = step.derived.planner.lines.items()
    entries = sorted(entry for line, found in lines if not line.startswith(("unit/", "train/")) for entry in found)
    return [operations[name] for _, _, name in entries]


def sort_anew(step: Step) -> None:
    """The limits are others, and so may be the books."""
    waiting = _of_books(step)
    for operation in waiting:
        leave(step, operation)
    for operation in waiting:
        consider(step, operation)


def unit_lost(step: Step, unit: HostId) -> None:
    """What waits for capacity to work on this unit takes none any more: it waits for the repair, or is the repair."""
    for operation in _of_books(step):
        if unit in operation.units:
            leave(step, operation)
            consider(step, operation)


def _serve(step: Step, line: str) -> None:
    index = step.derived.planner
    known: contract.Supplies = {}
    place = refused = 0
    while place < len(index.lines.get(line, ())) and refused < CONTRACTS_ASKED:
        operation = step.state.maintenance.operations[index.lines[line][place][2]]
        reason, never = _refusal_of_ledger(step, operation)
        if reason is not None and not never:
            operation.reason = reason
            return
        reason = reason or contract.refusal(step, operation, known)
        if reason is not None:
            operation.reason = reason
            place, refused = place + 1, refused + 1
            continue
        known = {}
        leave(step, operation)
        consider(step, operation)


def leave(step: Step, operation: Operation) -> None:
    """Out of the line in which it stands."""
    step.derived.planner.leave_line(operation)
    operation.line = ""


def cancel(step: Step, event: OperationCancelled) -> None:
    """Takes an operation back everywhere: from its line, its visits, its locks; a running one ends its step first."""
    operation = step.state.maintenance.operations.get(event.operation)
    if operation is None or operation.ends_as is not None:
        return
    reason = Reason(token=Token.CANCELLED_BY_REQUEST, sentence=f"cancelled by {event.by}: {event.reason}")
    withdraw(step, operation, OperationState.CANCELLED, reason)


def withdraw(step: Step, operation: Operation, state: OperationState, reason: Reason) -> None:
    """Ends an operation that is not carried out yet as `state`; one that runs, when its present leg has ended; one that
    is only verified is past that and ends by itself."""
    if operation.state is OperationState.VERIFYING:
        return
    if operation.state is OperationState.RUNNING:
        operation.ends_as, operation.failure = state, reason
        return
    running.finish(step, operation, state, reason)
