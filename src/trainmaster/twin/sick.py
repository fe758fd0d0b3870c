"""Hosts of the simulated fleet fall ill: faults show as lines and outputs, agents report what the readers make of them,
and the whole engine answers: standings, cases, breaker, ladder, planner, history, lemons, returns of parts.

`Sickness` attaches itself to a `World`. It plays the part of the agents (reports of findings, of parts, of what is gone
after a repair), of the hosts (a job dies of a GPU, a host dies altogether), and of the people on the repair queue: they
look twice a day, and what has been held for as long as its repair takes, they release. What the root of a lemon is they
find only if the host was condemned for its history, since a single fault looks like anybody's.

What breaks, and when, is drawn as in the light world (`lemon_world.planted`).
"""

from typing import Final

from trainmaster.core.agent.board import Phase
from trainmaster.core.base.ids import CaseId, HostId, Owner, job_of
from trainmaster.core.base.seed import Stream
from trainmaster.core.base.time import HOUR, SECOND, Duration, Instant, after
from trainmaster.core.base.value import Value
from trainmaster.core.effects import AnyEffect
from trainmaster.core.events import (
    AgentRegistered,
    AnyEvent,
    HealthConductDeclared,
    HealthReleased,
    HealthReported,
    PartsSeen,
    RmaClosed,
)
from trainmaster.core.fleet.lifecycle import HostState
from trainmaster.core.health.book import Case, CaseState
from trainmaster.core.health.conduct import HealthConduct
from trainmaster.core.health.finding import Finding
from trainmaster.core.health.ladder import rank
from trainmaster.core.health.offender.record import LEMON
from trainmaster.core.health.part import Part
from trainmaster.core.health.policy import Index
from trainmaster.core.health.words import OK, Verdict
from trainmaster.core.recovery.events import Failure, WorkersExited
from trainmaster.core.scheduling.job import JobState
from trainmaster.twin.chance import REPAIR, Purpose
from trainmaster.twin.faults import GPUS, NOISE, Shape, Stagehand
from trainmaster.twin.lemon_world import Breakage, LemonFleet, planted
from trainmaster.twin.lemon_world import Host as Fate
from trainmaster.twin.world import World

PERSON: Final = Owner("person:repair-queue")
SETUP: Final = Owner("policy:twin")
LOOKS: Final = Duration(12 * HOUR)
LONGEST: Final = Duration(14 * 24 * HOUR)
"""What takes longer than this to repair is exchanged meanwhile."""
_PROBES: Final = {"link-polls": "infiniband", "diagnostic-fails": "dcgm"}
"""Shapes that are states, which a probe reads; all others are lines of the kernel."""
_CUDA: Final = "CUDA error: an uncorrectable fault of the device"


class SickReport(Value):
    """What health did, beside the report of the run."""

    faults: int
    reports: int
    cases: int
    open_cases: int
    closed: dict[str, int]
    """By how."""
    condemned: tuple[HostId, ...]
    """Taken out, or to be taken out, for their history."""
    lemons: tuple[HostId, ...]
    returned_parts: int
    jobs_killed: int


