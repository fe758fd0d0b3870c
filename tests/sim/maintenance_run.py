"""One seed of maintenance, step by step: what people and fate do, and what must hold."""

from tests.sim import maintenance_trains
from tests.sim.maintenance_world import CATALOGUE, MaintenanceWorld
from trainmaster.core.base.ids import ClusterId, ComponentName, HostId, KindName, OperationId, Owner, PodId, RackId
from trainmaster.core.base.seed import Stream
from trainmaster.core.base.time import Duration, Instant, seconds
from trainmaster.core.effects import AnyEffect
from trainmaster.core.engine import Engine
from trainmaster.core.events import (
    AnyEvent,
    CapacityDeclared,
    CatalogueDeclared,
    DrainRequested,
    FleetDeclared,
    JobCancelled,
    JobSubmitted,
    LeaseTaken,
    OperationCancelled,
    OperationRequested,
    ResumeRequested,
    TimePassed,
)
from trainmaster.core.fleet.inventory import HostSpec
from trainmaster.core.fleet.lifecycle import HostState
from trainmaster.core.invariants import broken
from trainmaster.core.maintenance.capacity import Book, Buffers, CapacityPolicy, DomainCap, Guarantee, Share
from trainmaster.core.maintenance.catalogue import Priority
from trainmaster.core.maintenance.events import OperationSpec
from trainmaster.core.maintenance.operation import OperationState
from trainmaster.core.maintenance.watcher import Watcher
from trainmaster.core.scheduling.job import JobState
from trainmaster.core.scheduling.request import CheckpointPolicy, JobSpec, MaintenanceContract, RestartBudget

FAULTS_UNTIL_S = 240.0
END_BOUND_S = 6 * 3600.0
COMPUTE = tuple(HostId(f"h{n}") for n in range(10))
OTHERS = (HostId("s0"), HostId("x0"), HostId("ctl"))
UNITS = (*COMPUTE, *OTHERS)
OPS = Owner("person:ops")
ENDED = (JobState.FINISHED, JobState.FAILED, JobState.CANCELLED)


def spec_of(host: HostId) -> HostSpec:
    place = COMPUTE.index(host) // 2 if host in COMPUTE else 5
    kind = {"s0": "storage", "x0": "switch", "ctl": "controller"}.get(host, "compute")
    return HostSpec(
        id=host,
        cluster=ClusterId("c"),
        pod=PodId(f"p{place // 3}"),
        rack=RackId(f"r{place}"),
        platform="laptop",
        gpus=0,
        kind=kind,  # type: ignore[arg-type]
        row=f"w{place % 2}",
        plane="f0" if host == "x0" else "",
    )


def book(name: str, maintenance: int, failure: int, **more: object) -> Book:
    buffers = Buffers(maintenance=Share(hosts=maintenance), failure=Share(hosts=failure))
    return Book(name=name, buffers=buffers, **more)  # type: ignore[arg-type]


POLICIES = (
    CapacityPolicy(
        books=(book("c", 3, 3, cluster="c"),),
        guarantees=(Guarantee(name="tenant", book="c", least=Share(per_mille=400)),),
        caps=(DomainCap(per="rack", most=Share(per_mille=500)),),
    ),
    CapacityPolicy(books=(book("c", 1, 1, cluster="c"), book("storage", 1, 1, cluster="c", kind="storage"))),
    CapacityPolicy(books=(book("pool", 2, 2, hosts=COMPUTE[:5]), book("c", 4, 3, cluster="c"))),
    CapacityPolicy(books=(book("c", 5, 4, cluster="c"),)),
)
OPEN = CapacityPolicy(books=(book("c", 10, 10, cluster="c"),))
SMALLER = CATALOGUE.but(components=CATALOGUE.components[1:], kinds=CATALOGUE.kinds[1:])
"""Without the BIOS and the probe."""


