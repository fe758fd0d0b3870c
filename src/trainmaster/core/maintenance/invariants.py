"""What must hold of maintenance after every event; a broken one is a defect. Numbers are the architecture's.

Intuition: an operation that is under way always has somebody who will act next: an agent that owes an answer, a
wake-up, a holder of a lock, a line that is served. So nothing is stuck as long as each of them really is there, and
that can be seen in one state, without knowing how it came about. What can be seen only where two states meet (capacity
that is taken, a host that becomes ready, a hold that goes) is in `watcher`.

The checks keep books of their own: units from the declared hosts instead of the lock table, counts from the states of
hosts instead of the ledger. Derived indexes are compared with those that the state alone gives.
"""

from collections.abc import Iterable, Iterator

from trainmaster.core.base.ids import HostId, OperationId
from trainmaster.core.base.reasons import Token
from trainmaster.core.base.time import Instant
from trainmaster.core.effects import RebootHost, RunSteps
from trainmaster.core.fleet.inventory import HostSpec
from trainmaster.core.fleet.lifecycle import Host, HostState
from trainmaster.core.maintenance import contract, train_invariants
from trainmaster.core.maintenance.catalogue import Kind
from trainmaster.core.maintenance.gate import CONTRACTS_ASKED
from trainmaster.core.maintenance.index import PlannerIndex
from trainmaster.core.maintenance.operation import Operation, OperationState
from trainmaster.core.maintenance.scope import resources_of
from trainmaster.core.maintenance.visit import MAINTENANCE, Visit, VisitPhase
from trainmaster.core.state import ClusterState, Derived
from trainmaster.core.step import Step

_S, _P = OperationState, VisitPhase
_AWAY = (_P.OUT, _P.APPLYING, _P.REBOOTING, _P.CHECKING)
"""The unit is out of production, and maintenance has it."""
_PASSES = (Token.JOB_PROTECTED, Token.JOB_ENDS_SOON)
"""Reasons of jobs that pass by time alone."""
_AT_WORK = (_P.APPLYING, _P.REBOOTING, _P.CHECKING)


def broken(state: ClusterState, derived: Derived, anew: Derived | None = None) -> Iterator[str]:
    """Sentences about what does not hold; none if all is well. `anew`: derived from the same state, if there is one."""
    yield from _conflicts(state)
    yield from _ready(state)
    yield from _operations(state, derived)
    yield from _visits(state, derived)
    yield from _effects(state)
    yield from _holds(state)
    yield from _books(state)
    yield from _lines(state, derived)
    fresh = anew.planner if anew is not None else PlannerIndex(state.maintenance, state.hosts.values())
    yield from _indexes(state, derived.planner, fresh)
    yield from train_invariants.broken(state, derived)


def units_of(names: tuple[str, ...], specs: Iterable[HostSpec]) -> set[HostId]:
    """The units that resources name. Who asks for many keeps `units_by_resource`."""
    found = units_by_resource(specs)
    return {unit for name in names for unit in found.get(name, ())}


def units_by_resource(specs: Iterable[HostSpec]) -> dict[str, set[HostId]]:
    """The units of every resource, by the declared hosts alone."""
    found: dict[str, set[HostId]] = {}
    for spec in specs:
        own, around = resources_of(spec)
        for name in (own, *around):
            found.setdefault(name, set()).add(spec.id)
    return found


def _conflicts(state: ClusterState) -> Iterator[str]:
    """1: what is worked on is worked on by one."""
    by_resource = units_by_resource(host.spec for host in state.hosts.values())
    owners: dict[HostId, str] = {}
    maintenance = state.maintenance
    claims = [(visit.lock_name, {visit.unit}) for visit in maintenance.visits.values() if visit.phase in _AT_WORK]
    for operation in maintenance.operations.values():
        if operation.state is _S.RUNNING and (not operation.units or operation.is_wide()):
            claims.append((operation.id, set().union(*(by_resource.get(name, ()) for name in operation.spec.scope))))
    for name, units in claims:
        for unit in units:
            other = owners.setdefault(unit, name)
            if other != name:
                yield f"1: {name} and {other} are at work on {unit} at once"


