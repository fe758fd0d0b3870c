"""What can be seen only where two states meet: a watcher that looks before and after every event.

Some rules are about a moment. Planned work may take a host only while guarantees and buffers allow it, though failures
may spend them a second later; a host is ready because of the verification before; a hold goes because its owner lifted
it. The watcher keeps what it needs of the past in books of its own: which verification each unit owes since when, how
operations ended, who was cancelled. It reads the state and changes nothing.

It counts units by the states of hosts, not by the ledger, and applies the policy's arithmetic to its own counts. A unit
that fails in the very event in which another is taken counts as neither taken nor failed, and as in service if it was,
since the order within an event is not seen; so the watcher is never stricter than the rule.
"""

from collections.abc import Iterable, Iterator

from trainmaster.core.base.ids import EffectId, HostId, OperationId
from trainmaster.core.effects import AnyEffect, RebootHost, RunSteps, VerifyHost
from trainmaster.core.events import AnyEvent, DrainRequested, EffectEnded, OperationCancelled, ResumeRequested
from trainmaster.core.fleet.lifecycle import Host, HostState
from trainmaster.core.health.conduct import HEALTH
from trainmaster.core.maintenance import rollout as rollouts
from trainmaster.core.maintenance.capacity import counted, members
from trainmaster.core.maintenance.catalogue import Component, Kind
from trainmaster.core.maintenance.ledger import Side, side_of
from trainmaster.core.maintenance.operation import OperationState
from trainmaster.core.maintenance.visit import MAINTENANCE, VisitPhase
from trainmaster.core.state import ClusterState, Derived

_FREE, _PROMISED, _LEAVING, _PLANNED, _FAILED, _ABSENT = "free", "promised", "leaving", "planned", "failed", "absent"
_COUNTS_AS = {
    Side.IN_SERVICE: _FREE,
    Side.LEAVING: _LEAVING,
    Side.OUT_PLANNED: _PLANNED,
    Side.OUT_FAILED: _FAILED,
    Side.ABSENT: _ABSENT,
}

_LOSABLE = (_FREE, _PROMISED, _LEAVING, _PLANNED)


