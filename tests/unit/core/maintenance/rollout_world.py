"""A small world for rollouts: a pool under load whose hosts fail at a rate, and a version that changes it or not.

Hours are the grain for upgrades and exposure, failures have instants of their own within them. The hosts of a stage get
the version at random hours of one train cycle. A failed host is back in the next hour (what is measured is the
evidence, not the repair).
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from trainmaster.core.base.ids import ComponentName, HostId, Owner, RolloutId
from trainmaster.core.base.seed import Stream
from trainmaster.core.base.time import HOUR, Instant
from trainmaster.core.maintenance.rollout import Rollout, begin, decide, exposed, host_failed, operation_ended
from trainmaster.core.maintenance.stages import Plan, RolloutSpec

BY = Owner("policy:rollout")


@dataclass(frozen=True, kw_only=True)
class Version:
    """What is true of a version, unknown to the rollout."""

    rate_factor: float = 1.0
    operations_failing: float = 0.005


@dataclass(kw_only=True)
class World:
    seed: int
    hosts: int
    per_1000_host_days: float
    version: Version
    loaded: float = 0.9
    cycle_h: int = 24
    spec: RolloutSpec | None = None
    lemons: int = 0
    """So many hosts of the canary fail every three hours or so, whatever they carry."""
    carriers: set[HostId] = field(default_factory=set)
    most_carriers: int = 0

    def __post_init__(self) -> None:
        names = tuple(HostId(f"h{number}") for number in range(self.hosts))
        pods = tuple(f"pod{number // 64}" for number in range(self.hosts))
        spec = self.spec or RolloutSpec(component=ComponentName("driver"), version="2", pool=names, strata=pods)
        self.spec = spec
        rollout = RolloutId(f"r{self.seed}")
        self.rollout: Rollout = begin(rollout, spec, self.seed, BY, Instant(0))
        self.plan = Plan(rollout, spec, self.seed)
        self.chance = Stream.of(self.seed, "world")
        self.hour = 0
        self.due: dict[int, list[HostId]] = {}
        self.names = names
        self.troubled = self.plan.order[: self.lemons]
        self.counted_upgraded = 0

    def run(self, limit_days: int = 200) -> Rollout:
        """Until the rollout ends or is held for a person."""
        self.schedule()
        while self.rollout.is_moving() and self.hour < limit_days * 24:
            self.step()
        return self.rollout

    def days(self) -> float:
        return self.hour / 24

    def share(self) -> float:
        return self.most_carriers / self.hosts

    def schedule(self) -> None:
        for host in self.plan.new_hosts(self.rollout.stage):
            self.due.setdefault(self.hour + self.chance.integer(self.cycle_h), []).append(host)

    def step(self) -> None:
        for host in self.due.pop(self.hour, []):
            succeeded = self.chance.uniform() >= self.version.operations_failing
            operation_ended(self.rollout, self.plan, host, succeeded=succeeded)
            if succeeded:
                self.carriers.add(host)
                self.counted_upgraded += host in self.rollout.evidence.counted
            self.most_carriers = max(self.most_carriers, len(self.carriers))
            if self.judged():
                return
        for host in self.failures():
            upgraded = host in self.carriers
            n1, n0 = self.sides()
            known = host in self.rollout.evidence.counted
            if known or (n1 if upgraded else n0) > 0:
                host_failed(self.rollout, self.plan, host, upgraded=upgraded, under_load=True, n1=n1, n0=n0)
                self.counted_upgraded += upgraded and not known
            if self.judged():
                return
        loaded = round(self.loaded * HOUR)
        exposed(self.rollout, upgraded=len(self.carriers) * loaded, others=(self.hosts - len(self.carriers)) * loaded)
        self.hour += 1
        self.judged()

    def sides(self) -> tuple[int, int]:
        """Hosts under load on each side that were not counted yet, as an engine would keep them. That only a share is
        under load at a time is left out here: it is the same on both sides."""
        others = len(self.rollout.evidence.counted) - self.counted_upgraded
        return len(self.carriers) - self.counted_upgraded, self.hosts - len(self.carriers) - others

    def judged(self) -> bool:
        """Asks for a decision; True if the rollout does not go on."""
        stage = self.rollout.stage
        decide(self.rollout, self.plan, Instant(self.hour * HOUR))
        if self.rollout.stage != stage:
            self.schedule()
        return not self.rollout.is_moving()

    def failures(self) -> Iterator[HostId]:
        """Of one hour, by thinning: at the highest rate that any host has, then by the rate that this one has."""
        base = self.per_1000_host_days / 1000 / 24 * self.loaded
        highest = max(1.0, self.version.rate_factor)
        passed = self.chance.exponential(1 / (base * highest * self.hosts))
        while passed < 1:
            host = self.names[self.chance.integer(self.hosts)]
            factor = self.version.rate_factor if host in self.carriers else 1.0
            if self.chance.uniform() * highest < factor:
                yield host
            passed += self.chance.exponential(1 / (base * highest * self.hosts))
        for host in self.troubled:
            if self.chance.integer(3) == 0:
                yield host
