"""What simulated units carry, and what is true of it: known to the world, never to a policy.

The engine knows what it observed. A unit carries what was really installed there, also when it went down before anybody
could look; it tells so when it registers. And a release may be bad in two ways that nobody is told:

    fails_return     so many of the units do not come back from the upgrade: at its reboot, or when they are verified
    failure_factor   units that carry it fail so many times as often while a job loads them

Who does not come back is drawn by unit and version, so the same unit fails again at a second try. The failures that a
version adds are a process of their own: those that happen anyway stay where they are.
"""

from typing import TYPE_CHECKING, Final

from trainmaster.core.base.ids import ComponentName, HostId
from trainmaster.core.fleet.inventory import UnitKind
from trainmaster.twin.chance import Poisson, Purpose, happens
from trainmaster.twin.scenario import HIGH, Release, Scenario

if TYPE_CHECKING:
    from trainmaster.twin.world import Unit, World

FIRST: Final = "1"
"""What new units have of a released component, unless rules speak of it."""

Versions = dict[ComponentName, str]
_NOTHING: Final[Versions] = {}


class Carried:
    def __init__(self, world: "World") -> None:
        self.world = world
        scenario = world.scenario
        self.released = {release.component for release in scenario.releases}
        self.truth = {(release.component, release.version): release for release in scenario.releases}
        self.first = first_versions(scenario)
        self.by_unit: dict[HostId, Versions] = {}
        """Of released components, where it is not the first version."""
        self.fresh: dict[HostId, list[Release]] = {}
        """Releases that were installed on a unit and that it has not come back with yet."""
        self.extra_failures = 0
        self._returns = Purpose(scenario.seed, "returns")
        self._failures = Purpose(scenario.seed, "failures of releases")
        self._times: dict[tuple[HostId, ComponentName], int] = {}
        """How often a component was installed on a unit."""

    def told(self, unit: "Unit") -> Versions:
        """What the unit's agent sees when it registers. What never changed is told once."""
        carried = self.by_unit.get(unit.id, _NOTHING)
        return {**self.first[unit.kind], **carried} if unit.boot == 1 else carried

    def version(self, unit: HostId, kind: UnitKind, component: ComponentName) -> str:
        return self.by_unit.get(unit, _NOTHING).get(component) or self.first[kind].get(component, "")

    def installed(self, unit: "Unit", component: ComponentName, version: str) -> None:
        """Steps have brought this version to the unit."""
        if component not in self.released:
            return
        self.by_unit[unit.id] = {**self.by_unit.get(unit.id, _NOTHING), component: version}
        times = self._times[unit.id, component] = self._times.get((unit.id, component), 0) + 1
        release = self.truth.get((component, version))
        if release is None:
            return
        if release.fails_return > 0:
            self.fresh.setdefault(unit.id, []).append(release)
        rate = self.world.scenario.failures.per_thousand_host_days * (release.failure_factor - 1)
        if rate > 0 and unit.kind == "compute":
            self._plan((unit, release, times, Poisson.of_nodes(rate)))

    def comes_back(self, unit: "Unit") -> bool:
        """Whether the unit comes up with what was installed on it since it was last up."""
        fresh = self.fresh.pop(unit.id, None)
        return fresh is None or all(self._comes_back(unit, release) for release in fresh)

    def _comes_back(self, unit: "Unit", release: Release) -> bool:
        stream = self._returns.stream(f"{unit.id}/{release.component}/{release.version}")
        return not happens(stream, release.fails_return)

    def _plan(self, told: tuple["Unit", Release, int, Poisson]) -> None:
        unit, release, times, law = told
        kernel = self.world.kernel
        stream = self._failures.stream(f"{unit.id}/{release.component}/{times}/{kernel.now}")
        kernel.at(law.following(stream, kernel.now), self._fail, told)

    def _fail(self, told: tuple["Unit", Release, int, Poisson]) -> None:
        """A failure that the version adds, if the unit carries it still and a job loads it."""
        unit, release, times, _ = told
        if self._times[unit.id, release.component] != times:
            return
        if unit.up and self.world.engine.state.hosts[unit.id].role == "member":
            self.extra_failures += 1
            self.world.break_down(unit, self._failures.stream(f"{unit.id}/{self.world.kernel.now}"))
        self._plan(told)


def first_versions(scenario: Scenario) -> dict[UnitKind, Versions]:
    """What new units have of the components that rules speak of, and of those that have releases."""
    catalogue = scenario.catalogue
    named = {pin.component for rule in catalogue.rules for pin in (rule.when, rule.needs)}
    named |= {rule.only_with for rule in catalogue.rules}
    released = {release.component for release in scenario.releases}
    versions = {one.name: f"{HIGH}.0" if one.name in named else FIRST for one in catalogue.components}
    told = [one for one in catalogue.components if one.name in named or one.name in released]
    kinds: tuple[UnitKind, ...] = ("compute", "storage", "switch", "controller")
    return {kind: {one.name: versions[one.name] for one in told if kind in one.units} for kind in kinds}