class Watcher:
    """Call `before` ahead of every event and `after` behind it."""

    def __init__(self) -> None:
        self._owed: dict[HostId, dict[str, int]] = {}
        """Verification tasks that work on a unit demands, with the event at which they were demanded last."""
        self._asked: dict[EffectId, tuple[int, frozenset[str]]] = {}
        """Verifications that were asked for: at which event, and what."""
        self._began: dict[OperationId, int] = {}
        self._booted: dict[HostId, int] = {}
        self._outcomes: dict[OperationId, OperationState] = {}
        self._cancelled: set[OperationId] = set()
        self._promised: dict[HostId, int] = {}
        self._classes: dict[HostId, str] = {}
        self._states: dict[HostId, HostState] = {}
        self._holds: dict[HostId, frozenset[str]] = {}
        self._noticed: frozenset[HostId] = frozenset()
        self._wanted: dict[HostId, tuple[OperationId, ...]] = {}
        self._ended = 0

    def before(self, state: ClusterState) -> None:
        self._promised = _promised(state)
        self._classes = {name: _class_of(host, name in self._promised) for name, host in state.hosts.items()}
        self._states = {name: host.state for name, host in state.hosts.items()}
        self._holds = {name: frozenset(hold.owner for hold in host.holds) for name, host in state.hosts.items()}
        visits = state.maintenance.visits.values()
        self._noticed = frozenset(visit.unit for visit in visits if visit.phase is VisitPhase.NOTICED)
        self._wanted = {visit.unit: (*visit.pending, *visit.wide) for visit in visits}
        self._ended = _ended(state)

    def after(
        self, state: ClusterState, derived: Derived, event: AnyEvent, effects: Iterable[AnyEffect]
    ) -> Iterator[str]:
        """Sentences about what does not hold."""
        effects = tuple(effects)
        if isinstance(event, OperationCancelled):
            self._cancelled.add(event.operation)
        for ended in state.maintenance.ended[len(state.maintenance.ended) - (_ended(state) - self._ended) :]:
            self._outcomes[ended.id] = ended.state
        yield from self._verified(state, event)
        yield from self._lifted(state, event)
        yield from self._taken(state, event)
        for effect in effects:
            if isinstance(effect, RunSteps):
                yield from self._steps(state, derived, effect)
            elif isinstance(effect, RebootHost):
                yield from self._reboot(state, derived, effect)
            elif isinstance(effect, VerifyHost):
                self._asked[effect.id] = (state.index, frozenset(effect.tasks))

    def _verified(self, state: ClusterState, event: AnyEvent) -> Iterator[str]:
        """3: what work on a unit demanded was verified after that work, before the unit is ready."""
        if isinstance(event, EffectEnded) and event.effect in self._asked:
            asked_at, tasks = self._asked.pop(event.effect)
            owed = self._owed.get(event.host, {})
            if event.outcome == "done":
                self._owed[event.host] = {
                    task: since for task, since in owed.items() if task not in tasks or since > asked_at
                }
        for name, host in state.hosts.items():
            was = self._states.get(name)
            if host.state is not HostState.READY or was in (HostState.READY, HostState.DRAINING):
                continue
            if self._owed.get(name):
                yield f"3: {name} is ready, and {sorted(self._owed[name])} was not verified since its last work"
            still = [one for one in self._wanted.get(name, ()) if one in state.maintenance.operations]
            if any(state.maintenance.operations[one].state is not OperationState.REQUESTED for one in still):
                yield f"3: {name} went back to production, and {still} still needs it out"

    def _lifted(self, state: ClusterState, event: AnyEvent) -> Iterator[str]:
        """7: a hold is lifted by its owner alone."""
        for name, owners in self._holds.items():
            gone = owners - {hold.owner for hold in state.hosts[name].holds} - {MAINTENANCE, HEALTH}
            owner = {event.by} if isinstance(event, ResumeRequested) and name in event.hosts else set()
            if gone - owner:
                yield f"7: the holds of {sorted(gone - owner)} on {name} were lifted by {type(event).__name__}"

    def _taken(self, state: ClusterState, event: AnyEvent) -> Iterator[str]:
        """2: what planned work took in this event, it might take."""
        promised = _promised(state)
        now = {name: _class_of(host, name in promised) for name, host in state.hosts.items()}
        taken = {name for name in promised if self._is_taken(name, now[name])}
        drained_by_person = set(event.hosts) if isinstance(event, DrainRequested) else set()
        taken -= drained_by_person
        started = {
            name
            for name in self._noticed - drained_by_person
            if self._classes[name] in (_FREE, _PROMISED)
            and now[name] in (_LEAVING, _PLANNED)
            and name in state.maintenance.visits
        }
        lost = {name for name, kind in now.items() if kind == _FAILED and self._classes.get(name) in _LOSABLE}
        # One that came back and was found bad in the same event was in service in between.
        lost |= {name for name, host in state.hosts.items() if host.hold_of(HEALTH) and HEALTH not in self._holds[name]}
        yield from _exceeded(state, now, lost, taken, (_PROMISED, _LEAVING), "was admitted on")
        yield from _exceeded(state, now, lost, started, (_LEAVING,), "was begun on")

    def _is_taken(self, unit: HostId, now: str) -> bool:
        if unit in self._promised or now == _FAILED:
            return False
        before = self._classes.get(unit, _ABSENT)
        return before == _FREE or (before in (_FAILED, _ABSENT, _PLANNED) and now in (_PROMISED, _LEAVING))

    def _steps(self, state: ClusterState, derived: Derived, effect: RunSteps) -> Iterator[str]:
        operation = state.maintenance.operations.get(effect.operation)
        if operation is None or effect.id not in state.pending:
            yield f"10: {effect.id} of {effect.operation} goes out, and nobody waits for it"
            return
        work = derived.planner.work(operation.spec)
        assert work is not None, operation.spec
        for unit in operation.units:
            self._owed.setdefault(unit, {}).update(dict.fromkeys(work.verify, state.index))
        if effect.leg != "apply":
            return
        if operation.rollout is not None:
            rollout = state.maintenance.rollouts[operation.rollout]
            plan = derived.planner.plan_of(rollout)
            yield from rollouts.rollout_broken(rollout, plan, (effect.host,))
            if not rollout.is_live() and rollout.state is not rollouts.RolloutState.COMPLETE:
                yield f"5: {effect.host} gets the version of {rollout.id}, which is {rollout.state.value}"
        self._began.setdefault(operation.id, state.index)
        if operation.id in self._cancelled:
            yield f"6: {operation.id} was cancelled, and goes on with its steps"
        for other in operation.spec.after:
            if self._outcomes.get(other, OperationState.DONE) is not OperationState.DONE:
                yield f"6: {operation.id} begins, though {other} before it ended as {self._outcomes[other].value}"

    def _reboot(self, state: ClusterState, derived: Derived, effect: RebootHost) -> Iterator[str]:
        """A reboot is for an operation that was carried out since the last one and is still wanted."""
        visit = state.maintenance.visits.get(effect.host)
        wanted = []
        for name in visit.applied if visit is not None else ():
            operation = state.maintenance.operations[name]
            wants = _reboots(derived.planner.work(operation.spec)) and operation.ends_as is None
            if wants and self._began.get(name, 0) > self._booted.get(effect.host, -1):
                wanted.append(name)
        if not wanted:
            yield f"6: {effect.host} is rebooted ({effect.why}), and no operation wants it any more"
        self._booted[effect.host] = state.index


