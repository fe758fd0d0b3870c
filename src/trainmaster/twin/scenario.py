"""What a simulated fleet lives through: jobs, failures, operations. All of it is declared, nothing is built in.

A scenario is a fleet file with more in it: catalogue, capacity, and the table `[twin]`. The clusters, buffers and kinds
of work are the very values that a live server reads, so a policy is tried on what it will run on; only what people and
chance do to the fleet is the twin's own. Rates are of the whole fleet, durations are lognormal by median and 90th
percentile unless a comment says otherwise.
"""

from typing import Final, Literal

from trainmaster.core.base.ids import ComponentName
from trainmaster.core.base.time import HOUR, MINUTE, SECOND, Duration, Instant, seconds
from trainmaster.core.base.value import Value
from trainmaster.core.fleet.inventory import FleetSpec
from trainmaster.core.maintenance.capacity import CapacityPolicy
from trainmaster.core.maintenance.catalogue import Catalogue, Spread
from trainmaster.core.maintenance.stages import OnFailure
from trainmaster.core.maintenance.wish import TrainWish

DAY: Final = Duration(24 * HOUR)

START: Final = Instant(1_767_225_600_000_000)
"""When every world begins: 2026-01-01 00:00 UTC."""


def spread(median_s: float, p90_s: float, limit_s: float) -> Spread:
    return Spread(median=seconds(median_s), p90=seconds(p90_s), limit=seconds(limit_s))


class JobClass(Value):
    """Jobs of one shape. So many of them run or wait at any time: when one ends, the next is submitted."""

    name: str
    count: int
    hosts: int
    spares: int = 0
    priority: int = 0
    work: Spread = spread(12 * 3600, 48 * 3600, 60 * 86400)
    """Training that a job needs, without interruptions and saves."""
    checkpoint_every: Duration = Duration(30 * MINUTE)
    checkpoint_auto: bool = False
    """How often is left to the engine, which measures and chooses; `checkpoint_every` is then not read."""
    save: Duration = seconds(10)
    """How long the ranks stand still for a save."""
    prepare: Duration = seconds(30)
    """From the arrival on a host until its warm process has imported everything."""
    launch: Duration = seconds(5)
    """From the launch until all ranks run."""
    restore: Duration = Duration(2 * MINUTE)
    """From then until the first step is done: joining, reading the checkpoint."""
    step: Duration = seconds(5)
    notice: Duration = Duration(0)
    checkpoint_wait: Duration = Duration(0)
    wait_for_end: Duration = Duration(0)
    """The job says how long it will take, and is let to its end if that is no farther away."""


class Failures(Value):
    """What breaks by itself."""

    per_thousand_host_days: float = 6.5
    """Failures that take a host away, each with the same chance on each day. Default: RSC-1 (Kokolis et al., 2025)."""
    reboot_share: float = 0.5
    """Of them, those that a reboot mends; the others take the time of the law of repairs (`chance.REPAIR`)."""
    boot: Spread = spread(480, 900, 3000)
    verify: Spread = spread(45, 70, 110)
    """The usual verification of a host; what an operation demands beyond it takes its kind's duration."""


HIGH: Final = 1_000_000
"""First part of every simulated version: higher than what any rule asks for at least."""
USUAL_WEIGHT: Final = 1_000


class Operations(Value):
    """What people and services ask for."""

    per_day: int = 0
    disruptive_per_day: int = 0
    """Of them, those for which units leave production."""
    wide_share: float = 0.1
    """Of the others, those wider than a unit."""
    disruptive_wide_share: float = 0.02
    """Of the disruptive ones."""
    stop_hosts: int = 64
    """Disruptive ones come in stops: so many neighbouring hosts at once, and the next ones at the next stop."""
    bundle: int = 4
    """Different updates that each host of a stop gets."""
    singles: int = 4
    """Other disruptive operations that come with a stop: of any kind, on any unit."""
    fails: float = 0.002
    """Chance that the steps of an operation fail."""
    boot_fails: float = 0.0005
    """Chance that a host does not come back from a reboot."""
    release_days: int = 30
    """A component gets a new version so often; updates go to the newest."""
    weights: dict[str, int] = {}
    """How often a kind or component is drawn, by name; 1000 where none is given."""

    def weight(self, name: str) -> int:
        return self.weights.get(name, USUAL_WEIGHT)


class Release(Value):
    """A version that comes out while the fleet runs. Trains bring it."""

    component: ComponentName
    version: str
    after: Duration
    """From the start of the world."""
    via: Literal["target", "rollout"] = "rollout"
    """Proven for everybody, or brought by stages."""
    canary: int = 0
    soak: Duration = Duration(12 * HOUR)
    unproven_percent: float = 10.0
    on_failure: OnFailure = "roll-back"
    fails_return: float = 0.0
    """The truth, which policies do not see: share of units that do not come back from the upgrade."""
    failure_factor: float = 1.0
    """The truth: so many times as often do units fail that carry it, while a job loads them."""


class Scenario(Value):
    name: str
    fleet: FleetSpec
    catalogue: Catalogue
    capacity: CapacityPolicy
    seed: int = 1
    duration: Duration = DAY
    jobs: tuple[JobClass, ...] = ()
    failures: Failures = Failures()
    operations: Operations = Operations()
    trains: tuple[TrainWish, ...] = ()
    """Built when the world has settled; one that says no mode acts."""
    releases: tuple[Release, ...] = ()


SETTLING: Final = Duration(5 * MINUTE)
"""From the start of a world until jobs are submitted: all hosts register and verify first."""

QUICK: Final = SECOND
"""How long a small request of an agent takes: a port, a request on the boards, the removal of what has ended."""
