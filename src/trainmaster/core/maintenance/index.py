"""What planning looks up all the time: locks, ledger, lines at the gate, and the commands of each kind of work.

All of it is derived from the state and made anew when a snapshot is restored; a test does so after every event and
compares. Nothing here decides anything.
"""

import bisect
from collections.abc import Iterable, Mapping

from trainmaster.core.base.ids import AttemptId, ClusterId, ComponentName, HostId, OperationId, RolloutId
from trainmaster.core.base.time import Duration
from trainmaster.core.effects import Observation, StepCommand
from trainmaster.core.fleet.inventory import UNIT_KINDS
from trainmaster.core.fleet.lifecycle import Host
from trainmaster.core.maintenance.book import Maintenance
from trainmaster.core.maintenance.capacity import counted, members
from trainmaster.core.maintenance.catalogue import UPGRADE, Component, Kind, Rule
from trainmaster.core.maintenance.compat import BrokenRule, broken_rules, stack_word
from trainmaster.core.maintenance.events import OperationSpec
from trainmaster.core.maintenance.ledger import Ledger, side_of
from trainmaster.core.maintenance.locks import LockTable
from trainmaster.core.maintenance.operation import Operation
from trainmaster.core.maintenance.rollout import Rollout
from trainmaster.core.maintenance.scope import ResourceIndex, Scope
from trainmaster.core.maintenance.stages import Plan
from trainmaster.core.maintenance.visit import VisitPhase

Commands = tuple[tuple[StepCommand, ...], Observation | None, Duration]
"""Steps, what is observed after them, and what all of it may take at most."""


