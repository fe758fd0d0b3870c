"""Trains at work: a stop begins, its units are worked on, it ends; a cycle ends with its proof.

A stop is begun as a whole or not at all: the ledger is asked for all units that have to leave. What a job's contract
forbids is left out and carried over, so that one protected job does not stop the train. All operations of a stop are
requested in one event, hence every unit is drained once, and all hosts of a job leave in the same moment.
"""

from collections.abc import Iterator

from trainmaster.core.base.hostlist import fold
from trainmaster.core.base.ids import HostId, Owner, TrainName
from trainmaster.core.base.reasons import Reason, Token, because
from trainmaster.core.base.time import Duration, Instant, after, in_seconds
from trainmaster.core.fleet.lifecycle import HostState
from trainmaster.core.maintenance import contract, gate
from trainmaster.core.maintenance.catalogue import Priority, takes_capacity
from trainmaster.core.maintenance.due import Due, due_on
from trainmaster.core.maintenance.events import OperationSpec, TrainAborted, TrainDeclared, TrainPaused, TrainResumed
from trainmaster.core.maintenance.ledger import Side
from trainmaster.core.maintenance.operation import Operation, OperationState
from trainmaster.core.maintenance.train import (
    PROOFS_KEPT,
    TRAIN_MACHINE,
    CycleProof,
    MissedUnit,
    Stop,
    Train,
    TrainSpec,
    TrainState,
)
from trainmaster.core.step import Step


def owner_of(train: Train) -> Owner:
    return Owner(f"policy:train/{train.spec.name}")


def declare(step: Step, event: TrainDeclared) -> None:
    """A new train starts its first cycle now. A known one goes on in its cycle where its way is the same, at the domain
    of the stop that was cut short; another way, another cycle time or another mode begins a new cycle."""
    trains = step.state.maintenance.trains
    known = trains.get(event.spec.name)
    train = Train(spec=event.spec, by=event.by, since=step.now, cycle_began=step.now)
    if known is not None:
        _withdraw(step, known, because(Token.CANCELLED_BY_REQUEST, "the train was declared anew"))
        units = {unit for domain in event.spec.domains for unit in domain}
        train.visited_at = {unit: at for unit, at in known.visited_at.items() if unit in units}
        train.cycle, train.proofs = known.cycle + 1, known.proofs
        if known.state is not TrainState.ENDED and _way(known.spec) == _way(event.spec):
            train.cycle, train.cycle_began, train.next_domain = known.cycle, known.cycle_began, known.next_domain
            train.worked_on, train.longest_gap, train.carried = known.worked_on, known.longest_gap, known.carried
    trains[event.spec.name] = train
    step.wake(f"train/{event.spec.name}", train.due_at())


def _way(spec: TrainSpec) -> tuple[object, ...]:
    return spec.domains, spec.cycle, spec.mode, spec.emergency


def pause(step: Step, event: TrainPaused) -> None:
    """No stop begins and no operation of it passes the gate; what was admitted is carried out."""
    sentence = f"paused by {event.by}: {event.reason}"
    step.state.maintenance.paused[event.train] = Reason(token=Token.TRAIN_PAUSED, sentence=sentence)


def resume(step: Step, event: TrainResumed) -> None:
    step.state.maintenance.paused.pop(event.train, None)
    gate.serve_line(step, f"train/{event.train}")
    look(step, event.train)


def abort(step: Step, event: TrainAborted) -> None:
    train = step.state.maintenance.trains[event.train]
    if train.state is TrainState.ENDED:
        return
    reason = because(Token.CANCELLED_BY_REQUEST, f"{event.train} was aborted by {event.by}: {event.reason}")
    _withdraw(step, train, reason)
    _end(step, train, reason)


def _withdraw(step: Step, train: Train, reason: Reason) -> None:
    """What the train asked for and is not carried out is cancelled everywhere."""
    for operation in sorted(step.state.maintenance.operations.values(), key=lambda one: one.sequence):
        if operation.train == train.spec.name and operation.is_live():
            gate.withdraw(step, operation, OperationState.CANCELLED, reason)


def _end(step: Step, train: Train, reason: Reason) -> None:
    move(step, train, TrainState.ENDED, reason.sentence)
    train.reason, train.stop = reason, None
    step.state.maintenance.paused.pop(train.spec.name, None)
    for key in ("train", "stop"):
        step.unwake(f"{key}/{train.spec.name}")


def move(step: Step, train: Train, state: TrainState, cause: str) -> None:
    """Takes an edge of the train machine."""
    train.story = TRAIN_MACHINE.step(train.spec.name, train.story, train.state, state, step.now, cause)
    train.state, train.since = state, step.now


def look(step: Step, name: str) -> None:
    """Begins the next stop, if it is due and nothing forbids it."""
    train = step.state.maintenance.trains.get(TrainName(name))
    if train is None or train.state not in (TrainState.RESTING, TrainState.WAITING):
        return
    if train.due_at() > step.now:
        step.wake(f"train/{name}", train.due_at())
        return
    paused = step.state.maintenance.paused.get(train.spec.name)
    refusal = paused or _begin(step, train)
    if refusal is None:
        return
    train.reason = refusal
    if train.state is TrainState.RESTING:
        move(step, train, TrainState.WAITING, refusal.sentence)


