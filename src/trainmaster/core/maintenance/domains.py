"""Maintenance domains: which units a train takes out together.

A stop interrupts every gang that has a host in its domain, so the best domain holds hosts of one gang. Placement fills
pods and racks in order of declaration, so a gang is a run of neighbours, and a partition into runs hits it in as few
stops as can be: 1 + (J - 1)/d on average for J hosts and domains of d. Hosts spread at random meet it in nearly every
stop.

Rule. A pod of P units makes ceil(P / size) domains, as even as whole racks allow; none is ever above the size. Only a
rack above the size is divided, only pods that fit whole are put together. Units of an `apart` group (replicas of a
chunk, both planes of a rack) never share a domain. They carry no gang, so they may ride anywhere: with their rack, else
in the least filled domain of their pod, else in that of the cluster, else in a new one.

Stable: with the partition `before`, a unit keeps its domain unless that is above the size now, or a group came between.
New racks join the domain of their rack mates, else the one of their pod with the most room, else a new one; so adding
hosts moves none. A train that is under way keeps its promise that way: no host that waits for its stop slips behind it.

Rejected: filling up to the size (a pod of 384 hosts and 47 to a domain leaves a stop for 8 hosts), dividing afresh at
each change (one more rack moves every boundary of its pod), graph partitioning over the gangs of the day (they last for
days, domains for months). Limit: kept domains grow uneven over the years; without `before` all is divided anew.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final, NewType, TypeVar

from trainmaster.core.base.hostlist import fold, sort
from trainmaster.core.base.ids import HostId, PodId, RackId
from trainmaster.core.base.value import Value
from trainmaster.core.fleet.inventory import HostSpec

DomainId = NewType("DomainId", str)
"""POD/NUMBER: the pod in which it was made. A number is not used again while `before` is handed on."""
Gang = TypeVar("Gang", bound=str)

_NONE: Final[Mapping[str, Collection[HostId]]] = {}


class Domain(Value):
    """Units that go out together."""

    id: DomainId
    units: tuple[HostId, ...]
    """In order of declaration."""


class DomainRow(Value):
    """A domain for people."""

    id: DomainId
    hosts: str
    """Folded."""
    units: int
    racks: int
    pods: int


def build(
    units: Sequence[HostSpec], size: int, apart: Mapping[str, Collection[HostId]] = _NONE, before: Sequence[Domain] = ()
) -> tuple[Domain, ...]:
    """A partition of the units of one cluster (or of a pool in it), in the order in which a train visits it.

    `size` is the most units of a domain; `apart` names groups whose members never share one; `before` is the partition
    to keep. Names in `apart` and `before` that are no units are passed over: they left the fleet.
    """
    assert size >= 1, size
    assert len({unit.cluster for unit in units}) <= 1, "one cluster at a time"
    plan = _Plan(units, size, apart)
    plan.keep(before)
    plan.divide()
    plan.spread()
    return plan.domains()


def hits(domain: Domain, memberships: Mapping[Gang, Collection[HostId]]) -> tuple[Gang, ...]:
    """The gangs that a stop of the domain interrupts, in natural order."""
    inside = set(domain.units)
    touched = {str(gang): gang for gang, hosts in memberships.items() if not inside.isdisjoint(hosts)}
    return tuple(touched[name] for name in sort(touched))


def stops_by_gang(domains: Sequence[Domain], memberships: Mapping[Gang, Collection[HostId]]) -> dict[Gang, int]:
    """How many stops of a cycle interrupt each gang; the best possible is 1, or its hosts over the size."""
    number = {unit: place for place, domain in enumerate(domains) for unit in domain.units}
    return {gang: len({number[host] for host in hosts if host in number}) for gang, hosts in memberships.items()}


def expected_hits(domains: Sequence[Domain], memberships: Mapping[Gang, Collection[HostId]]) -> float:
    """Gangs that a stop interrupts, on average over the cycle."""
    return sum(stops_by_gang(domains, memberships).values()) / max(len(domains), 1)


def rows(domains: Sequence[Domain], units: Sequence[HostSpec]) -> tuple[DomainRow, ...]:
    """The partition for people."""
    spec = {unit.id: unit for unit in units}
    return tuple(
        DomainRow(
            id=domain.id,
            hosts=fold(domain.units),
            units=len(domain.units),
            racks=len({spec[unit].rack for unit in domain.units}),
            pods=len({spec[unit].pod for unit in domain.units}),
        )
        for domain in domains
    )


class _Open:
    """A domain that is being filled."""

    __slots__ = ("groups", "number", "pod", "units")

    def __init__(self, pod: PodId, number: int) -> None:
        self.pod, self.number = pod, number
        self.units: list[HostId] = []
        self.groups: set[str] = set()


class _Plan:
    """The partition in the making."""

    def __init__(self, units: Sequence[HostSpec], size: int, apart: Mapping[str, Collection[HostId]]) -> None:
        self.size = size
        self.units = {unit.id: unit for unit in units}
        assert len(self.units) == len(units), "a unit is there twice"
        self.position = {unit: place for place, unit in enumerate(self.units)}
        self.groups: dict[HostId, list[str]] = {}
        for group in sorted(apart):
            for unit in set(apart[group]):
                self.groups.setdefault(unit, []).append(group)
        self.all: list[_Open] = []
        self.by_pod: dict[PodId, list[_Open]] = {}
        """Domains that hold units of a pod; units with groups ride anywhere and do not count."""
        self.of: dict[HostId, _Open] = {}
        self.of_rack: dict[RackId, _Open] = {}
        self.last_number: dict[PodId, int] = {}

    def keep(self, before: Sequence[Domain]) -> None:
        """What had a domain keeps it, as far as size and groups allow."""
        for domain in before:
            name, _, number = domain.id.rpartition("/")
            pod = PodId(name)
            self.last_number[pod] = max(self.last_number.get(pod, 0), int(number))
            kept = _Open(pod, int(number))
            for unit in domain.units:
                if unit in self.units and self._fits(unit, kept):
                    self._put(unit, kept)
            if kept.units:
                self.all.append(kept)

    def divide(self) -> None:
        """Gives the units without a group their domains: pods that are new evenly, racks of old pods where room is."""
        old = {self.units[unit].pod for unit in self.of}
        pods: dict[PodId, dict[RackId, list[HostId]]] = {}
        counts: dict[PodId, int] = {}
        for spec in self.units.values():
            if spec.id in self.of:
                continue
            counts[spec.pod] = counts.get(spec.pod, 0) + 1
            if spec.id not in self.groups:
                pods.setdefault(spec.pod, {}).setdefault(spec.rack, []).append(spec.id)
        small: list[PodId] = []
        for pod, racks in pods.items():
            if pod not in old and counts[pod] <= self.size:
                small.append(pod)
                continue
            self._divide_together(small, pods, counts)
            small = []
            if pod in old:
                self._join(pod, list(racks.values()))
            else:
                self._open_all(pod, even_parts(list(racks.values()), self.size, -(-counts[pod] // self.size)))
        self._divide_together(small, pods, counts)

    def spread(self) -> None:
        """Gives the units with a group theirs: first those that can go with their rack, then the rest, one by one."""
        waiting = []
        for unit in self.units:
            if unit not in self.of:
                mates = self.of_rack.get(self.units[unit].rack)
                if mates is not None and self._fits(unit, mates):
                    self._put(unit, mates)
                else:
                    waiting.append(unit)
        roomy = [each for each in self.all if len(each.units) < self.size]
        for unit in waiting:
            pod = self.units[unit].pod
            target = self._least_filled(unit, self.by_pod.get(pod, ())) or self._least_filled(unit, roomy)
            if target is None:
                target = self._open(pod)
                roomy.append(target)
            self._put(unit, target)
            if len(target.units) == self.size:
                roomy = [each for each in roomy if each is not target]

    def domains(self) -> tuple[Domain, ...]:
        assert len(self.of) == len(self.units), "a unit has no domain"
        made = []
        for each in self.all:
            assert 1 <= len(each.units) <= self.size, each.pod
            units = tuple(sorted(each.units, key=self.position.__getitem__))
            made.append(Domain(id=DomainId(f"{each.pod}/{each.number}"), units=units))
        first_of_pod: dict[str, int] = {}
        for spec in self.units.values():
            first_of_pod.setdefault(spec.pod, self.position[spec.id])
        end = len(self.units)
        return tuple(sorted(made, key=lambda domain: _visit_key(domain, first_of_pod, end)))

    def _divide_together(
        self, small: list[PodId], pods: Mapping[PodId, Mapping[RackId, list[HostId]]], counts: Mapping[PodId, int]
    ) -> None:
        """Neighbouring pods that fit whole: as many together as the size allows."""
        if not small:
            return
        whole = [[unit for rack in pods[pod].values() for unit in rack] for pod in small]
        least = -(-sum(counts[pod] for pod in small) // self.size)
        for part in even_parts(whole, self.size, least):
            self._open_all(self.units[part[0]].pod, [part])

    def _join(self, pod: PodId, racks: Iterable[list[HostId]]) -> None:
        """New racks of a pod that has domains."""
        for rack in (part for whole in racks for part in _pieces(whole, self.size)):
            mates = self.of_rack.get(self.units[rack[0]].rack)
            if mates is None or len(mates.units) + len(rack) > self.size:
                mates = min(self.by_pod.get(pod, ()), key=lambda each: len(each.units), default=None)
            if mates is None or len(mates.units) + len(rack) > self.size:
                mates = self._open(pod)
            for unit in rack:
                self._put(unit, mates)

    def _open_all(self, pod: PodId, parts: Iterable[list[HostId]]) -> None:
        for part in parts:
            opened = self._open(pod)
            for unit in part:
                self._put(unit, opened)

    def _open(self, pod: PodId) -> _Open:
        self.last_number[pod] = self.last_number.get(pod, 0) + 1
        opened = _Open(pod, self.last_number[pod])
        self.all.append(opened)
        return opened

    def _fits(self, unit: HostId, domain: _Open) -> bool:
        return len(domain.units) < self.size and domain.groups.isdisjoint(self.groups.get(unit, ()))

    def _put(self, unit: HostId, domain: _Open) -> None:
        assert unit not in self.of, unit
        spec = self.units[unit]
        domain.units.append(unit)
        self.of[unit] = domain
        if unit in self.groups:
            domain.groups.update(self.groups[unit])
            return
        self.of_rack.setdefault(spec.rack, domain)
        known = self.by_pod.setdefault(spec.pod, [])
        if not known or (known[-1] is not domain and domain not in known):
            known.append(domain)

    def _least_filled(self, unit: HostId, among: Iterable[_Open]) -> _Open | None:
        fitting = (each for each in among if self._fits(unit, each))
        return min(fitting, key=lambda each: len(each.units), default=None)


def even_parts(items: Sequence[list[HostId]], size: int, least: int = 1) -> list[list[HostId]]:
    """Runs of whole items (racks of a pod, or pods): as few as the size allows but not below `least`, and even.

    An item whose middle lies in the k-th n-th of all units goes to the k-th run; for equal items the runs then differ
    by one item at most. Where unequal items overfill a run that way, runs are filled up to the smallest limit that
    needs no more of them. Items above the size are cut into even pieces first.
    """
    assert size >= 1, size
    pieces = [piece for item in items for piece in _pieces(item, size)]
    total = sum(len(piece) for piece in pieces)
    count = max(len(_filled(pieces, size)), least)
    runs: list[list[HostId]] = [[] for _ in range(count)]
    passed = 0
    for piece in pieces:
        runs[(2 * passed + len(piece)) * count // (2 * total)] += piece
        passed += len(piece)
    if max((len(run) for run in runs), default=0) > size:
        low, high = -(-total // count), size
        while low < high:
            middle = (low + high) // 2
            low, high = (low, middle) if len(_filled(pieces, middle)) <= count else (middle + 1, high)
        runs = _filled(pieces, low)
    return [run for run in runs if run]


def _filled(pieces: Iterable[list[HostId]], limit: int) -> list[list[HostId]]:
    """Runs that are filled one after the other. A piece above the limit makes a run of its own."""
    runs: list[list[HostId]] = []
    for piece in pieces:
        if runs and len(runs[-1]) + len(piece) <= limit:
            runs[-1] += piece
        else:
            runs.append(list(piece))
    return runs


def _pieces(item: list[HostId], size: int) -> list[list[HostId]]:
    """The item, or even pieces of it if it is above the size."""
    count = -(-len(item) // size)
    return [item[len(item) * part // count : len(item) * (part + 1) // count] for part in range(count)]


def _visit_key(domain: Domain, first_of_pod: Mapping[str, int], end: int) -> tuple[int, int]:
    """Pod after pod, in each by number; domains whose pod has left the fleet last."""
    pod, _, number = domain.id.rpartition("/")
    return first_of_pod.get(pod, end), int(number)