class PlannerIndex:
    """Derived from `Maintenance` and the hosts."""

    def __init__(self, state: Maintenance, hosts: Iterable[Host]) -> None:
        self.state = state
        self.resources = ResourceIndex()
        self.locks = LockTable()
        self.controllers: dict[ClusterId, HostId] = {}
        self.lines: dict[str, list[tuple[int, int, OperationId]]] = {}
        """Operations at the gate, by book, in the order of their keys."""
        self.dependents: dict[OperationId, list[OperationId]] = {}
        self.noticed: dict[AttemptId, set[HostId]] = {}
        """Units whose visit waits for a good moment of the attempt on them."""
        self.order: dict[ComponentName, int] = {}
        self._shared: tuple[ComponentName, ...] = ()
        self._ruled: tuple[ComponentName, ...] = ()
        self._broken: dict[tuple[str | None, ...], tuple[BrokenRule, ...]] = {}
        self._by_kind: dict[str, tuple[Component, ...]] = {}
        self._plans: dict[RolloutId, Plan] = {}
        self._on_trial: dict[ComponentName, Rollout] = {}
        self._works: dict[tuple[str, str], Component | Kind] = {}
        self._commands: dict[tuple[str, ...], Commands] = {}
        self._by_unit: dict[tuple[str, ...], tuple[int, ...]] = {}
        """Keys of those that name the unit, and are made for each; with the places of the steps that do."""
        self._books: list[tuple[str, frozenset[HostId]]] = []
        self._known: list[Host] = []
        for host in sorted(hosts, key=lambda host: host.position):
            self.add(host)
            visit = state.visits.get(host.id)
            if visit is not None and visit.phase is VisitPhase.NOTICED and host.allocation is not None:
                self.noticed.setdefault(host.allocation, set()).add(host.id)
        self.recount()
        self.reread()
        self.reroll()
        self._relock()
        for operation in sorted(state.operations.values(), key=lambda one: one.sequence):
            for other in operation.after:
                self.dependents.setdefault(other, []).append(operation.id)
            if operation.line:
                self.enter_line(operation)

    def add(self, host: Host) -> None:
        """A unit that was declared now."""
        self._known.append(host)
        self.resources.add(host.spec)
        if host.spec.kind == "controller":
            self.controllers.setdefault(host.spec.cluster, host.id)

    def recount(self) -> None:
        """The capacity policy or the set of units changed: the ledger is made anew."""
        self.ledger = Ledger(self.state.capacity, (counted(host.spec) for host in self._known))
        for host in self._known:
            self.ledger.set_side(host.id, side_of(host))
        for operation in self.state.operations.values():
            self.ledger.promise(operation.promised_units())
        units = [counted(host.spec) for host in self._known]
        self._books = []
        for book in self.state.capacity.books:
            counts = members(book)
            self._books.append((book.name, frozenset(unit.id for unit in units if counts(unit))))

    def reread(self) -> None:
        """The catalogue changed."""
        catalogue = self.state.catalogue
        self._works = {(UPGRADE, component.name): component for component in catalogue.components}
        self._works |= {(kind.name, ""): kind for kind in catalogue.kinds if kind.name != UPGRADE}
        self._commands, self._by_unit = {}, {}
        self._broken = {}
        self._shared = catalogue.job_consistent()
        self._ruled = tuple(sorted({pin for rule in catalogue.rules for pin in _pins(rule)}))
        for kind in UNIT_KINDS:
            found = (self.component(name) for name in catalogue.sequence())
            self._by_kind[kind] = tuple(one for one in found if kind in one.units and one.scope == "host")
        self.order = {name: place for place, name in enumerate(catalogue.sequence())}

    def is_shared(self, component: ComponentName) -> bool:
        """The hosts of an attempt must agree in it."""
        return component in self._shared

    def stack_of(self, versions: Mapping[ComponentName, str]) -> str:
        """What the hosts of an attempt must agree in, as one word."""
        return stack_word(self._shared, versions)

    def broken_rules(self, versions: Mapping[ComponentName, str]) -> tuple[BrokenRule, ...]:
        """Rules of the catalogue that these versions break; a version that nobody has seen breaks none."""
        key = tuple(map(versions.get, self._ruled))
        found = self._broken.get(key)
        if found is None:
            known = {name: version for name, version in zip(self._ruled, key, strict=True) if version}
            broken = broken_rules(self.state.catalogue, known)
            found = self._broken[key] = tuple(one for one in broken if one.found)
        return found

    def reroll(self) -> None:
        """A rollout was declared or has ended: the first one of a component that has not ended counts."""
        self._on_trial = {}
        for rollout in sorted(self.state.rollouts.values(), key=lambda one: (one.began_at, one.id)):
            if rollout.is_live():
                self._on_trial.setdefault(rollout.spec.component, rollout)

    def rollout_of(self, component: ComponentName) -> Rollout | None:
        """The rollout of a component that has not ended."""
        return self._on_trial.get(component)

    def plan_of(self, rollout: Rollout) -> Plan:
        plan = self._plans.get(rollout.id)
        if plan is None:
            plan = self._plans[rollout.id] = Plan(rollout.id, rollout.spec, rollout.seed)
        return plan

    def component(self, name: ComponentName) -> Component:
        work = self._works[UPGRADE, name]
        assert isinstance(work, Component), name
        return work

    def components_for(self, kind: str) -> tuple[Component, ...]:
        """Components that trains may bring to units of a kind, in the order in which they are applied."""
        return self._by_kind.get(kind, ())

    def _relock(self) -> None:
        """Holders first, then who waits, in the order of their keys: they wait for holders and for one another."""
        operations, visits = self.state.operations.values(), self.state.visits.values()
        for operation in operations:
            if operation.locked:
                self.locks.hold(operation.id, operation.key(), operation.scope)
        for visit in visits:
            if visit.locked:
                self.locks.hold(visit.lock_name, visit.key, self.unit_scope(visit.unit))
        waits = [(one.key(), one.id, one.scope) for one in operations if one.asked_lock and not one.locked]
        waits += [
            (visit.key, visit.lock_name, self.unit_scope(visit.unit))  # type: ignore[misc]
            for visit in visits
            if visit.asked_lock and not visit.locked
        ]
        for key, name, scope in sorted(waits, key=lambda wait: wait[:2]):
            assert not self.locks.request(name, key, scope), name

    def unit_scope(self, unit: HostId) -> Scope:
        scope = self.resources.resolve((f"host/{unit}",))
        assert isinstance(scope, Scope), scope
        return scope

    def commands(self, operation: Operation, leg: str) -> Commands:
        """What a leg of an operation runs, with its words filled in, and what is observed after it. What is the same
        for many units is made once."""
        spec = operation.spec
        key = (spec.kind, spec.component, spec.version, operation.previous, leg)
        found = self._commands.get(key) or self._read(operation, leg, key)
        places = self._by_unit.get(key)
        if places is None:
            return found
        steps, unit = list(found[0]), operation.executor
        for place in places:
            step = steps[place]
            command = tuple([word.replace("{unit}", unit) for word in step.command])
            steps[place] = StepCommand(name=step.name, command=command, deadline=step.deadline)
        return tuple(steps), found[1], found[2]

    def _read(self, operation: Operation, leg: str, key: tuple[str, ...]) -> Commands:
        work = self.work(operation.spec)
        assert work is not None, operation.spec
        steps, observe = _commands(work, operation.spec, operation.previous, leg)
        last = observe.deadline if observe is not None else 0
        found = self._commands[key] = steps, observe, Duration(sum(step.deadline for step in steps) + last)
        places = tuple(place for place, step in enumerate(steps) if any("{unit}" in word for word in step.command))
        if places:
            self._by_unit[key] = places
        return found

    def work(self, spec: OperationSpec) -> Component | Kind | None:
        return self._works.get((spec.kind, spec.component if spec.kind == UPGRADE else ""))

    def book_of(self, units: Iterable[HostId]) -> str:
        """The book in whose line an operation on these units stands: the first one that counts one of them."""
        for name, counted_units in self._books:
            if not counted_units.isdisjoint(units):
                return name
        return "*"

    def enter_line(self, operation: Operation) -> None:
        line = self.lines.setdefault(operation.line, [])
        bisect.insort(line, (operation.aged_at, operation.sequence, operation.id))

    def leave_line(self, operation: Operation) -> None:
        line = self.lines[operation.line]
        entry = (operation.aged_at, operation.sequence, operation.id)
        place = bisect.bisect_left(line, entry)
        assert line[place] == entry, operation.id
        del line[place]
        if not line:
            del self.lines[operation.line]


