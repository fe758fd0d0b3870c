"""The simulated side of the engine: hosts that carry out what it asks, at simulated times.

`World.submit` is the only door to the engine: it applies an event, looks at what the engine wants done, and sets timers
for the answers. The engine is the one that runs live; it knows nothing of the twin. What is left out is what would not
change a decision: heartbeats, training steps, the closing and opening of connections within a reboot.

A world has hosts (here), gangs (`gangs.py`), and sources of requests (`requests.py`). Each draws from streams of its
own, by purpose and entity, so a further job, or another operation, does not move a failure.
"""

from collections.abc import Callable, Collection
from typing import Any, Final

from trainmaster.core.base.ids import BootId, ComponentName, HostId, OperationId, Owner, SessionId
from trainmaster.core.base.seed import Stream
from trainmaster.core.base.time import MILLISECOND, MINUTE, Duration, Instant
from trainmaster.core.effects import AnyEffect, RebootHost, RunSteps, VerifyHost
from trainmaster.core.engine import Engine
from trainmaster.core.events import (
    AgentDisconnected,
    AgentRegistered,
    AnyEvent,
    CapacityDeclared,
    CatalogueDeclared,
    EffectEnded,
    FleetDeclared,
    LeaseTaken,
    OperationRequested,
    TimePassed,
)
from trainmaster.core.fleet.inventory import UnitKind
from trainmaster.core.fleet.lifecycle import HostState
from trainmaster.core.maintenance.capacity import counted
from trainmaster.core.maintenance.catalogue import Component, Kind, Priority, Spread
from trainmaster.core.maintenance.events import OperationSpec
from trainmaster.core.maintenance.scope import ResourceIndex, Scope
from trainmaster.core.recovery.events import Outcome
from trainmaster.twin.chance import REPAIR, Lognormal, Poisson, Purpose
from trainmaster.twin.gangs import Gangs
from trainmaster.twin.inputs import Inputs
from trainmaster.twin.kernel import Kernel
from trainmaster.twin.releases import Releases
from trainmaster.twin.scenario import START, Scenario
from trainmaster.twin.versions import Carried

WORLD: Final = Owner("policy:twin")
NEVER: Final = Instant(1 << 62)
NO_NUMBERS: Final[dict[str, int | float | str]] = {}


FAILURE_DRAWS: Final = 2
"""Numbers that a failure takes from its stream: what mends it, and how long it takes."""


class Unit:
    """A simulated unit."""

    __slots__ = ("boot", "id", "kind", "repaired", "stream", "up")

    def __init__(self, name: HostId, kind: UnitKind, stream: Stream) -> None:
        self.id, self.kind = name, kind
        self.up = False
        self.boot = 0
        self.repaired = False
        """It comes back from a repair that needed hands."""
        self.stream = stream


