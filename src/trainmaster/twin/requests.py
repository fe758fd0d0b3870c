"""What people and services ask of a simulated fleet: quiet operations at all times, disruptive ones in stops.

Quiet ones (nothing leaves production) come one by one, as a Poisson stream. Disruptive ones come as stops that go round
each cluster: neighbouring hosts get a few different updates each, and a few other operations come with them, anywhere;
what is wider (a rack's power shelf) comes by itself. A kind is drawn first, by its weight, then one of the resources
that it is for. Every operation is requested by itself: whatever is shared is shared by the planner.

Versions are numbers above all that rules ask for at least, and components that must have the same version come
together, so no host is kept out by a rule, unless one of the two fails; such hosts get both again once a day.

Left out, and named: kinds whose work could never be allowed (a pod that must go dark when a buffer holds half of it),
and components that must agree over the hosts of a job, which take the whole gang at once.
"""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

from trainmaster.core.base.ids import ClusterId, ComponentName, HostId, operation_id
from trainmaster.core.base.seed import Stream
from trainmaster.core.base.time import Instant
from trainmaster.core.fleet.inventory import HostSpec
from trainmaster.core.fleet.lifecycle import HostState
from trainmaster.core.maintenance.capacity import counted
from trainmaster.core.maintenance.catalogue import UPGRADE, Component, Kind, Priority, Rule, takes_capacity
from trainmaster.core.maintenance.events import OperationSpec
from trainmaster.core.maintenance.ledger import Ledger, Side
from trainmaster.core.maintenance.scope import KINDS, ResourceIndex, Scope
from trainmaster.core.maintenance.visit import VERSIONS
from trainmaster.twin.chance import Weighted
from trainmaster.twin.scenario import DAY, HIGH, SETTLING, START

if TYPE_CHECKING:
    from trainmaster.twin.world import World

Work = Component | Kind
_PRIORITIES: Final = (Priority.PLANNED, Priority.PLANNED, Priority.PLANNED, Priority.BACKGROUND)


class Target:
    """A kind of work, and the resources that it can be asked for."""

    __slots__ = ("component", "group", "kind", "scopes", "width", "work")

    def __init__(self, work: Work, scopes: tuple[str, ...]) -> None:
        self.work, self.scopes = work, scopes
        self.kind = UPGRADE if isinstance(work, Component) else work.name
        self.component = work.name if isinstance(work, Component) else ComponentName("")
        self.width = work.scope
        self.group: tuple[Target, ...] = (self,)
        """What is asked for together with it on a unit, itself included."""


