"""What people and services ask of a simulated fleet: quiet operations at all times, disruptive ones in stops.

Quiet ones (nothing leaves production) come one by one, as a Poisson stream. Disruptive ones come as stops of a train
that goes round each cluster: neighbouring hosts get a few different operations each; what is wider (a rack's power
shelf) comes by itself. A kind is drawn first, evenly, so that every kind happens; then one of the resources that it is
for. Every operation is requested by itself: whatever is shared is shared by the planner.

Kinds whose work could never be allowed (a pod that must go dark when a buffer holds half of it) are left out and
named.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from trainmaster.core.base.ids import ClusterId
from trainmaster.core.base.seed import Stream
from trainmaster.core.fleet.inventory import HostSpec
from trainmaster.core.maintenance.capacity import counted
from trainmaster.core.maintenance.catalogue import UPGRADE, Component, Kind, Priority, takes_capacity
from trainmaster.core.maintenance.events import OperationSpec
from trainmaster.core.maintenance.ledger import Ledger, Side
from trainmaster.core.maintenance.scope import KINDS, ResourceIndex, Scope
from trainmaster.twin.scenario import DAY, SETTLING

if TYPE_CHECKING:
    from trainmaster.twin.world import World

Work = Component | Kind
_PRIORITIES: Final = (Priority.PLANNED, Priority.PLANNED, Priority.PLANNED, Priority.BACKGROUND)


class Target:
    """A kind of work, and the resources that it can be asked for."""

    __slots__ = ("component", "kind", "scopes", "width", "work")

    def __init__(self, work: Work, scopes: tuple[str, ...]) -> None:
        self.work, self.scopes = work, scopes
        self.kind = UPGRADE if isinstance(work, Component) else work.name
        self.component = work.name if isinstance(work, Component) else ""
        self.width = work.scope


class Requests:
    def __init__(self, world: "World") -> None:
        self.world = world
        mix, scenario = world.scenario.operations, world.scenario
        self.mix = mix
        self.requested: dict[str, int] = {"quiet": 0, "disruptive": 0, "wide": 0}
        self.widths: dict[str, int] = {}
        self.stops = 0
        targets, self.left_out = _targets(scenario.catalogue.components + scenario.catalogue.kinds, world)
        self._quiet = [target for target in targets if not takes_capacity(target.work)]
        self._disruptive = [target for target in targets if takes_capacity(target.work)]
        self._quiet_narrow, self._quiet_wide = _split(self._quiet)
        narrow, self._disruptive_wide = _split(self._disruptive)
        self._stop_works = [target for target in narrow if "compute" in target.work.units]
        self._other_units = [target for target in narrow if "compute" not in target.work.units]
        self._chance = Stream.of(scenario.seed, "requests", "quiet")
        self._stop_chance = Stream.of(scenario.seed, "requests", "stops")
        self._hosts = _by_cluster(scenario.fleet.hosts)
        self._next_host = dict.fromkeys(self._hosts, 0)

    def start(self) -> None:
        quiet = self.mix.per_day - self.mix.disruptive_per_day
        if quiet > 0 and self._quiet:
            self._gap = DAY / quiet
            self.world.kernel.after(SETTLING, self._quiet_one, None)
        if self.mix.disruptive_per_day > 0 and self._stop_works:
            each = self.mix.stop_hosts * min(self.mix.bundle, len(self._stop_works))
            wide = self.mix.disruptive_per_day * self.mix.wide_share if self._disruptive_wide else 0
            stops_a_day = max(self.mix.disruptive_per_day - wide, 1) / each
            self._stop_gap = round(DAY / stops_a_day)
            self.world.kernel.after(2 * SETTLING, self._stop, tuple(sorted(self._hosts)))
            if wide:
                self._wide_gap = DAY / wide
                self.world.kernel.after(2 * SETTLING, self._wide_one, None)

    def _quiet_one(self, _: None) -> None:
        chance = self._chance
        wide = chance.uniform() < self.mix.wide_share and self._quiet_wide
        target = chance.choice(self._quiet_wide if wide else self._quiet_narrow or self._quiet)
        self._request(target, target.scopes[chance.integer(len(target.scopes))], chance, "quiet")
        self.world.kernel.after(max(1, round(chance.exponential(self._gap))), self._quiet_one, None)

    def _wide_one(self, _: None) -> None:
        chance = self._stop_chance
        target = chance.choice(self._disruptive_wide)
        self._request(target, chance.choice(target.scopes), chance, "disruptive")
        self.world.kernel.after(max(1, round(chance.exponential(self._wide_gap))), self._wide_one, None)

    def _stop(self, clusters: tuple[ClusterId, ...]) -> None:
        """The next neighbours of the cluster whose turn it is; now and then the other kinds of unit too."""
        cluster, chance = clusters[0], self._stop_chance
        hosts, first = self._hosts[cluster], self._next_host[cluster]
        chosen = [hosts[(first + place) % len(hosts)] for place in range(min(self.mix.stop_hosts, len(hosts)))]
        self._next_host[cluster] = (first + len(chosen)) % len(hosts)
        self.stops += 1
        works = chance.shuffled(self._stop_works)[: self.mix.bundle]
        for host in chosen:
            for target in works:
                self._request(target, f"host/{host.id}", chance, "disruptive")
        if self._other_units:
            target = chance.choice(self._other_units)
            self._request(target, chance.choice(target.scopes), chance, "disruptive")
        self.world.kernel.after(self._stop_gap, self._stop, (*clusters[1:], cluster))

    def _request(self, target: Target, scope: str, chance: Stream, source: str) -> None:
        self.requested[source] += 1
        self.requested["wide"] += target.width != "host"
        self.widths[target.width] = self.widths.get(target.width, 0) + 1
        version = str(1 + (self.world.kernel.now // DAY) // self.mix.release_days) if target.component else ""
        priority = _PRIORITIES[chance.integer(4)]
        spec = OperationSpec(
            kind=target.kind,
            scope=(scope,),
            component=target.component,  # type: ignore[arg-type]
            version=version,
            priority=priority,
        )
        self.world.request(spec, source)


def _split(targets: list[Target]) -> tuple[list[Target], list[Target]]:
    narrow = [target for target in targets if target.width == "host"]
    return narrow, [target for target in targets if target.width != "host"]


def _by_cluster(hosts: Iterable[HostSpec]) -> dict[ClusterId, list[HostSpec]]:
    found: dict[ClusterId, list[HostSpec]] = {}
    for host in hosts:
        if host.kind == "compute":
            found.setdefault(host.cluster, []).append(host)
    return found


def _targets(works: Iterable[Work], world: "World") -> tuple[list[Target], tuple[str, ...]]:
    """What can be asked for, and the names of what never can."""
    hosts = world.scenario.fleet.hosts
    index = ResourceIndex()
    for host in hosts:
        index.add(host)
    ledger = Ledger(world.scenario.capacity, (counted(host) for host in hosts))
    for host in hosts:
        ledger.set_side(host.id, Side.IN_SERVICE)
    kinds = {host.id: host.kind for host in hosts}
    targets: list[Target] = []
    left_out: list[str] = []
    for work in works:
        if isinstance(work, Kind) and (work.repairs or work.name == UPGRADE):
            continue
        width = "rack" if work.scope == "selection" else work.scope
        assert width in KINDS, width
        scopes = [name for name in map(index.name, range(len(index))) if name.startswith(f"{width}/")]
        scopes = [name for name in scopes if _fits(name, work, index, ledger, kinds)]
        if scopes:
            targets.append(Target(work, tuple(scopes)))
        else:
            left_out.append(work.name)
    return targets, tuple(left_out)


def _fits(name: str, work: Work, index: ResourceIndex, ledger: Ledger, kinds: dict[str, str]) -> bool:
    """The resource has a unit that the work is for, and planned work may ever take all of them."""
    scope = index.resolve((name,))
    assert isinstance(scope, Scope), name
    units = index.scope_units(scope)
    if not any(kinds[unit] in work.units for unit in units):
        return False
    taken = [unit for unit in units if kinds[unit] != "controller"]
    return not takes_capacity(work) or (bool(taken) and ledger.never(taken) is None)
