"""What a simulated fleet is told to keep up with: its trains, and versions that come out over time.

Trains are built by the very function that a live server builds them with. At the start every version that units have is
the proven one. A release is made proven for all (`target`) or brought by stages (`rollout`); where a rollout of its
component has not ended yet, it waits for the next day.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from trainmaster.core.base.ids import HostId, Owner, RolloutId
from trainmaster.core.base.reasons import Reason
from trainmaster.core.base.time import MINUTE, Duration, Instant
from trainmaster.core.engine import Engine
from trainmaster.core.events import (
    CapacityDeclared,
    CatalogueDeclared,
    FleetDeclared,
    LeaseTaken,
    RolloutDeclared,
    TrainDeclared,
    VersionTargeted,
)
from trainmaster.core.fleet.inventory import HostSpec
from trainmaster.core.maintenance.building import build_train
from trainmaster.core.maintenance.stages import RolloutSpec
from trainmaster.core.maintenance.train import TrainSpec
from trainmaster.core.maintenance.wish import TrainWish
from trainmaster.twin.scenario import DAY, SETTLING, START, Release, Scenario

if TYPE_CHECKING:
    from trainmaster.twin.world import World

PEOPLE: Final = Owner("person:twin")
BOARDING: Final = Duration(SETTLING + 25 * MINUTE)
"""From the start of a world until its trains depart: jobs run by then."""


class Releases:
    def __init__(self, world: "World") -> None:
        self.world = world
        self.came_out: dict[tuple[str, str], Instant] = {}
        """When each (component, version) came out; the first ones at the start."""

    def start(self) -> None:
        world, scenario = self.world, self.world.scenario
        for release in scenario.releases:
            assert release.component in {one.name for one in scenario.catalogue.components}, release.component
            self._target(release.component, self.first(release))
            world.kernel.after(release.after, self._come_out, release)
        world.kernel.after(BOARDING, self._depart, None)

    def first(self, release: Release) -> str:
        found = (versions.get(release.component) for versions in self.world.carried.first.values())
        return next(version for version in found if version)

    def _depart(self, _: None) -> None:
        for wish in self.world.scenario.trains:
            spec = _built(self.world.engine, self.world.kernel.now, wish)
            assert isinstance(spec, TrainSpec), spec.sentence
            self.world.submit(TrainDeclared(at=self.world.kernel.now, spec=spec, by=PEOPLE))

    def _target(self, component: str, version: str) -> None:
        now = self.world.kernel.now
        self.came_out.setdefault((component, version), now)
        self.world.submit(VersionTargeted(at=now, component=component, version=version, by=PEOPLE))  # type: ignore[arg-type]

    def _come_out(self, release: Release) -> None:
        world, now = self.world, self.world.kernel.now
        if world.engine._derived.planner.rollout_of(release.component) is not None:
            world.kernel.after(DAY, self._come_out, release)
            return
        if release.via == "target":
            self._target(release.component, release.version)
            return
        self.came_out[release.component, release.version] = now
        pool = self._pool(release)
        spec = RolloutSpec(
            component=release.component,
            version=release.version,
            pool=tuple(unit.id for unit in pool),
            strata=tuple(unit.pod for unit in pool),
            canary=release.canary,
            soak=release.soak,
            unproven_percent=release.unproven_percent,
            on_failure=release.on_failure,
        )
        name = RolloutId(f"{release.component}-{release.version}".replace(".", "-"))
        world.submit(RolloutDeclared(at=now, rollout=name, spec=spec, seed=world.scenario.seed, by=PEOPLE))

    def _pool(self, release: Release) -> list[HostSpec]:
        """Units that the component is for and that a train visits."""
        state = self.world.engine.state
        visited: set[HostId] = set()
        for train in state.maintenance.trains.values():
            visited.update(unit for domain in train.spec.domains for unit in domain)
        kinds = self.world.engine._derived.planner.component(release.component).units
        return [unit for unit in self.world.scenario.fleet.hosts if unit.id in visited and unit.kind in kinds]


def _built(engine: Engine, now: Instant, wish: TrainWish) -> TrainSpec | Reason:
    """A train acts, unless it is said that it observes."""
    return build_train(engine.glance(now), wish.but(mode=wish.mode or "act"))


def train_problems(scenario: Scenario) -> Iterator[tuple[int, Reason]]:
    """Trains that can't be built in this fleet, by their place, and why."""
    if not scenario.trains:
        return
    engine, by = Engine(), PEOPLE
    engine.handle(LeaseTaken(at=START, lease=1, by=by))
    engine.handle(CatalogueDeclared(at=START, catalogue=scenario.catalogue, by=by))
    engine.handle(FleetDeclared(at=START, hosts=scenario.fleet.hosts, by=by))
    engine.handle(CapacityDeclared(at=START, capacity=scenario.capacity, by=by))
    for place, wish in enumerate(scenario.trains):
        built = _built(engine, START, wish)
        if isinstance(built, Reason):
            yield place, built