def _ready(state: ClusterState) -> Iterator[str]:
    """3, and that nothing is placed on a unit that maintenance has."""
    for host in state.hosts.values():
        if host.state is HostState.READY and host.demands:
            yield f"3: {host.id} is ready, and {host.demands} are still demanded of it"
    for visit in state.maintenance.visits.values():
        host = state.hosts[visit.unit]
        if visit.phase not in _AWAY:
            continue
        if host.allocation is not None and host.role not in ("stopping", "releasing"):
            yield f"3: {host.id} is {visit.phase.value} and allocated to {host.allocation}"
        if host.state in (HostState.READY, HostState.DRAINING):
            yield f"3: {host.id} is {host.state.value} in the middle of its visit ({visit.phase.value})"


def _operations(state: ClusterState, derived: Derived) -> Iterator[str]:
    """6: somebody acts next. And that what an operation has agrees with its state."""
    for operation in state.maintenance.operations.values():
        name, at = operation.id, operation.state
        if not operation.is_live():
            yield f"6: {name} has ended ({at.value}) and is still there"
            continue
        if operation.promised != (bool(operation.units) and at is not _S.REQUESTED):
            yield f"2: {name} is {at.value} and promised: {operation.promised}"
        if (at is not _S.REQUESTED) and (operation.line or operation.after):
            yield f"6: {name} is {at.value} and waits at the gate: {operation.line} {operation.after}"
        if at is _S.REQUESTED:
            yield from _at_the_gate(state, derived.planner, operation)
        elif at is _S.RUNNING:
            yield from _running(state, operation)
        elif operation.units:
            yield from _in_visits(state, operation)
        elif not (operation.asked_lock and not operation.locked and at is _S.ADMITTED):
            yield f"6: {name} is {at.value} and waits for no lock"
        if at in (_S.ADMITTED, _S.DRAINING) and operation.reason is None and operation.asked_lock:
            yield f"6: {name} waits for locks without a reason"
        yield from _lock(derived.planner, name, operation.asked_lock, operation.locked)


def _at_the_gate(state: ClusterState, index: PlannerIndex, operation: Operation) -> Iterator[str]:
    name = operation.id
    if operation.reason is None:
        yield f"6: {name} waits at the gate without a reason"
    if operation.locked or operation.asked_lock or operation.effect is not None:
        yield f"6: {name} is at the gate, and has locks or an effect"
    if operation.after:
        for other in operation.after:
            if other not in state.maintenance.operations or name not in index.dependents.get(other, ()):
                yield f"6: {name} waits for {other}, which will not tell it"
    elif not operation.line and f"gate/{name}" not in state.wakes:
        yield f"6: {name} waits at the gate ({operation.reason and operation.reason.token}) and nothing will call it"


def _running(state: ClusterState, operation: Operation) -> Iterator[str]:
    """An agent owes an answer by a deadline, or the reboot comes."""
    name = operation.id
    if operation.effect is not None:
        if operation.effect not in state.pending:
            yield f"6: {name} waits for {operation.effect}, which is not pending"
        if f"op/{name}" not in state.wakes:
            yield f"6: {name} runs without a deadline"
        return
    visit = state.maintenance.visits.get(operation.units[0]) if len(operation.units) == 1 else None
    if visit is None or name not in visit.unchecked:
        yield f"6: {name} runs, and nobody carries it out"
    elif not visit.needs_reboot and visit.phase not in (_P.REBOOTING, _P.CHECKING):
        yield f"6: {name} waits for a reboot that does not come"


def _in_visits(state: ClusterState, operation: Operation) -> Iterator[str]:
    """Its units are on their way out or back, and their visits know of it."""
    left = operation.left or operation.units
    for unit in left if operation.state is _S.VERIFYING else operation.units:
        visit = state.maintenance.visits.get(unit)
        if visit is None:
            yield f"6: {operation.id} is {operation.state.value}, and {unit} is on no visit"
        elif operation.state is _S.VERIFYING and operation.id not in visit.applied:
            yield f"6: {operation.id} waits for the verification of {unit}, whose visit does not know of it"
        elif operation.state is not _S.VERIFYING and operation.id not in (*visit.pending, *visit.wide):
            yield f"6: {operation.id} is {operation.state.value}, and the visit of {unit} does not know of it"


def _lock(index: PlannerIndex, name: str, asked: bool, holds: bool) -> Iterator[str]:
    if index.locks.holds(name) != holds or index.locks.waits(name) != (asked and not holds):
        yield f"{name} has asked for locks: {asked}, holds them: {holds}; the lock table says otherwise"
    elif asked and not holds and not index.locks.blockers(name):
        yield f"6: {name} waits for locks, and nobody blocks it"