def _reboots(work: Component | Kind | None) -> bool:
    return work is not None and work.disturbs == "reboot"


def _ended(state: ClusterState) -> int:
    return sum(count for key, count in state.maintenance.counts.items() if "/" not in key)


def _promised(state: ClusterState) -> dict[HostId, int]:
    """Units that admitted operations were promised, with how many."""
    found: dict[HostId, int] = {}
    for operation in state.maintenance.operations.values():
        if operation.state is OperationState.REQUESTED:
            continue
        carried_out = operation.state is OperationState.VERIFYING and operation.is_wide()
        for unit in operation.left if carried_out else operation.units:
            found[unit] = found.get(unit, 0) + 1
    return found


def _class_of(host: Host, promised: bool) -> str:
    found = _COUNTS_AS[side_of(host)]
    return _PROMISED if found == _FREE and promised else found


def _exceeded(
    state: ClusterState,
    classes: dict[HostId, str],
    lost: set[HostId],
    units: set[HostId],
    taking: tuple[str, ...],
    what: str,
) -> Iterator[str]:
    """Limits that do not hold where these units were taken. `lost`: failed in the same event."""
    if not units:
        return
    policy = state.maintenance.capacity
    specs = {name: counted(host.spec) for name, host in state.hosts.items()}
    told = f"planned work {what} {', '.join(sorted(units))}"
    for book in policy.books:
        counts = members(book)
        inside = [name for name, spec in specs.items() if counts(spec) and classes[name] != _ABSENT]
        if units.isdisjoint(inside):
            continue
        total = len(inside)
        taken = sum(1 for name in inside if classes[name] in (*taking, _PLANNED))
        failed = sum(1 for name in inside if classes[name] == _FAILED and name not in lost)
        left = sum(1 for name in inside if classes[name] in (_FREE, _PROMISED) and classes[name] not in taking)
        left += sum(1 for name in inside if name in lost)
        least = sum(one.least.at_least(total) for one in policy.guarantees if one.book == book.name)
        if left < least:
            yield f"2: {told}, which leaves {left} units of {book.name}; {least} are guaranteed"
        if taken > book.buffers.maintenance.at_most(total):
            yield f"2: {told}, so {taken} of {book.name} are taken, more than the maintenance buffer"
        if failed > book.buffers.failure.at_most(total):
            yield f"2: {told}, while {failed} of {book.name} have failed, more than the failure buffer"
    for cap in policy.caps:
        places = {(place, specs[name].kind) for name in units for place in specs[name].resources}
        for place, kind in sorted(places):
            if place.partition("/")[0] != cap.per:
                continue
            inside = [name for name, spec in specs.items() if place in spec.resources and spec.kind == kind]
            present = [name for name in inside if classes[name] != _ABSENT]
            taken = sum(1 for name in present if classes[name] in (*taking, _PLANNED))
            if taken > cap.most.at_most(len(present)):
                yield f"2: {told}, so {taken} units of kind {kind} are taken at {place}, more than its cap"