class MaintenanceRun:
    """A seed, step by step."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.engine = Engine()
        self.shadow = Engine()
        together = Stream.of(seed, "teller").integer(2) == 0
        self.world = MaintenanceWorld(seed, self.submit, self.engine, together=together)
        self.chance = Stream.of(seed, "people")
        self.watcher = Watcher()
        self.events: list[AnyEvent] = []
        self.jobs = 0

    def submit(self, event: AnyEvent) -> None:
        self.watcher.before(self.engine.state)
        effects = self.engine.handle(event)
        self.events.append(event)
        wrong = list(self.watcher.after(self.engine.state, self.engine._derived, event, effects))
        wrong += self.check(event, effects)
        assert not wrong, f"after event {self.engine.index} {event}: {wrong}"
        assert self.shadow.handle(event) == effects, f"9: a restored engine decides otherwise on {event}"
        snapshot = self.engine.snapshot()
        assert self.shadow.snapshot() == snapshot, f"9: a restored engine differs after {event}"
        self.shadow = Engine.restore(snapshot)
        wrong = broken(self.engine.state, self.engine._derived, anew=self.shadow._derived)
        assert not wrong, f"after event {self.engine.index} {event}: {wrong}"
        for effect in effects:
            self.world.deliver(effect)

    def check(self, event: AnyEvent, effects: tuple[AnyEffect, ...]) -> list[str]:
        """What else does not hold after an event."""
        return []

    # --- the server

    def lease(self) -> None:
        self.submit(LeaseTaken(at=self.world.now, lease=self.engine.state.lease + 1, by=Owner("policy:server")))

    def _server_back(self) -> None:
        self.world.server_back()
        self.lease()

    def wake(self) -> bool:
        due, upcoming = self.engine.next_wake(), self.world.next_at()
        if due is None or not self.world.server_up:
            return False
        if upcoming is not None and upcoming < due and due > self.engine.state.now:
            return False
        self.world.now = max(self.world.now, due)
        self.submit(TimePassed(at=self.world.now))
        return True

    def resend(self) -> None:
        for agent in self.world.agents.values():
            if agent.heard:
                for effect in self.engine.pending(agent.host):
                    self.world.deliver(effect)
        self.world.at(20.0 if self.world.kind else 1.0, self.resend)

    # --- people and fate

    def start(self) -> None:
        now = self.world.now
        self.lease()
        self.submit(FleetDeclared(at=now, hosts=tuple(map(spec_of, UNITS)), by=OPS))
        self.submit(CatalogueDeclared(at=now, catalogue=CATALOGUE, by=OPS))
        self.submit(CapacityDeclared(at=now, capacity=POLICIES[self.chance.integer(len(POLICIES))], by=OPS))
        for host in UNITS:
            self.world.soon(lambda host=host: self.world.power_on(host), 1.0)
        for _ in range(3):
            self._submit_job()

    def _submit_job(self) -> None:
        """At most three at once, of one to three hosts, with contracts of chance."""
        live = [job for job in self.engine.state.jobs.values() if job.state not in ENDED]
        if len(live) >= 3:
            return
        self.jobs += 1
        chance, now = self.chance, self.engine.state.now
        hosts = 1 + chance.integer(3)
        contract = MaintenanceContract(
            notice=Duration(seconds(8 * chance.integer(2))),
            checkpoint_wait=Duration(seconds(15 * chance.integer(2))),
            protected_until=Instant(now + seconds(60 * chance.uniform())) if chance.integer(4) == 0 else None,
            expected_duration=Duration(seconds(30 + 30 * chance.uniform())) if chance.integer(3) == 0 else None,
            wait_for_end=Duration(seconds(20 * chance.integer(2))),
        )
        spec = JobSpec(
            name=f"job{self.jobs}",
            command=("python", "train.py"),
            hosts=hosts,
            spares=chance.integer(2),
            checkpoint=CheckpointPolicy(directory="/ckpt", every_steps=10),
            restart=RestartBudget(max_restarts=50, same_failure_limit=50),
            contract=contract,
            on_drain="finish" if chance.integer(4) == 0 else "move",
            priority=chance.integer(3),
        )
        self.submit(JobSubmitted(at=self.world.now, spec=spec, by=Owner("person:a")))

    def fault(self) -> None:
        """One fault or wish, then the next one."""
        if self.world.now > seconds(FAULTS_UNTIL_S):
            self._calm()
            return
        kind, host = self.chance.integer(28), self.chance.choice(UNITS)
        if kind <= 1:
            self.world.kill_host(host)
            self.world.at(5 + 40 * self.chance.uniform(), lambda: self.world.power_on(host))
        elif kind == 2:
            self.world.restart_agent(host, away_s=0.2 + 8 * self.chance.uniform())
        elif kind == 3 and self.world.server_up:
            self.world.server_down()
            self.world.at(4 * self.chance.uniform(), self._server_back)
        elif kind == 4 and self.engine.state.jobs:
            self.world.kill_worker(self.chance.choice(sorted(self.engine.state.jobs)))
        elif self.world.server_up:
            self._person(kind, host)
        self.world.at(3 * self.chance.uniform(), self.fault)

    def _person(self, kind: int, host: HostId) -> None:
        now = self.world.now
        if kind <= 6:
            by = Owner(f"person:{'ab'[self.chance.integer(2)]}")
            evict = self.chance.integer(3) == 0
            deadline = Instant(now + seconds(10)) if evict else None
            self.submit(DrainRequested(at=now, hosts=(host,), reason="look", by=by, deadline=deadline, evict=evict))
            self.world.at(40 * self.chance.uniform(), lambda: self._resume(host, by))
        elif kind <= 16:
            for _ in range(1 + self.chance.integer(3)):
                self._request()
        elif kind <= 18:
            self._cancel()
        elif kind == 19:
            self._submit_job()
        elif kind == 20 and self.chance.integer(3) == 0:
            live = [job.id for job in self.engine.state.jobs.values() if job.state not in ENDED]
            if live:
                self.submit(JobCancelled(at=now, job=self.chance.choice(sorted(live)), by=OPS, reason="enough"))
        elif kind == 21:
            capacity = self.chance.choice(POLICIES)
            self.submit(CapacityDeclared(at=now, capacity=capacity, by=OPS))
        elif kind == 22:
            catalogue = CATALOGUE if self.chance.integer(2) else SMALLER
            self.submit(CatalogueDeclared(at=now, catalogue=catalogue, by=OPS))
        elif kind >= 24:
            maintenance_trains.act(self, COMPUTE)
        elif kind == 23:
            jump_s = (-30.0, -2.0, 5.0, 40.0, 600.0)[self.chance.integer(5)]
            odd = Instant(max(0, now + seconds(jump_s)))
            self.submit(ResumeRequested(at=odd, hosts=(host,), reason="an odd clock", by=Owner("person:nobody")))

    def _resume(self, host: HostId, by: Owner) -> None:
        if not self.world.server_up:
            self.world.at(1.0, lambda: self._resume(host, by))
            return
        self.submit(ResumeRequested(at=self.world.now, hosts=(host,), reason="done", by=by))

    def _request(self) -> None:
        """An operation of chance."""
        chance, now, catalogue = self.chance, self.engine.state.now, self.engine.state.maintenance.catalogue
        components = [one.name for one in catalogue.components]
        place = chance.integer(2 * len(components) + len(catalogue.kinds))
        name, kind = ComponentName(""), KindName("upgrade")
        if place < 2 * len(components):
            name = components[place % len(components)]
        else:
            kind = catalogue.kinds[place - 2 * len(components)].name
        newest = self.engine.state.maintenance.requested
        earlier = tuple(OperationId(f"op-{max(1, newest - chance.integer(8))}") for _ in range(chance.integer(2) + 1))
        spec = OperationSpec(
            kind=kind,
            component=name,
            version=str(2 + chance.integer(3)) if name else "",
            scope=self._scope(kind.startswith("rack")),
            priority=chance.choice((*[Priority.PLANNED] * 5, *list(Priority), Priority.REPAIR)),
            after=tuple(dict.fromkeys(earlier)) if newest and chance.integer(4) == 0 else (),
            not_before=Instant(now + seconds(40 * chance.uniform())) if chance.integer(7) == 0 else None,
            deadline=Instant(now + seconds(30)) if chance.integer(5) == 0 else None,
            reason="by chance",
        )
        key = f"k{chance.integer(20)}" if chance.integer(6) == 0 else ""
        self.submit(OperationRequested(at=self.world.now, spec=spec, by=Owner("person:a"), key=key))

    def _scope(self, rack: bool) -> tuple[str, ...]:
        ticket = self.chance.integer(40)
        if rack or ticket < 4:
            return (f"rack/r{self.chance.integer(6)}",)
        if ticket == 4:
            return (self.chance.choice(("pod/p0", "pod/p1", "row/w0", "plane/f0", "cluster/c")),)
        if ticket < 8:
            return tuple(dict.fromkeys(f"host/{self.chance.choice(UNITS)}" for _ in range(3)))
        busy = [host for host in UNITS if host in self.engine.state.maintenance.visits]
        return (f"host/{self.chance.choice(busy if busy and ticket % 2 else UNITS)}",)

    def _cancel(self) -> None:
        live = sorted(self.engine.state.maintenance.operations)
        if live:
            name = self.chance.choice(live)
            self.submit(OperationCancelled(at=self.world.now, operation=name, by=OPS, reason="not wanted"))

    # --- the end

    def _calm(self) -> None:
        """Faults have stopped: everything succeeds, limits are wide, and people repair and resume."""
        if not self.world.server_up:
            self.world.at(1.0, self._calm)
            return
        if not self.world.kind:
            self.world.kind = True
            self.submit(CapacityDeclared(at=self.world.now, capacity=OPEN, by=OPS))
            self.submit(CatalogueDeclared(at=self.world.now, catalogue=CATALOGUE, by=OPS))
        maintenance_trains.calm(self)
        for host in self.engine.state.hosts.values():
            self.world.power_on(host.id)
            for by in ("person:a", "person:b"):
                if host.hold_of(Owner(by)) is not None:
                    self._resume(host.id, Owner(by))
            if host.state is HostState.OUT_FAILED and host.connected and not self._repaired(host.id):
                self._repair(host.id)
        self.world.at(60.0, self._calm)

    def _repaired(self, host: HostId) -> bool:
        operations = self.engine.state.maintenance.operations.values()
        begun = (one for one in operations if one.state is not OperationState.REQUESTED)
        return any(one.spec.kind == "repair" and one.spec.scope == (f"host/{host}",) for one in begun)

    def _repair(self, host: HostId) -> None:
        if self.chance.integer(3) == 0:
            self._resume(host, OPS)
            return
        spec = OperationSpec(kind=KindName("repair"), scope=(f"host/{host}",), priority=Priority.REPAIR)
        self.submit(OperationRequested(at=self.world.now, spec=spec, by=OPS))

    def ended(self) -> bool:
        state = self.engine.state
        jobs = all(job.state in ENDED for job in state.jobs.values())
        hosts = all(host.state is HostState.READY for host in state.hosts.values())
        return (
            jobs
            and hosts
            and not state.maintenance.gangs
            and not state.maintenance.operations
            and not state.maintenance.visits
        )

    def play(self) -> None:
        self.start()
        self.world.at(5.0, self.fault)
        self.world.at(0.5, self.resend)
        while not (self.world.kind and self.ended()):
            assert self.world.now < seconds(END_BOUND_S), self.story()
            if not self.wake():
                self.world.step()

    def story(self) -> str:
        state = self.engine.state
        lines = [f"6: seed {self.seed}: not all has ended by {END_BOUND_S} s"]
        lines += [f"{job.id} {job.state.value} {job.reason}" for job in state.jobs.values() if job.state not in ENDED]
        for operation in state.maintenance.operations.values():
            what = f"{operation.spec.kind} {operation.spec.component} {operation.spec.scope}"
            lines.append(f"{operation.id} {operation.state.value} {what} {operation.line} {operation.reason}")
        for visit in state.maintenance.visits.values():
            lines.append(f"visit {visit.unit} {visit.phase.value} {visit.pending} {visit.wide} {visit.applied}")
        for host in state.hosts.values():
            if host.state is not HostState.READY:
                lines.append(f"{host.id} {host.state.value} {host.connected} {host.holds} {host.reason.sentence}")
        return "\n".join(lines)


def check_end(run: MaintenanceRun) -> None:
    maintenance = run.engine.state.maintenance
    assert sum(maintenance.counts[key] for key in maintenance.counts if "/" not in key) == maintenance.requested
    for ended in maintenance.ended:
        assert ended.reason is not None or ended.state.value == "done", ended
    again = Engine()
    for event in run.events:
        again.handle(event)
    assert again.snapshot() == run.engine.snapshot(), "9: the same log gives another state"