def _visits(state: ClusterState, derived: Derived) -> Iterator[str]:
    """6: a visit goes on, or something that it waits for is there."""
    operations = state.maintenance.operations
    for unit, visit in state.maintenance.visits.items():
        host = state.hosts[unit]
        at = f"the visit of {unit} ({visit.phase.value})"
        names = {*visit.pending, *visit.wide, *visit.applied, *visit.unchecked}
        names |= {visit.current} if visit.current else set()
        for name in names - set(operations):
            yield f"{at} knows of {name}, which has ended"
        for name in names & set(operations):
            if unit not in operations[name].units:
                yield f"{at} knows of {name}, which does not need it"
        if visit.asked_lock and visit.phase not in _AT_WORK and not (visit.pending or visit.needs_reboot):
            yield f"6: {at} keeps others from its lock and has nothing to do"
        if visit.phase in _AT_WORK and not visit.locked:
            yield f"1: {at} works without its lock"
        yield from _lock(derived.planner, visit.lock_name, visit.asked_lock, visit.locked)
        waits = _visit_waits(state, visit, host)
        if waits:
            yield f"6: {at}: {waits}"


def _visit_waits(state: ClusterState, visit: Visit, host: Host) -> str:
    """What is missing that would carry the visit on; empty if nothing is."""
    operations, unit = state.maintenance.operations, visit.unit
    current = operations.get(visit.current) if visit.current is not None else None
    if visit.current is not None and (current is None or current.effect is None):
        return f"{visit.current} is its present operation, and nobody carries it out"
    if host.state is HostState.OUT_FAILED and visit.phase in (_P.NOTICED, _P.DRAINING, _P.RETURNING):
        return "the unit was lost"
    match visit.phase:
        case _P.NOTICED:
            return "" if f"visit/{unit}" in state.wakes else "it waits for its moment, and nothing will call it"
        case _P.DRAINING:
            leaving = host.state in (HostState.DRAINING, HostState.VERIFYING, HostState.EXPECTED)
            return "" if leaving and (visit.pending or visit.wide) else f"the host is {host.state.value}"
        case _P.OUT:
            at_work = any(operations[name].state is _S.RUNNING or operations[name].asked_lock for name in visit.wide)
            away = [other for name in visit.wide for other in operations[name].units if _is_coming(state, other)]
            waits_for_lock = visit.asked_lock and not visit.locked
            return "" if at_work or away or waits_for_lock else "nothing is under way"
        case _P.APPLYING | _P.CHECKING:
            return "" if current is not None else "nothing is under way"
        case _P.REBOOTING:
            here = visit.reboot in state.pending and f"reboot/{unit}" in state.wakes
            return "" if here else "its reboot is not pending"
        case _P.RETURNING:
            return "" if host.state is HostState.VERIFYING else f"the host is {host.state.value}"
        case _:
            return "it is closed"


def _is_coming(state: ClusterState, unit: HostId) -> bool:
    """Another unit of a wide operation is not out yet."""
    visit = state.maintenance.visits.get(unit)
    return visit is not None and visit.phase in (_P.NOTICED, _P.DRAINING, _P.RETURNING)


def _waits_for_repair(state: ClusterState, index: PlannerIndex, operation: Operation) -> bool:
    """A repair of what has failed takes nothing and waits for nobody's capacity."""
    work = index.work(operation.spec)
    failed = all(state.hosts[unit].state is HostState.OUT_FAILED for unit in operation.units)
    return isinstance(work, Kind) and work.repairs and failed


def _effects(state: ClusterState) -> Iterator[str]:
    """10: what agents are asked for is wanted still: no step of what has ended, no reboot without a visit."""
    maintenance = state.maintenance
    for pending in state.pending.values():
        effect = pending.effect
        if isinstance(effect, RunSteps):
            operation = maintenance.operations.get(effect.operation)
            if operation is None or operation.effect != effect.id:
                yield f"10: {effect.id} of {effect.operation} is pending at {effect.host}, and nobody waits for it"
        elif isinstance(effect, RebootHost):
            visit = maintenance.visits.get(effect.host)
            if visit is None or visit.reboot != effect.id:
                yield f"10: {effect.host} is to be rebooted ({effect.id}), and no visit asks for it"