class Sickness:
    """Attach it before the run starts. `seed` decides what breaks, apart from the seed of the scenario."""

    def __init__(self, world: World, fleet: LemonFleet, conduct: HealthConduct, index: Index, seed: int) -> None:
        self.world, self.conduct = world, conduct
        self._stagehand = Stagehand(index)
        names = [spec.id for spec in world.specs if spec.kind == "compute"]
        end = after(world.began, world.scenario.duration)
        self.fates = {fate.id: fate for fate in planted(fleet, names, seed, world.began, end)}
        self.faults = self.reports = self.jobs_killed = 0
        self.condemned: dict[HostId, Instant] = {}
        """When history condemned them first."""
        self._cured: set[HostId] = set()
        self._generation: dict[tuple[HostId, str], int] = {}
        """Of slots whose part was exchanged."""
        self._repairs = Purpose(seed, "repairs of the sick")
        self._streams: dict[HostId, Stream] = {name: self._repairs.stream(name) for name in names}
        self._due: dict[CaseId, Instant] = {}
        """When a held case is repaired."""
        self._watch = world.watch
        world.watch = self._watched
        kernel = world.kernel
        kernel.at(after(world.began, SECOND), self._declare, None)
        kernel.at(after(world.began, LOOKS), self._people, None)
        for fate in self.fates.values():
            for breakage in fate.calendar:
                kernel.at(breakage.at, self._breaks, (fate, breakage))

    def report(self) -> SickReport:
        health = self.world.engine.state.health
        closed: dict[str, int] = {}
        for case in health.closed:
            closed[case.closed_how] = closed.get(case.closed_how, 0) + 1
        return SickReport(
            faults=self.faults,
            reports=self.reports,
            cases=health.opened,
            open_cases=len(health.cases),
            closed=closed,
            condemned=tuple(sorted(self.condemned)),
            lemons=tuple(sorted(fate.id for fate in self.fates.values() if fate.root is not None)),
            returned_parts=health.returned,
            jobs_killed=self.jobs_killed,
        )

    def _declare(self, _: None) -> None:
        self.world.submit(HealthConductDeclared(at=self.world.kernel.now, conduct=self.conduct, by=SETUP))

    # --- what agents tell

    def _watched(self, event: AnyEvent, effects: tuple[AnyEffect, ...]) -> None:
        if self._watch is not None:
            self._watch(event, effects)
        if type(event) is AgentRegistered and event.host in self.fates:
            self.world.kernel.after(SECOND, self._tell_parts, event.host)

    def _tell_parts(self, name: HostId) -> None:
        unit = self.world.units[name]
        if not unit.up:
            return
        parts = tuple(
            Part(kind="gpu", slot=f"gpu {slot}", serial=self._serial(name, f"gpu {slot}"), model="H100")
            for slot in GPUS
        )
        boot, now = self.world.boot_of(unit), self.world.kernel.now
        self.world.submit(PartsSeen(at=now, host=name, boot=boot, chassis=f"SN-{name}", parts=parts))

    def _serial(self, name: HostId, slot: str) -> str:
        return f"{name}-{slot[-5:-3]}-{self._generation.get((name, slot), 0)}"

    def _report(self, name: HostId, probe: str, findings: tuple[Finding, ...]) -> None:
        told = tuple(each for each in findings if each.answer != OK)
        if told:
            self.reports += 1
            boot, now = self.world.boot_of(self.world.units[name]), self.world.kernel.now
            self.world.submit(HealthReported(at=now, host=name, boot=boot, probe=probe, findings=told))

    # --- what breaks

    def _breaks(self, told: tuple[Fate, Breakage]) -> None:
        fate, breakage = told
        name, shape = fate.id, breakage.shape
        if fate.id in self._cured and shape.name not in NOISE:
            return
        state = self.world.engine.state.hosts[name].state
        if not self.world.units[name].up or state not in (HostState.READY, HostState.DRAINING):
            return
        findings = self._stagehand.play(shape, breakage.place).findings if shape.text else ()
        self._report(name, _PROBES.get(shape.name, "kernel-log"), findings)
        if shape.name in NOISE:
            return
        self.faults += shape.kills
        if shape.takes_host:
            self.world.kernel.after(5 * SECOND, self._dies, name)
        elif shape.kills:
            self._kill(name, shape)

    def _dies(self, name: HostId) -> None:
        unit = self.world.units[name]
        if unit.up:
            self.world.break_down(unit, self._streams[name])

    def _kill(self, name: HostId, shape: Shape) -> None:
        """The ranks of a host fail of it, and all others of the job lose their peers."""
        world = self.world
        allocation = world.engine.state.hosts[name].allocation
        gang = world.gangs.by_job.get(job_of(allocation)) if allocation is not None else None
        if gang is None or name not in gang.hosts:
            return
        self.jobs_killed += 1
        hosts, now = world.gangs.stop(gang, "gpu-fault", saved=False), world.kernel.now
        world.submit(
            WorkersExited(
                at=now, attempt=gang.attempt, epoch=gang.epoch, hosts=(name,), how="failed", exit_code=1, signal=None,
                attached=True, phase=Phase.TRAINING, step=gang.steps, step_at=now, save_s=0.0,
                failure=Failure(at=now, exception="RuntimeError", message=f"{_CUDA} ({shape.name}, {name})"),
            )
        )  # fmt: skip
        world.gangs.exited(gang, tuple(host for host in hosts if host != name), "failed")
        if world.engine.state.jobs[gang.job].state is JobState.FAILED:
            world.gangs.ended(gang)

    # --- people

    def _people(self, _: None) -> None:
        """Whoever works on the repair queue looks at what is held, and at who is condemned."""
        now, health = self.world.kernel.now, self.world.engine.state.health
        for case in sorted(health.cases.values(), key=Case.number):
            if _is_condemned(case):
                self.condemned.setdefault(case.host, now)
            if case.state is not CaseState.HELD:
                continue
            if case.id not in self._due:
                wait = min(max(REPAIR.draw(self._streams[case.host]), HOUR), LONGEST)
                self._due[case.id] = after(now, wait)
            elif self._due[case.id] <= now and self.world.units[case.host].up:
                self._repair(case, now)
        self.world.kernel.after(LOOKS, self._people, None)

    def _repair(self, case: Case, now: Instant) -> None:
        name = case.host
        if _is_condemned(case):
            self._cured.add(name)
        if case.rma is not None:
            rma = self.world.engine.state.health.rmas[case.rma]
            self._generation[name, rma.unit] = self._generation.get((name, rma.unit), 0) + 1
            self._tell_parts(name)
            if rma.closed_at is None:
                self.world.submit(RmaClosed(at=now, rma=rma.id, outcome="replaced", by=PERSON, reason="exchanged"))
        self.world.submit(HealthReleased(at=now, hosts=(name,), by=PERSON, reason=f"{case.id} is repaired"))
        assert self.world.kernel.now == now


def _is_condemned(case: Case) -> bool:
    """History asked for more than the findings do, or is the finding."""
    if case.rule == LEMON:
        return True
    asked = max((each.remedy for each in case.findings if each.verdict is Verdict.BAD), key=rank, default=case.remedy)
    return case.state is CaseState.HELD and not case.tries and rank(case.remedy) > rank(asked)