class World:
    """One history. `watch(event, effects)` is called after every event."""

    def __init__(
        self,
        scenario: Scenario,
        watch: Callable[[AnyEvent, tuple[AnyEffect, ...]], None] | None = None,
        engine: Engine | None = None,
        began: Instant = START,
        inputs: Inputs | None = None,
        hosts: Collection[HostId] | None = None,
    ) -> None:
        """`inputs` names what comes in, and may let in a part of it; `hosts`: only these are there."""
        self.scenario, self.began, self.inputs = scenario, began, inputs
        self.specs = tuple(spec for spec in scenario.fleet.hosts if hosts is None or spec.id in hosts)
        self.kernel = Kernel(began)
        self.engine = engine or Engine()
        self.watch = watch
        self.handle: Callable[[AnyEvent], tuple[AnyEffect, ...]] = self.engine.handle
        """May be replaced by one that measures."""
        self.units: dict[HostId, Unit] = {}
        self.down: set[HostId] = set()
        """Units that are not up."""
        self.counts: dict[str, int] = {"failures": 0, "reboots": 0, "repairs": 0, "lost-in-reboot": 0}
        self.requested_by: dict[str, int] = {}
        self._armed = NEVER
        self._laws: dict[Spread, Lognormal] = {}
        self.works = _works(scenario)
        self._durations = {name: self.law(work.duration) for name, work in self.works.items()}
        self._units: dict[tuple[str, ...], tuple[HostId, ...]] = {}
        """By resources: what was asked of the index, which does not change."""
        self.carried = Carried(self)
        self.releases = Releases(self)
        self._repairs = [kind for kind in scenario.catalogue.kinds if _repairs_hosts(kind)]
        self.counted = tuple(counted(host) for host in self.specs)
        self._index = ResourceIndex()
        for host in self.specs:
            self._index.add(host)
        self._boot, self._verify = self.law(scenario.failures.boot), self.law(scenario.failures.verify)
        self._steps_chance = Purpose(scenario.seed, "steps")
        self._failure_streams: dict[HostId, Stream] = {}
        self.gangs = Gangs(self)
        self._answers: dict[type, Callable[[Any], None]] = {
            VerifyHost: self._verify_host,
            RunSteps: self._run_steps,
            RebootHost: self._reboot,
        }

    # --- time and events

    def start(self) -> None:
        """Declares everything and powers all units on."""
        now, scenario = self.kernel.now, self.scenario
        self.submit(LeaseTaken(at=now, lease=1, by=WORLD))
        self.submit(CatalogueDeclared(at=now, catalogue=scenario.catalogue, by=WORLD))
        self.submit(FleetDeclared(at=now, hosts=self.specs, by=WORLD))
        self.submit(CapacityDeclared(at=now, capacity=scenario.capacity, by=WORLD))
        failures = Purpose(scenario.seed, "failures")
        for place, spec in enumerate(scenario.fleet.hosts):
            self.down.add(spec.id)
            unit = self.units[spec.id] = Unit(spec.id, spec.kind, self._steps_chance.stream(spec.id))
            if spec.id in self.engine.state.hosts:
                self.kernel.after(place * MILLISECOND, self._power_on, unit)
            if spec.kind == "compute" and scenario.failures.per_thousand_host_days > 0:
                self._failure_streams[spec.id] = failures.stream(spec.id)
                self._plan_failure(unit)
        self.gangs.start()
        self.releases.start()

    def submit(self, event: AnyEvent) -> None:
        effects = self.handle(event)
        answers, others = self._answers, False
        for effect in effects:
            answer = answers.get(type(effect))
            if answer is not None:
                answer(effect)
            else:
                others = True
        if others:
            self.gangs.deliver(effects)
        elif self.engine._derived.planner.noticed:
            self.gangs.tell_checkpoints()
        if self.watch is not None:
            self.watch(event, effects)
        due = self.engine.next_wake()
        if due is not None and due < self._armed:
            self._armed = max(due, self.kernel.now)
            self.kernel.at(self._armed, self._wake, self._armed, 1)

    def _wake(self, armed: Instant) -> None:
        if armed != self._armed:
            return
        self._armed = NEVER
        due = self.engine.next_wake()
        if due is not None and due <= self.kernel.now:
            self.submit(TimePassed(at=self.kernel.now))
        elif due is not None:
            self._armed = due
            self.kernel.at(due, self._wake, due, 1)

    def law(self, spread: Spread) -> Lognormal:
        law = self._laws.get(spread)
        if law is None:
            law = Lognormal(median=spread.median, p90=spread.p90, limit=spread.limit)
            self._laws[spread] = law
        return law

    def units_of(self, scope: tuple[str, ...]) -> tuple[HostId, ...]:
        """The units of an operation's resources, by an index of the world's own."""
        units = self._units.get(scope)
        if units is None:
            found = self._index.resolve(scope)
            assert isinstance(found, Scope), scope
            units = self._units[scope] = self._index.scope_units(found)
        return units

    def knows(self, scope: tuple[str, ...]) -> bool:
        """Whether the resources are there."""
        return isinstance(self._index.resolve(scope), Scope)

    def session_of(self, unit: Unit) -> SessionId:
        """Of the agent of this boot."""
        return SessionId(f"s{unit.boot}")

    def boot_of(self, unit: Unit) -> BootId:
        return BootId(f"b{unit.boot}")

    # --- what agents do

    def answer(self, effect: AnyEffect, outcome: Outcome = "done", detail: str = "") -> None:
        self.submit(
            EffectEnded(
                at=self.kernel.now,
                host=effect.host,
                effect=effect.id,
                outcome=outcome,
                detail=detail,
                numbers=NO_NUMBERS,
            )
        )

    def _verify_host(self, effect: VerifyHost) -> None:
        unit = self.units[effect.host]
        self.kernel.after(self._verify.draw(unit.stream), self._verified, (effect, unit.boot))

    def _verified(self, told: tuple[VerifyHost, int]) -> None:
        effect, boot = told
        unit = self.units[effect.host]
        if not unit.up or unit.boot != boot:
            return
        if self.carried.comes_back(unit):
            self.answer(effect)
            return
        self.counts["lost-in-upgrade"] = self.counts.get("lost-in-upgrade", 0) + 1
        unit.up = False
        self.submit(AgentDisconnected(at=self.kernel.now, host=unit.id, session=SessionId(f"s{unit.boot}")))
        self._to_repair(unit)

    def _run_steps(self, effect: RunSteps) -> None:
        unit = self.units[effect.host]
        operation = self.engine.state.maintenance.operations[effect.operation]
        spec, stream, fails = operation.spec, unit.stream, False
        took = self._durations[spec.kind, spec.component].draw(stream)
        if effect.leg == "apply":
            fails = self._goes_wrong("s", operation.id, stream, self.scenario.operations.fails)
        else:
            took = Duration(took // 8)
        limit = 0
        for step in effect.steps:
            limit += step.deadline
        if took > limit:  # a command is killed at its deadline
            took, fails = Duration(limit), fails or limit > 0
        what = None
        if not fails and effect.leg != "check" and spec.component in self.carried.released:
            what = (spec.component, spec.version if effect.leg == "apply" else operation.previous)
        self.kernel.after(took, self._steps_ended, (effect, unit, unit.boot, fails, what))

    def _steps_ended(self, told: tuple[RunSteps, Unit, int, bool, tuple[ComponentName, str] | None]) -> None:
        effect, unit, boot, fails, what = told
        if not unit.up or unit.boot != boot:
            return
        if what is not None:
            self.carried.installed(unit, *what)
        observe = effect.observe
        numbers = NO_NUMBERS
        if observe is not None and not fails:
            numbers = {"version": observe.wanted}
        self.submit(
            EffectEnded(
                at=self.kernel.now,
                host=unit.id,
                effect=effect.id,
                outcome="failed" if fails else "done",
                detail="the step ended with 1" if fails else "",
                numbers=numbers,
            )
        )

    def _reboot(self, effect: RebootHost) -> None:
        unit = self.units[effect.host]
        unit.up = False
        self.down.add(unit.id)
        self.counts["reboots"] += 1
        returns = self.carried.comes_back(unit)
        if self._goes_wrong("b", effect.operation, unit.stream, self.scenario.operations.boot_fails) or not returns:
            self.counts["lost-in-reboot"] += 1
            self._to_repair(unit)
            return
        self.kernel.after(self._boot.draw(unit.stream), self._power_on, unit)

    def _goes_wrong(self, letter: str, operation: OperationId, stream: Stream, chance: float) -> bool:
        drawn = stream.uniform() < chance
        return drawn if self.inputs is None else self.inputs.fails(letter, operation, drawn, self.kernel.now)

    def _power_on(self, unit: Unit) -> None:
        """The agent registers, and takes up what was asked of the unit and has outlived its boot."""
        if unit.up:
            return
        unit.up = True
        self.down.discard(unit.id)
        if not self.down:
            self.down = set()  # a set keeps the room of the most that it ever had, and walking it takes that long
        unit.boot += 1
        self.submit(
            AgentRegistered(
                at=self.kernel.now,
                host=unit.id,
                session=self.session_of(unit),
                boot=self.boot_of(unit),
                address=unit.id,
                attempts=(),
                versions=self.carried.told(unit),
            )
        )
        for effect in self.engine.pending(unit.id):
            if isinstance(effect, RunSteps):
                self._run_steps(effect)
            elif isinstance(effect, RebootHost):
                self.answer(effect)

    # --- failures and repairs

    def _plan_failure(self, unit: Unit) -> None:
        stream = self._failure_streams[unit.id]
        law = Poisson.of_nodes(self.scenario.failures.per_thousand_host_days)
        self.kernel.at(law.following(stream, self.kernel.now), self._fail, unit)

    def _fail(self, unit: Unit) -> None:
        stream, inputs = self._failure_streams[unit.id], self.inputs
        if inputs is None or inputs.admits(inputs.next_name("f"), self.kernel.now, f"{unit.id} fails"):
            self.break_down(unit, stream)
        else:
            stream.drawn += FAILURE_DRAWS
        self._plan_failure(unit)

    def break_down(self, unit: Unit, stream: Stream) -> None:
        """The host goes down, unless it is down already: then the failure is a part of what it is down for."""
        by_reboot = stream.uniform() < self.scenario.failures.reboot_share
        away = self._boot.draw(stream) if by_reboot else REPAIR.draw(stream)
        if not unit.up:
            return
        self.counts["failures"] += 1
        unit.up = False
        self.down.add(unit.id)
        unit.repaired = not by_reboot
        self.submit(AgentDisconnected(at=self.kernel.now, host=unit.id, session=self.session_of(unit)))
        self.gangs.host_died(unit.id)
        self.kernel.after(max(away, MINUTE), self._mended, unit)

    def _to_repair(self, unit: Unit) -> None:
        """A boot ended in nothing; hands are needed."""
        unit.repaired = True
        self.kernel.after(max(REPAIR.draw(unit.stream), MINUTE), self._mended, unit)

    def _mended(self, unit: Unit) -> None:
        """Parts and hands are there, or a reboot was enough. With hands comes the operation that ends the repair."""
        if unit.up:
            return
        host = self.engine.state.hosts[unit.id]
        if unit.repaired and self._repairs and host.state is HostState.OUT_FAILED:
            self.counts["repairs"] += 1
            kind = unit.stream.choice(self._repairs)
            spec = OperationSpec(kind=kind.name, scope=(f"host/{unit.id}",), priority=Priority.REPAIR, reason="failed")
            self.request(spec, "repairs")
        unit.repaired = False
        self._power_on(unit)

    def request(self, spec: OperationSpec, source: str) -> None:
        self.requested_by[source] = self.requested_by.get(source, 0) + 1
        self.submit(OperationRequested(at=self.kernel.now, spec=spec, by=WORLD))


def _works(scenario: Scenario) -> dict[tuple[str, str], Component | Kind]:
    works: dict[tuple[str, str], Component | Kind] = {(kind.name, ""): kind for kind in scenario.catalogue.kinds}
    return works | {("upgrade", component.name): component for component in scenario.catalogue.components}


def _repairs_hosts(kind: Kind) -> bool:
    return kind.repairs and kind.scope == "host" and "compute" in kind.units