def _holds(state: ClusterState) -> Iterator[str]:
    """7: maintenance holds exactly those units that it needs out."""
    for host in state.hosts.values():
        visit = state.maintenance.visits.get(host.id)
        wanted = False
        if visit is not None:
            wanted = visit.phase is _P.DRAINING or visit.phase in _AWAY
            wanted = wanted or (visit.phase is _P.RETURNING and bool(visit.pending or visit.wide))
        if wanted != (host.hold_of(MAINTENANCE) is not None):
            phase = visit.phase.value if visit is not None else "none"
            yield f"7: {host.id} is held by maintenance: {not wanted}; its visit: {phase}"


def _books(state: ClusterState) -> Iterator[str]:
    maintenance = state.maintenance
    ended = sum(count for key, count in maintenance.counts.items() if "/" not in key)
    if ended + len(maintenance.operations) != maintenance.requested:
        live = len(maintenance.operations)
        yield f"{maintenance.requested} operations were requested, {live} live and {ended} have ended"
    if sum(maintenance.counts.values()) != 2 * ended:
        yield f"ended operations by kind do not add up: {maintenance.counts}"
    names = [one.id for one in maintenance.ended]
    if len(set(names)) != len(names) or not maintenance.operations.keys().isdisjoint(names):
        yield f"an operation has ended twice, or has ended and lives: {names}"


class _Asking(Step):
    """Asks a policy without letting it change anything; keeps the wake-ups that it would ask for."""

    def __init__(self, state: ClusterState, derived: Derived) -> None:
        super().__init__(state, derived, state.now)
        self.asked: list[tuple[str, Instant]] = []

    def wake(self, key: str, at: Instant) -> None:
        self.asked.append((key, at))


def _lines(state: ClusterState, derived: Derived) -> Iterator[str]:
    """6: who stands in a line waits for something that is so, and will be called."""
    index, maintenance = derived.planner, state.maintenance
    for line, entries in index.lines.items():
        for key in entries:
            operation = maintenance.operations.get(key[2])
            if operation is None or operation.line != line or key != (*operation.key(), operation.id):
                yield f"6: {key[2]} stands in the line of {line}, where it does not belong"
        first = entries[0][2]
        kind, _, name = line.partition("/")
        if kind == "unit":
            if state.hosts[HostId(name)].state in (HostState.READY, HostState.OUT_PLANNED, HostState.DRAINING):
                yield f"6: {first} waits for {name}, which is {state.hosts[HostId(name)].state.value}"
        elif kind == "train":
            if name not in maintenance.paused:
                yield f"6: {first} waits for the train {name}, which is not paused"
        else:
            yield from _served(state, derived, line, [entry[2] for entry in entries])


def _served(state: ClusterState, derived: Derived, line: str, names: list[OperationId]) -> Iterator[str]:
    """The ledger or a job refuses the first ones; where time alone changes that, a wake-up is set."""
    for name in names:
        if _waits_for_repair(state, derived.planner, state.maintenance.operations[name]):
            yield f"6: the repair {name} waits for capacity in the line of {line}, though what it repairs has failed"
    called_at = state.wakes.get("lines/all")
    if called_at is not None and called_at <= state.now:
        return  # they are called next
    for name in names[:CONTRACTS_ASKED]:
        operation = state.maintenance.operations[name]
        if derived.planner.ledger.check(operation.units) is not None:
            if derived.planner.ledger.never(operation.units) is None:
                return
            continue
        step = _Asking(state, derived)
        if contract.refusal(step, operation) is None:
            yield f"6: {name} waits for capacity in the line of {line}, and nothing refuses it"
            return
        waits_for_time = operation.reason is not None and operation.reason.token in _PASSES
        if waits_for_time and step.asked and "lines/all" not in state.wakes:
            yield f"6: {name} waits for a job until its time has passed, and nothing will call it then"


def _indexes(state: ClusterState, index: PlannerIndex, anew: PlannerIndex) -> Iterator[str]:
    """9: what is derived is what the state alone gives."""
    if anew.lines != index.lines:
        yield f"9: lines are {index.lines}, by the state {anew.lines}"
    if anew.ledger.account() != index.ledger.account():
        yield f"2: the ledger has {index.ledger.account()}, by the state {anew.ledger.account()}"
    for unit in state.hosts:
        if anew.ledger.is_promised(unit) != index.ledger.is_promised(unit):
            yield f"2: {unit} is promised: {index.ledger.is_promised(unit)}, by the state otherwise"
    if anew.noticed != index.noticed:
        yield f"9: units that wait for their moment are {index.noticed}, by the state {anew.noticed}"
    if len(anew.locks) != len(index.locks):
        yield f"9: the lock table has {len(index.locks)} entries, by the state {len(anew.locks)}"
