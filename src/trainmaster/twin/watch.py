"""What must hold in a simulated fleet, looked at by somebody who trusts neither the planner's locks nor its ledger.

After every event, what the event can have broken, from books of the watcher's own:
1. No two operations carry out steps on one unit at once, and none does on a unit that boots.
3. A host becomes ready only through a verification that had all tasks which the work on it demands.
6. A wait has a reason: an operation that was just requested runs, or says on what it waits.

Every `every` events the whole state: everything that `core.invariants` knows; the ledger, counted anew from hosts and
operations; no operation older than `AGE_BOUND`; no hold of the planner without a visit, and nobody out whom nobody
holds. Looking at everything after every event would cost a hundred times the run itself, and what it would find a
little later is found too.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from trainmaster.core.base.ids import HostId, OperationId
from trainmaster.core.base.time import Duration, Instant
from trainmaster.core.effects import AnyEffect, RunSteps, VerifyHost
from trainmaster.core.events import AnyEvent, EffectEnded, OperationRequested
from trainmaster.core.fleet.lifecycle import VERIFICATION_TASKS, HostState
from trainmaster.core.invariants import broken
from trainmaster.core.maintenance.capacity import members
from trainmaster.core.maintenance.ledger import Side, side_of
from trainmaster.core.maintenance.operation import OperationState
from trainmaster.core.maintenance.visit import MAINTENANCE
from trainmaster.twin.report import Clocks
from trainmaster.twin.scenario import DAY

if TYPE_CHECKING:
    from trainmaster.twin.world import World

AGE_BOUND: Final = Duration(30 * DAY)
"""Repairs take weeks, and what waits for the unit waits as long."""
KEPT: Final = 100
"""Broken ones that are told in full; the others are counted."""


class Watcher:
    """Give `watch` to the world. `found` has what is broken, as sentences."""

    def __init__(self, world: "World", every: int, clocks: Clocks) -> None:
        assert every > 0, every
        self.world, self.every, self._clocks = world, every, clocks
        self.found: list[str] = []
        self.count = 0
        """Broken invariants, told or not."""
        self.events = self.whole = 0
        self.whole_s = 0.0
        """What looking at the whole state took."""
        self._busy: dict[HostId, OperationId] = {}
        """Who was last seen to begin steps on a unit."""
        self._demands: dict[HostId, set[str]] = {}
        """Tasks that the work on a unit demands and that no verification has passed yet."""
        self._works = world.works

    def watch(self, event: AnyEvent, effects: tuple[AnyEffect, ...]) -> None:
        self.events += 1
        kind = type(event)
        if kind is OperationRequested:
            self._requested()
        for effect in effects:
            if type(effect) is RunSteps:
                self._steps(effect)
            elif type(effect) is VerifyHost:
                self._verified_by(effect)
        if kind is EffectEnded:
            self._may_be_ready(event.host)  # type: ignore[union-attr]
        if self.events % self.every == 0:
            self.look()

    def _requested(self) -> None:
        maintenance = self.world.engine.state.maintenance
        operation = maintenance.operations.get(OperationId(f"op-{maintenance.requested}"))
        waits = operation is not None and operation.state in (OperationState.REQUESTED, OperationState.ADMITTED)
        if waits and operation is not None and operation.reason is None:
            self._break(f"6: {operation.id} is {operation.state.value} and says not why")

    def _steps(self, effect: RunSteps) -> None:
        state, busy = self.world.engine.state, self._busy
        operations = state.maintenance.operations
        operation = operations[effect.operation]
        units = operation.units or self.world.units_of(operation.spec.scope)
        work = self._works[operation.spec.kind, operation.spec.component]
        for unit in units:
            before = busy.get(unit)
            if before is not None and before != operation.id:
                other = operations.get(before)
                if other is not None and other.state is OperationState.RUNNING and other.effect is not None:
                    self._break(f"1: {operation.id} and {other.id} work on {unit} at once")
            busy[unit] = operation.id
            visit = state.maintenance.visits.get(unit)
            if visit is not None and visit.reboot is not None:
                self._break(f"1: {operation.id} works on {unit}, which boots")
            if work.verify and operation.units:
                self._demands.setdefault(unit, set()).update(work.verify)

    def _verified_by(self, effect: VerifyHost) -> None:
        demands = self._demands.get(effect.host)
        if demands is not None and demands.issubset(effect.tasks):
            self._demands[effect.host] = set()
        if not set(VERIFICATION_TASKS).issubset(effect.tasks):
            self._break(f"3: {effect.host} is verified by {effect.tasks} only")

    def _may_be_ready(self, name: HostId) -> None:
        host = self.world.engine.state.hosts[name]
        if host.state is HostState.READY and (not host.verified or self._demands.get(name)):
            self._break(f"3: {name} is ready without {self._demands.get(name) or 'a verification'}")

    def look(self) -> None:
        """Looks at the whole state."""
        start = self._clocks.processor_ns()
        engine = self.world.engine
        for sentence in broken(engine.state, engine._derived):
            self._break(sentence)
        for sentence in (*_ledger(self.world), *_ages(self.world), *_holds(self.world)):
            self._break(sentence)
        self.whole += 1
        self.whole_s += (self._clocks.processor_ns() - start) / 1e9

    def _break(self, sentence: str) -> None:
        self.count += 1
        if len(self.found) < KEPT:
            self.found.append(f"event {self.world.engine.index}: {sentence}")


def _ledger(world: "World") -> Iterator[str]:
    """The books, counted from the hosts and the operations alone."""
    engine = world.engine
    maintenance, hosts = engine.state.maintenance, engine.state.hosts
    promised = {unit for one in maintenance.operations.values() for unit in one.promised_units()}
    account = engine._derived.planner.ledger.account()
    sides = {name: side_of(host) for name, host in hosts.items()}
    for book, told in zip(maintenance.capacity.books, account.books, strict=True):
        counts = members(book)
        names = [unit.id for unit in world.counted if counts(unit)]
        failed = sum(sides[name] is Side.OUT_FAILED for name in names)
        planned = sum(sides[name] is Side.OUT_PLANNED for name in names)
        leaving = [sides[name] for name in names if sides[name] in (Side.IN_SERVICE, Side.LEAVING)]
        given = sum(
            sides[name] is Side.LEAVING or (sides[name] is Side.IN_SERVICE and name in promised) for name in names
        )
        mine = (planned, failed, len(leaving), given)
        theirs = (told.out_planned, told.out_failed, told.in_service, told.promised)
        if mine != theirs:
            yield f"2: {book.name} is {mine} (planned, failed, in service, promised), the ledger says {theirs}"


def _ages(world: "World") -> Iterator[str]:
    bound = Instant(world.kernel.now - AGE_BOUND)
    for operation in world.engine.state.maintenance.operations.values():
        if operation.requested_at < bound:
            yield f"6: {operation.id} is {operation.state.value} since {operation.requested_at}: {operation.reason}"


def _holds(world: "World") -> Iterator[str]:
    visits = world.engine.state.maintenance.visits
    for host in world.engine.state.hosts.values():
        if host.holds and host.hold_of(MAINTENANCE) is not None and host.id not in visits:
            yield f"7: {host.id} is held for maintenance, and no visit is open"
        if host.state is HostState.OUT_PLANNED and not host.holds:
            yield f"6: {host.id} is out for planned work, and nobody holds it"