def serve(step: Step) -> None:
    """Capacity came back: trains that wait for it look again."""
    for name, train in sorted(step.state.maintenance.trains.items()):
        if train.state is TrainState.WAITING:
            look(step, name)


def _begin(step: Step, train: Train) -> Reason | None:
    """The stop at the next domain, or why it can't begin."""
    domain = train.spec.domains[train.next_domain]
    coming = [unit for unit in domain if _is_coming(step, unit)]
    if coming:
        sentence = f"{fold(coming)} of its next domain have not been in service yet, and are expected to come"
        return because(Token.HOSTS_EXPECTED, sentence, expected=len(coming))
    carried = _carried_along(step, train, domain)
    units = (*domain, *carried)
    due, left_out = due_at_stop(step, train, domain, carried)
    for unit in domain:  # what leaves already is soon back: the stop waits for that, and misses nobody
        if unit in left_out and left_out[unit].token is Token.REPLACEMENT_PROMISED:
            return left_out[unit]
    leaving = leaving_of(step, due)
    if leaving and step.derived.planner.ledger.check(leaving) is not None:
        # Those carried over come on top of the domain: without them it may do.
        own = {unit: rows for unit, rows in due.items() if unit in domain}
        refusal = step.derived.planner.ledger.check(leaving_of(step, own)) if own else None
        if refusal is not None:
            return refusal
        units, due = domain, own
    if train.spec.mode == "observe":
        _advise(step, train, due)
        due = {}
    _open(step, train, units, due, left_out)
    return None


def _carried_along(step: Step, train: Train, domain: tuple[HostId, ...]) -> tuple[HostId, ...]:
    """Units that missed their stop and come along with this one, at most as many as it has itself; those first whose
    last visit is longest ago."""
    hosts = step.state.hosts
    late = sorted(train.carried, key=lambda unit: (train.visited_at.get(unit, -1), hosts[unit].position))
    return tuple(unit for unit in late[: len(domain)] if unit not in domain)


def _is_coming(step: Step, unit: HostId) -> bool:
    """New, and not given up: its agent has yet to register, or it is verified for the first time."""
    ledger = step.derived.planner.ledger
    return step.state.hosts[unit].state is not HostState.OUT_FAILED and ledger.side(unit) is Side.ABSENT


def due_at_stop(
    step: Step, train: Train, domain: tuple[HostId, ...], carried: tuple[HostId, ...] = ()
) -> tuple[dict[HostId, list[Due]], dict[HostId, Reason]]:
    """What is due by unit, and the units that can't take part now, with why."""
    due: dict[HostId, list[Due]] = {}
    left_out: dict[HostId, Reason] = {}
    train.held_back = {}
    for unit in (*domain, *carried):
        host = step.state.hosts[unit]
        if host.state in (HostState.EXPECTED, HostState.OUT_FAILED):
            sentence = f"{unit} is {host.state.value}: {host.reason.sentence}"
            left_out[unit] = Reason(token=Token.UNIT_FAILED, sentence=sentence)
            continue
        rows, held_back = due_on(step, host, train.spec.components)
        for held in held_back:
            train.held_back[held.component] = held.reason
        if rows:
            due[unit] = rows
    if not train.spec.emergency:
        for unit, reason in _refused(step, train, leaving_of(step, due), domain).items():
            left_out[unit] = reason
            del due[unit]
    return due, left_out


def _refused(step: Step, train: Train, leaving: tuple[HostId, ...], domain: tuple[HostId, ...]) -> dict[HostId, Reason]:
    """Units whose jobs do not let them go. Those carried over come on top, one by one: asked for together with the
    domain they would keep it from leaving as well, and one unit that was missed would spoil all stops that follow."""
    told = train.spec.evict_after is not None
    refused = contract.refusals(step, [unit for unit in leaving if unit in domain], told=told)
    accepted = [unit for unit in leaving if unit in domain and unit not in refused]
    for unit in (unit for unit in leaving if unit not in domain):
        found = contract.refusals(step, (*accepted, unit), told=told)
        if found:
            refused[unit] = found.get(unit) or next(iter(found.values()))
        else:
            accepted.append(unit)
    return refused


def leaving_of(step: Step, due: dict[HostId, list[Due]]) -> tuple[HostId, ...]:
    """Units that have to leave production for what is due on them."""
    index = step.derived.planner
    return tuple(
        unit for unit, rows in due.items() if any(takes_capacity(index.component(row.component)) for row in rows)
    )


def _advise(step: Step, train: Train, due: dict[HostId, list[Due]]) -> None:
    rows = [f"{row.unit}: {row.component} {row.version}" for rows in due.values() for row in rows]
    train.advice = tuple(rows)