class Requests:
    def __init__(self, world: "World") -> None:
        self.world = world
        mix, scenario = world.scenario.operations, world.scenario
        self.mix = mix
        self.requested: dict[str, int] = {"quiet": 0, "disruptive": 0, "wide": 0}
        self.widths: dict[str, int] = {}
        self.names: dict[str, int] = {}
        """By kind or component."""
        self.stops = 0
        targets, self.left_out = _targets(scenario.catalogue.components + scenario.catalogue.kinds, world)
        _group(targets, scenario.catalogue.rules)
        quiet = [target for target in targets if not takes_capacity(target.work)]
        disruptive = [target for target in targets if takes_capacity(target.work)]
        self._updates = [target for target in disruptive if _is_update(target)]
        singles = [target for target in disruptive if target.width == "host" and not _is_update(target)]
        self._quiet_narrow = self._weighted(target for target in quiet if target.width == "host")
        self._quiet_wide = self._weighted(target for target in quiet if target.width != "host")
        self._singles = self._weighted(singles)
        self._wide = self._weighted(target for target in disruptive if target.width != "host")
        self._chance = Stream.of(scenario.seed, "requests", "quiet")
        self._stop_chance = Stream.of(scenario.seed, "requests", "stops")
        self._wide_chance = Stream.of(scenario.seed, "requests", "wide")
        self._hosts = _by_cluster(scenario.fleet.hosts)
        self._next_host = dict.fromkeys(self._hosts, 0)

    def _weighted(self, targets: Iterable[Target]) -> Weighted[Target] | None:
        """None if there is nothing to draw from."""
        pairs = [(target, self.mix.weight(target.work.name)) for target in targets]
        return Weighted(pairs) if any(weight for _, weight in pairs) else None

    def start(self) -> None:
        """Sets the first timer of each source."""
        mix, kernel = self.mix, self.world.kernel
        quiet = mix.per_day - mix.disruptive_per_day
        if quiet > 0 and self._quiet_narrow is not None:
            self._gap = DAY / quiet
            kernel.after(SETTLING, self._quiet_one, None)
        wide = mix.disruptive_per_day * mix.disruptive_wide_share if self._wide is not None else 0
        if wide > 0:
            self._wide_gap = DAY / wide
            kernel.after(2 * SETTLING, self._wide_one, None)
        if mix.disruptive_per_day > 0 and self._updates and self._hosts:
            hosts = min(mix.stop_hosts, min(map(len, self._hosts.values())))
            each = hosts * min(mix.bundle, len(self._updates)) + (mix.singles if self._singles is not None else 0)
            self._stop_gap = round(DAY * each / max(mix.disruptive_per_day - wide, 1))
            kernel.after(2 * SETTLING, self._stop, tuple(sorted(self._hosts)))
            kernel.after(DAY, self._mend, None)

    def _quiet_one(self, _: None) -> None:
        chance, targets = self._chance, self._quiet_narrow
        if chance.uniform() < self.mix.wide_share and self._quiet_wide is not None:
            targets = self._quiet_wide
        assert targets is not None
        target = targets.draw(chance)
        self._request(target, target.scopes[chance.integer(len(target.scopes))], chance, "quiet")
        self.world.kernel.after(max(1, round(chance.exponential(self._gap))), self._quiet_one, None)

    def _wide_one(self, _: None) -> None:
        chance = self._wide_chance
        assert self._wide is not None
        target = self._wide.draw(chance)
        self._request(target, chance.choice(target.scopes), chance, "disruptive")
        self.world.kernel.after(max(1, round(chance.exponential(self._wide_gap))), self._wide_one, None)

    def _stop(self, clusters: tuple[ClusterId, ...]) -> None:
        """The next neighbours of the cluster whose turn it is, and what comes with them."""
        cluster, chance = clusters[0], self._stop_chance
        hosts, first = self._hosts[cluster], self._next_host[cluster]
        chosen = [hosts[(first + place) % len(hosts)] for place in range(min(self.mix.stop_hosts, len(hosts)))]
        self._next_host[cluster] = (first + len(chosen)) % len(hosts)
        self.stops += 1
        shuffled = [target for first in chance.shuffled(self._updates) for target in first.group]
        updates = list(dict.fromkeys(shuffled))[: self.mix.bundle]
        updates = list(dict.fromkeys(target for each in updates for target in each.group))
        for host in chosen:
            for target in updates:
                self._request(target, f"host/{host.id}", chance, "disruptive")
        for _ in range(self.mix.singles if self._singles is not None else 0):
            assert self._singles is not None
            target = self._singles.draw(chance)
            scope = chance.choice(target.scopes)
            for each in target.group:
                self._request(each, scope, chance, "disruptive")
        self.world.kernel.after(self._stop_gap, self._stop, (*clusters[1:], cluster))

    def _mend(self, _: None) -> None:
        """Hosts that a rule keeps out, since one of its two updates failed, get them again."""
        state = self.world.engine.state
        together = [target for target in self._updates if len(target.group) > 1]
        for name, host in state.hosts.items():
            if host.state is not HostState.OUT_PLANNED or host.spec.kind != "compute":
                continue
            if name not in state.maintenance.visits and host.hold_of(VERSIONS):
                for target in together:
                    self._request(target, f"host/{name}", self._stop_chance, "disruptive")
        self.world.kernel.after(DAY, self._mend, None)

    def _request(self, target: Target, scope: str, chance: Stream, source: str) -> None:
        self.requested[source] += 1
        self.requested["wide"] += target.width != "host"
        self.widths[target.width] = self.widths.get(target.width, 0) + 1
        self.names[target.work.name] = self.names.get(target.work.name, 0) + 1
        version = version_of(self.world.kernel.now, self.mix.release_days) if target.component else ""
        spec = OperationSpec(
            kind=target.kind,
            scope=(scope,),
            component=target.component,
            version=version,
            priority=_PRIORITIES[chance.word() & 3],
        )
        inputs = self.world.inputs
        if inputs is None:
            self.world.request(spec, source)
            return
        name, what = inputs.next_name("r"), f"{spec.component} {spec.version}" if spec.component else spec.kind
        if self.world.knows(spec.scope) and inputs.admits(name, self.world.kernel.now, f"{what} on {scope}"):
            inputs.requested(name, operation_id(self.world.engine.state.maintenance.requested + 1))
            self.world.request(spec, source)


def version_of(now: Instant, release_days: int) -> str:
    """The newest release of every component; the first hosts have release 0."""
    return f"{HIGH}.{1 + (now - START) // DAY // release_days}"


def _group(targets: list[Target], rules: Iterable[Rule]) -> None:
    """Puts components together that must have the same version."""
    by_name = {target.component: target for target in targets if target.component}
    for rule in rules:
        one, other = by_name.get(rule.when.component), by_name.get(rule.needs.component)
        if rule.same and one is not None and other is not None:
            group = tuple(dict.fromkeys((*other.group, *one.group)))
            for target in group:
                target.group = group


def _is_update(target: Target) -> bool:
    """A component of compute hosts by themselves: what stops bring."""
    work = target.work
    return isinstance(work, Component) and work.scope == "host" and "compute" in work.units


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
    kinds: dict[HostId, str] = {host.id: host.kind for host in hosts}
    targets: list[Target] = []
    left_out: list[str] = []
    for work in works:
        if isinstance(work, Kind) and (work.repairs or work.name == UPGRADE):
            continue
        if work.name in world.carried.released:
            continue  # trains bring it
        if isinstance(work, Component) and work.job_consistent:
            left_out.append(work.name)
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


def _fits(name: str, work: Work, index: ResourceIndex, ledger: Ledger, kinds: Mapping[HostId, str]) -> bool:
    """The resource has a unit that the work is for, and planned work may ever take all of them."""
    scope = index.resolve((name,))
    assert isinstance(scope, Scope), name
    units = index.scope_units(scope)
    by_controller = "controller" in work.units and work.scope != "host"
    if not by_controller and not any(kinds[unit] in work.units for unit in units):
        return False
    taken = [unit for unit in units if kinds[unit] != "controller"]
    return not takes_capacity(work) or (bool(taken) and ledger.never(taken) is None)
