"""One seed of health: hosts fall ill and recover, probes tell of it, people interfere; on top of all that happens in a
seed of maintenance.

What a host really has is kept here. Probes of states tell what the server does not know of this boot, and what is over;
the kernel log tells each thing once. Remedies mend what they answer, mostly. Faults of parts stay until somebody
exchanges them.
"""

from dataclasses import dataclass, field

from tests.sim.maintenance_run import COMPUTE, OPS, UNITS, MaintenanceRun
from trainmaster.core.base.ids import BootId, HostId, KindName, OperationId, Owner, PoolName
from trainmaster.core.base.seed import Stream
from trainmaster.core.base.time import Duration, Instant, seconds
from trainmaster.core.effects import AnyEffect
from trainmaster.core.events import (
    AnyEvent,
    BreakerSet,
    HealthAcknowledged,
    HealthConductDeclared,
    HealthModeSet,
    HealthReleased,
    HealthReported,
)
from trainmaster.core.health import invariants
from trainmaster.core.health.book import CaseState
from trainmaster.core.health.conduct import DEFAULT_LADDER, HealthConduct, OffenderLimits, PoolConduct, Rung
from trainmaster.core.health.events import Gone
from trainmaster.core.health.finding import Finding
from trainmaster.core.health.watcher import Watcher
from trainmaster.core.health.words import Remedy, Verdict
from trainmaster.core.maintenance.operation import OperationState

LADDER = (
    Rung(remedy=Remedy.RESET_GPU, kind=KindName("reseat")),
    Rung(remedy=Remedy.REBOOT, kind=KindName("reboot"), tries=2),
)
LIMITS = OffenderLimits(same_slot_cases=4, same_part_cases=4, same_host_cases=9, same_place_cases=9)
LEFT, RIGHT = PoolName("left"), PoolName("right")


def pools(act: bool, rate: int = 3, level: int = 3) -> tuple[PoolConduct, ...]:
    usual = PoolConduct(
        name=LEFT, hosts="h[0-4]", act=act, rate_hosts=rate, rate_window=Duration(seconds(40.0)), level_hosts=level
    )
    return usual, usual.but(name=RIGHT, hosts="h[5-9],s0", level_hosts=1, level_percent=40.0)


CONDUCTS = (
    HealthConduct(pools=pools(True), ladder=LADDER, verify=("deep",), limits=LIMITS),
    HealthConduct(pools=pools(True, level=2), ladder=DEFAULT_LADDER, verify=("quick", "deep"), limits=LIMITS),
    HealthConduct(pools=pools(False, rate=2), ladder=LADDER, limits=LIMITS, expire=Duration(seconds(60.0))),
)
CALM = CONDUCTS[0].but(limits=OffenderLimits(same_slot_cases=99, same_part_cases=99, same_host_cases=99))

ANSWERS = (
    (Verdict.BAD, Remedy.RESET_GPU),
    (Verdict.BAD, Remedy.RESET_GPU),
    (Verdict.BAD, Remedy.REBOOT),
    (Verdict.BAD, Remedy.DIAGNOSE),
    (Verdict.BAD, Remedy.TRIAGE),
    (Verdict.BAD, Remedy.RMA),
    (Verdict.WATCH, Remedy.RESET_GPU_LATER),
    (Verdict.WATCH, Remedy.DIAGNOSE),
    (Verdict.WATCH, Remedy.NONE),
    (Verdict.UNKNOWN, Remedy.NONE),
    (Verdict.UNKNOWN, Remedy.NONE),
    (Verdict.UNKNOWN, Remedy.DIAGNOSE),
)


@dataclass
class Illness:
    """What a host has, and what its probe told of it."""

    has: dict[tuple[str, str], Finding] = field(default_factory=dict)
    told: set[tuple[str, str]] = field(default_factory=set)
    boot: int = 0