def _open(
    step: Step, train: Train, units: tuple[HostId, ...], due: dict[HostId, list[Due]], left_out: dict[HostId, Reason]
) -> None:
    move(step, train, TrainState.STOPPING, f"stop {train.next_domain + 1} of {len(train.spec.domains)}")
    train.reason = None
    stop = train.stop = Stop(
        domain=train.next_domain, began_at=step.now, after=step.state.maintenance.requested, units=units
    )
    step.wake(f"stop/{train.spec.name}", after(step.now, train.spec.stop_limit))
    asked = [_ask(step, train, row) for unit in units for row in due.get(unit, ())]
    stop.requested = len(asked)
    stop.open = {unit: len(due[unit]) for unit in units if unit in due}
    for unit in units:
        if unit in left_out:
            train.carried[unit] = left_out[unit]
        elif unit not in due:
            _visited(step, train, unit)
    for operation in asked:
        gate.consider(step, operation)
    _close_if_done(step, train)


def _ask(step: Step, train: Train, row: Due) -> Operation:
    spec = OperationSpec(
        scope=(f"host/{row.unit}",),
        component=row.component,
        version=row.version,
        priority=Priority.EMERGENCY if train.spec.emergency else Priority.PLANNED,
        reason=f"train {train.spec.name}",
    )
    operation = gate.create(step, spec, owner_of(train))
    operation.train, operation.rollout = train.spec.name, row.rollout
    if train.spec.evict_after is not None:
        operation.evict_at = after(step.now, train.spec.evict_after)
    return operation


def operation_ended(step: Step, operation: Operation) -> None:
    """One operation less at the stop; with the last one of a unit the unit has been visited."""
    train = step.state.maintenance.trains.get(operation.train) if operation.train is not None else None
    if train is None or train.stop is None:
        return
    unit = operation.units[0] if operation.units else operation.executor
    stop = train.stop
    if unit not in stop.open or operation.sequence <= stop.after:
        return
    stop.failed += operation.state is not OperationState.DONE
    stop.open[unit] -= 1
    if stop.open[unit] > 0:
        return
    del stop.open[unit]
    if operation.state is not OperationState.CANCELLED and _is_back(step, unit):  # off-boarded: it is due no longer
        train.worked_on += 1
        _visited(step, train, unit)
    else:
        train.carried[unit] = operation.reason or because(Token.UNIT_FAILED, f"{unit} did not return")
    _close_if_done(step, train)


def _is_back(step: Step, unit: HostId) -> bool:
    """Not lost; on its way back at least."""
    return step.state.hosts[unit].state is not HostState.OUT_FAILED


def _visited(step: Step, train: Train, unit: HostId) -> None:
    before = train.visited_at.get(unit)
    if before is not None:
        train.longest_gap = Duration(max(train.longest_gap, step.now - before))
    train.visited_at[unit] = step.now
    train.carried.pop(unit, None)


def stop_overdue(step: Step, name: str) -> None:
    """The time of the stop is over: what has not begun is cancelled and carried over; what runs ends by itself."""
    train = step.state.maintenance.trains.get(TrainName(name))
    if train is None or train.stop is None:
        return
    train.stop.over = True
    limit_s = in_seconds(train.spec.stop_limit)
    reason = because(Token.STOP_OVER, f"the stop of {name} was over after {limit_s:.0f} s", limit_s=limit_s)
    _withdraw(step, train, reason)


def _close_if_done(step: Step, train: Train) -> None:
    """The stop is over when nothing of it is open."""
    if train.stop is None or train.stop.open:
        return
    train.stop = None
    step.unwake(f"stop/{train.spec.name}")
    train.next_domain += 1
    if train.next_domain == len(train.spec.domains):
        _end_cycle(step, train)
        if train.spec.emergency:
            _end(step, train, because(Token.FINISHED, f"{train.spec.name} has been everywhere"))
            return
    move(step, train, TrainState.RESTING, "the stop is over")
    step.wake(f"train/{train.spec.name}", max(train.due_at(), step.now))


def _end_cycle(step: Step, train: Train) -> None:
    train.proofs = (*train.proofs[-(PROOFS_KEPT - 1) :], proof_of(train, step.now))
    train.cycle += 1
    train.next_domain, train.worked_on, train.longest_gap = 0, 0, Duration(0)
    train.cycle_began = max(step.now, Instant(train.cycle_began + train.spec.cycle))
    train.carried = {}


def proof_of(train: Train, now: Instant) -> CycleProof:
    """Who was visited in the present cycle so far."""
    units = [unit for domain in train.spec.domains for unit in domain]
    missed = tuple(_missed(train, units))
    return CycleProof(
        number=train.cycle,
        began_at=train.cycle_began,
        ended_at=now,
        units=len(units),
        visited=len(units) - len(missed),
        worked_on=train.worked_on,
        missed=missed,
        longest_gap=train.longest_gap,
    )


def _missed(train: Train, units: list[HostId]) -> Iterator[MissedUnit]:
    for unit in units:
        if train.visited_at.get(unit, Instant(-1)) < train.cycle_began:
            reason = train.carried.get(unit) or because(Token.STOP_OVER, "its domain was not reached in this cycle")
            yield MissedUnit(unit=unit, reason=reason)
