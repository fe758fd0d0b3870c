"""An engine with hosts in a pool of health whose agents answer at once, or as a test says; for tests of cases."""

from tests.unit.core.maintenance.planner_world import CATALOGUE, ME, PlannerWorld, kind

from trainmaster.core.base.ids import BootId, HostId, KindName, PoolName
from trainmaster.core.base.time import SECOND, Instant
from trainmaster.core.effects import VerifyHost
from trainmaster.core.events import CatalogueDeclared, HealthConductDeclared, HealthModeSet, HealthReported
from trainmaster.core.health.book import Case
from trainmaster.core.health.conduct import HealthConduct, PoolConduct, Rung
from trainmaster.core.health.events import Gone, Mode
from trainmaster.core.health.finding import Finding
from trainmaster.core.health.words import Remedy, Verdict

POOL = PoolName("all")
GPU = "gpu 0000:1b:00"
LADDER = (
    Rung(remedy=Remedy.RESET_GPU, kind=KindName("gpu-reset")),
    Rung(remedy=Remedy.REBOOT, kind=KindName("reboot"), tries=2),
)
KINDS = (*CATALOGUE.kinds, kind("gpu-reset"))


def finding(
    remedy: Remedy = Remedy.RESET_GPU, unit: str = GPU, rule: str = "xid-79", verdict: Verdict = Verdict.BAD
) -> Finding:
    return Finding(unit=unit, verdict=verdict, remedy=remedy, rule=rule, summary=f"{rule} on {unit}", evidence=(rule,))


class HealthWorld(PlannerWorld):
    """Hosts h0 .. in one pool, promoted or not."""

    def __init__(self, hosts: int = 8, act: bool = True, verify: tuple[str, ...] = ("deep",), **pool: object) -> None:
        self.fails: set[str] = set()
        """Verification tasks that fail."""
        super().__init__(hosts=hosts, maintenance=1, failure=1)
        self.submit(CatalogueDeclared(at=self.now, catalogue=CATALOGUE.but(kinds=KINDS), by=ME))
        fields = {"rate_hosts": 4, "level_hosts": 4, **pool}
        self.conduct = HealthConduct(
            pools=(PoolConduct(name=POOL, cluster="c", act=act, **fields),),  # type: ignore[arg-type]
            ladder=LADDER,
            verify=verify,
        )
        self.declare()

    def declare(self, **more: object) -> None:
        self.conduct = self.conduct.but(**more)
        self.submit(HealthConductDeclared(at=self.now, conduct=self.conduct, by=ME))

    def carry_out(self, effect: object, outcome: str = "", detail: str = "") -> None:
        if isinstance(effect, VerifyHost):
            failed = self.fails.intersection(effect.tasks)
            if failed and not outcome:
                outcome, detail = "failed", sorted(failed)[0]
        super().carry_out(effect, outcome, detail)  # type: ignore[arg-type]

    def report(
        self, host: str, *findings: Finding, probe: str = "kernel-log", boot: str = "", gone: tuple[Gone, ...] = ()
    ) -> None:
        name = HostId(host)
        self.now = Instant(self.now + SECOND)
        self.submit(
            HealthReported(
                at=self.now,
                host=name,
                boot=BootId(boot) if boot else self.engine.state.hosts[name].boot,
                probe=probe,
                findings=findings,
                gone=gone,
            )
        )

    def gone(self, host: str, *findings: Finding, probe: str = "nvml") -> None:
        self.report(host, probe=probe, gone=tuple(Gone(unit=each.unit, rule=each.rule) for each in findings))

    def set_mode(self, mode: Mode) -> None:
        self.submit(HealthModeSet(at=self.now, pool=POOL, mode=mode, by=ME, reason="it has proved itself"))

    def case(self, host: str) -> Case | None:
        """The open case of a host."""
        found = self.engine.state.health.case_of.get(HostId(host))
        return self.engine.state.health.cases[found] if found is not None else None

    def last(self) -> Case:
        """The case that was closed last."""
        return self.engine.state.health.closed[-1]

    def holders(self, host: str) -> list[str]:
        return [hold.owner for hold in self.engine.state.hosts[HostId(host)].holds]
