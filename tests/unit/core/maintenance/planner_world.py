"""An engine with hosts whose agents answer at once, or as a test says; for tests of the planner."""

from collections.abc import Callable

from trainmaster.core.base.ids import BootId, ClusterId, HostId, OperationId, Owner, PodId, RackId, SessionId
from trainmaster.core.base.time import MINUTE, SECOND, Duration, Instant
from trainmaster.core.effects import AnyEffect, RebootHost, RunSteps, parts
from trainmaster.core.engine import Engine
from trainmaster.core.events import (
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
from trainmaster.core.fleet.inventory import HostSpec
from trainmaster.core.invariants import broken
from trainmaster.core.maintenance.capacity import Book, Buffers, CapacityPolicy, Share
from trainmaster.core.maintenance.catalogue import Catalogue, Component, Disturbs, Kind, Spread, StepSpec
from trainmaster.core.maintenance.events import OperationSpec
from trainmaster.core.maintenance.operation import EndedOperation, Operation

ME = Owner("person:test")
SPREAD = Spread(median=MINUTE, p90=Duration(2 * MINUTE), limit=Duration(10 * MINUTE))


def component(name: str, disturbs: Disturbs = "drain", after: tuple[str, ...] = (), **more: object) -> Component:
    return Component(
        name=name,  # type: ignore[arg-type]
        disturbs=disturbs,
        duration=SPREAD,
        steps=(StepSpec(name="install", command=("install", "{component}", "{version}"), deadline=MINUTE),),
        observe=("show", "{component}"),
        after=after,  # type: ignore[arg-type]
        **more,  # type: ignore[arg-type]
    )


def kind(name: str, disturbs: Disturbs = "drain", **more: object) -> Kind:
    return Kind(name=name, disturbs=disturbs, duration=SPREAD, **more)  # type: ignore[arg-type]


CATALOGUE = Catalogue(
    name="test",
    components=(
        component("bios", "reboot"),
        component("driver", "reboot", after=("bios",)),
        component("nic", "drain"),
        component("fan", "drain"),
        component("kernel", "reboot", undo=(StepSpec(name="back", command=("undo",), deadline=MINUTE),)),
        component("exporter", "nothing"),
    ),
    kinds=(
        kind("probe", "nothing"),
        kind("deep-check", verify=("burn",)),
        kind("rack-power", "power", scope="rack"),
        kind("rack-look", "nothing", scope="rack"),
        kind("pod-check", scope="pod"),
        kind("repair", repairs=True),
        kind("reboot", "reboot"),
    ),
)


class PlannerWorld:
    """Hosts h0 .. of one cluster, two to a rack, all ready. `answer` may be replaced to let steps fail or hang."""

    def __init__(self, hosts: int = 4, maintenance: int = 2, failure: int = 2, registered: bool = True) -> None:
        self.engine = Engine()
        self.now = Instant(1_000_000)
        self.boots: dict[str, int] = {}
        self.done: list[str] = []
        """What was carried out, as `host:leg:component version`, `host:reboot`, `host:verify tasks`."""
        self.answer: Callable[[RunSteps], tuple[str, str]] = lambda effect: ("done", "")
        self.held: list[AnyEffect] = []
        self.hold: Callable[[AnyEffect], bool] = lambda effect: False
        self.names = [HostId(f"h{number}") for number in range(hosts)]
        specs = tuple(
            HostSpec(
                id=name,
                cluster=ClusterId("c"),
                pod=PodId("p"),
                rack=RackId(f"r{number // 2}"),
                platform="laptop",
                gpus=0,
            )
            for number, name in enumerate(self.names)
        )
        self.submit(LeaseTaken(at=self.now, lease=1, by=ME))
        self.submit(FleetDeclared(at=self.now, hosts=specs, by=ME))
        self.submit(CatalogueDeclared(at=self.now, catalogue=CATALOGUE, by=ME))
        buffers = Buffers(maintenance=Share(hosts=maintenance), failure=Share(hosts=failure))
        policy = CapacityPolicy(books=(Book(name="c", cluster="c", buffers=buffers),))
        self.submit(CapacityDeclared(at=self.now, capacity=policy, by=ME))
        for name in self.names if registered else ():
            self.register(name)
        self.done.clear()

    def register(self, name: HostId) -> None:
        boot = self.boots.setdefault(name, 1)
        self.submit(
            AgentRegistered(
                at=self.now, host=name, session=SessionId(f"s{boot}"), boot=BootId(f"b{boot}"), address="x", attempts=()
            )
        )

    def submit(self, event: AnyEvent) -> None:
        """Applies an event, checks the invariants and a restored engine, and lets the agents answer."""
        effects = self.engine.handle(event)
        assert broken(self.engine.state, self.engine._derived) == []
        restored = Engine.restore(self.engine.snapshot())
        assert restored.snapshot() == self.engine.snapshot()
        for effect in [part for whole in effects for part in self.as_sent(whole)]:
            if self.hold(effect):
                self.held.append(effect)
            else:
                self.carry_out(effect)

    def as_sent(self, effect: AnyEffect) -> list[AnyEffect]:
        """Agents get their own part of an effect for a gang."""
        return [part for _, part in parts(effect)]

    def carry_out(self, effect: AnyEffect, outcome: str = "", detail: str = "") -> None:
        numbers: dict[str, int | float | str] = {}
        if isinstance(effect, RunSteps):
            operation = self.engine.state.maintenance.operations[effect.operation]
            what = f"{operation.spec.component or operation.spec.kind} {operation.spec.version}".strip()
            self.done.append(f"{effect.host}:{effect.leg}:{what}")
            if not outcome:
                outcome, detail = self.answer(effect)
            if outcome == "done" and effect.observe is not None:
                numbers["version"] = effect.observe.wanted
        elif isinstance(effect, RebootHost):
            self.done.append(f"{effect.host}:reboot")
            self.boots[effect.host] += 1
            self.register(effect.host)
        else:
            self.done.append(f"{effect.host}:{type(effect).__name__}")
        self.now = Instant(self.now + SECOND)
        self.submit(
            EffectEnded(
                at=self.now,
                host=effect.host,
                effect=effect.id,
                outcome=outcome or "done",  # type: ignore[arg-type]
                detail=detail,
                numbers=numbers,
            )
        )

    def let(self) -> None:
        """Carries out what was held back."""
        held, self.held = self.held, []
        for effect in held:
            self.carry_out(effect)

    def request(self, what: str, scope: str, version: str = "2", **more: object) -> OperationId:
        """`what` is a component (an upgrade) or a kind."""
        is_component = self.engine.state.maintenance.catalogue.component(what) is not None  # type: ignore[arg-type]
        names = {"component": what, "version": version} if is_component else {"kind": what}
        spec = OperationSpec(scope=tuple(scope.split(",")), **names, **more)  # type: ignore[arg-type]
        number = self.engine.state.maintenance.requested + 1
        self.submit(OperationRequested(at=self.now, spec=spec, by=ME))
        return OperationId(f"op-{number}")

    def operation(self, name: OperationId) -> Operation:
        return self.engine.state.maintenance.operations[name]

    def ended(self, name: OperationId) -> EndedOperation:
        return next(ended for ended in self.engine.state.maintenance.ended if ended.id == name)

    def outcome(self, name: OperationId) -> str:
        live = self.engine.state.maintenance.operations.get(name)
        return live.state.value if live is not None else self.ended(name).state.value

    def state(self, host: str) -> str:
        return self.engine.state.hosts[HostId(host)].state.value

    def pass_time(self, duration: int) -> None:
        """Lets time pass, waking the engine whenever it asked for it."""
        until = Instant(self.now + duration)
        while (wake := self.engine.next_wake()) is not None and wake <= until:
            self.now = max(self.now, wake)
            self.submit(TimePassed(at=self.now))
        self.now = until