class HealthRun(MaintenanceRun):
    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.fate = Stream.of(seed, "illness")
        self.ill: dict[HostId, Illness] = {host: Illness() for host in UNITS}
        self.health_watcher = Watcher()
        self.operations: dict[OperationId, tuple[HostId, str]] = {}
        self.how: dict[str, int] = {}
        """How cases ended, and which states they came through."""

    # --- what is checked

    def submit(self, event: AnyEvent) -> None:
        self.health_watcher.before(self.engine.state)
        known = len(self.engine.state.maintenance.ended)
        super().submit(event)
        self._mend(known)

    def check(self, event: AnyEvent, effects: tuple[AnyEffect, ...]) -> list[str]:
        return list(self.health_watcher.after(self.engine.state, self.engine._derived, event, effects))

    def _mend(self, known: int) -> None:
        """Operations that were carried out mend what they are for; four times of five."""
        for ended in self.engine.state.maintenance.ended[known:]:
            if ended.state is not OperationState.DONE or not ended.spec.scope[0].startswith("host/"):
                continue
            illness = self.ill[HostId(ended.spec.scope[0].partition("/")[2])]
            if ended.spec.kind in ("reseat", "reboot", "repair") and self.fate.integer(5) > 0:
                illness.has.clear()

    # --- what happens

    def start(self) -> None:
        super().start()
        conduct = CONDUCTS[self.fate.integer(len(CONDUCTS))]
        self.submit(HealthConductDeclared(at=self.world.now, conduct=conduct, by=OPS))
        self.world.at(10.0, self.look)

    def fault(self) -> None:
        if not self.world.kind and self.world.server_up:
            for _ in range(self.fate.integer(3)):
                self._happens()
        super().fault()

    def _happens(self) -> None:
        kind, host = self.fate.integer(20), self.fate.choice(UNITS)
        if kind <= 6:
            self._line(host)
        elif kind <= 12:
            finding = self._finding(("gpu 0", "gpu 1", "nic 0"), "state")
            self.ill[host].has[finding.unit, finding.rule] = finding
            if self.fate.integer(3) > 0:
                self.world.at(5 + 90 * self.fate.uniform(), lambda: self._heals(host, finding))
        else:
            self._person_of_health(kind, host)

    def _heals(self, host: HostId, finding: Finding) -> None:
        self.ill[host].has.pop((finding.unit, finding.rule), None)

    def _finding(self, units: tuple[str, ...], rule: str) -> Finding:
        verdict, remedy = self.fate.choice(ANSWERS)
        return Finding(
            unit=self.fate.choice(units),
            verdict=verdict,
            remedy=remedy,
            rule=f"{rule}-{self.fate.integer(3)}",
            summary="by chance",
            echo_of="gpu 7" if self.fate.integer(12) == 0 else "",
            offence=self.fate.integer(6) > 0,
        )

    def _line(self, host: HostId) -> None:
        """A line of the kernel's log; now and then one of the boot before, which arrives late."""
        agent = self.world.agents[host]
        if not agent.up:
            return
        boot = agent.boot - (agent.boot > 1 and self.fate.integer(6) == 0)
        finding = self._finding(("gpu 0", "gpu 1", "disk a", "host"), "line")
        event = HealthReported(
            at=self.world.now, host=host, boot=BootId(f"b{boot}"), probe="kernel-log", findings=(finding,)
        )
        self.world.report(agent, event)

    def look(self) -> None:
        """Each agent's probe of states tells what is new, and what is over."""
        for host, illness in self.ill.items():
            agent = self.world.agents.get(host)
            if agent is None or not agent.up:
                continue
            if illness.boot != agent.boot:
                illness.boot, illness.told = agent.boot, set()
            new = [finding for key, finding in illness.has.items() if key not in illness.told]
            gone = sorted(illness.told - illness.has.keys())
            if new or gone:
                illness.told = set(illness.has)
                event = HealthReported(
                    at=self.world.now,
                    host=host,
                    boot=BootId(f"b{agent.boot}"),
                    probe="nvml",
                    findings=tuple(new),
                    gone=tuple(Gone(unit=unit, rule=rule) for unit, rule in gone),
                )
                self.world.report(agent, event)
        self.world.at(10 + 20 * self.fate.uniform(), self.look)

    def _person_of_health(self, kind: int, host: HostId) -> None:
        now, pool = self.world.now, self.fate.choice((LEFT, RIGHT))
        if kind <= 14:
            mode = "observe" if self.fate.integer(3) == 0 else "act"
            self.submit(HealthModeSet(at=now, pool=pool, mode=mode, by=OPS, reason="by chance"))  # type: ignore[arg-type]
        elif kind == 15:
            tripped = self.fate.integer(3) == 0
            self.submit(BreakerSet(at=now, pool=pool, tripped=tripped, by=OPS, reason="by chance"))
        elif kind <= 17:
            held = [case.host for case in self.engine.state.health.cases.values()]
            names = (self.fate.choice(sorted(held)),) if held and self.fate.integer(4) else (host,)
            self._repaired_by_hand(names)
        elif kind == 18:
            conduct = self.fate.choice(CONDUCTS)
            self.submit(HealthConductDeclared(at=now, conduct=conduct, by=OPS))
        else:
            until = Instant(now + seconds(20))
            names = (host, *COMPUTE[:2]) if host not in COMPUTE[:2] else (host,)
            self.submit(HealthAcknowledged(at=now, hosts=names, by=Owner("person:a"), reason="seen", until=until))

    def _repaired_by_hand(self, names: tuple[HostId, ...]) -> None:
        for name in names:
            self.ill[name].has.clear()
        self.submit(HealthReleased(at=self.world.now, hosts=names, by=OPS, reason="by chance"))

    # --- the end

    def _calm(self) -> None:
        was_kind = self.world.kind
        super()._calm()
        if not self.world.server_up or not self.world.kind:
            return
        if not was_kind:
            self.submit(HealthConductDeclared(at=self.world.now, conduct=CALM, by=OPS))
            for pool in (LEFT, RIGHT):
                self.submit(HealthModeSet(at=self.world.now, pool=pool, mode="act", by=OPS, reason="calm"))
                self.submit(BreakerSet(at=self.world.now, pool=pool, tripped=False, by=OPS, reason="calm"))
            for illness in self.ill.values():
                illness.has.clear()
        for case in list(self.engine.state.health.cases.values()):
            if case.state in (CaseState.HELD, CaseState.OBSERVED):
                self._repaired_by_hand((case.host,))

    def ended(self) -> bool:
        return super().ended() and not self.engine.state.health.cases

    def story(self) -> str:
        lines = [super().story()]
        lines += [
            f"{case.id} {case.host} {case.state.value} {case.stage} {case.reason.sentence}"
            for case in self.engine.state.health.cases.values()
        ]
        return "\n".join(lines)


class QuickRun(HealthRun):
    """Only what health and its watchers have to say of each event, so that many seeds can be played."""

    def submit(self, event: AnyEvent) -> None:
        state, derived, known = self.engine.state, self.engine._derived, len(self.engine.state.maintenance.ended)
        self.watcher.before(state)
        self.health_watcher.before(state)
        effects = self.engine.handle(event)
        self.events.append(event)
        wrong = [*self.watcher.after(state, derived, event, effects), *self.check(event, effects)]
        wrong += invariants.broken(state, derived)
        assert not wrong, f"after event {self.engine.index} {event}: {wrong}"
        for effect in effects:
            self.world.deliver(effect)
        self._mend(known)