def _pins(rule: Rule) -> tuple[ComponentName, ...]:
    only = (rule.only_with,) if rule.only_with else ()
    return (rule.when.component, rule.needs.component, *only)


def _commands(
    work: Component | Kind, spec: OperationSpec, previous: str, leg: str
) -> tuple[tuple[StepCommand, ...], Observation | None]:
    by_leg = {"apply": work.steps, "check": work.after_reboot, "undo": work.undo}
    words = {"component": spec.component, "version": spec.version, "previous": previous}
    steps = tuple(
        StepCommand(name=step.name, command=_filled(step.command, **words), deadline=step.deadline)
        for step in by_leg[leg]
    )
    after_boot = work.disturbs == "reboot"
    asked = previous if leg == "undo" else spec.version
    if not work.observe or (leg == "apply" and after_boot) or not asked:
        return steps, None
    observation = Observation(
        component=spec.component,
        command=_filled(work.observe, **words),
        deadline=work.observe_deadline,
        wanted="" if leg == "undo" else spec.version,  # an undo is judged by its steps, and what is there now is noted
    )
    return steps, observation


def _filled(command: tuple[str, ...], **words: str) -> tuple[str, ...]:
    """Replaces what is known; the rest stays for who knows it (`{unit}` here, `{python}` at the agent)."""
    for name, value in words.items():
        command = tuple(word.replace("{" + name + "}", value) for word in command)
    return command
