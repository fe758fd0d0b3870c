"""Where a gang goes, in its first form: all or nothing, within one cluster, on hosts that agree, close together.

The hosts of an attempt agree on every component that is marked so; the versions of those make up a host's *stack*, one
word, and hosts with equal words may share a job. Of the groups (cluster and stack) that hold the whole gang take the
smallest. In it take the pod with the fewest free hosts that holds the gang (large holes stay for large gangs); within
it the racks with the most free hosts first (few racks, little traffic above them). If no pod is large enough, take
pods from the fullest hole down. Spares come from what is left nearest: same pods first. The index keeps hosts by group,
pod and rack, so a placement costs what it takes and the number of pods and racks it looks at, not the fleet.

Hosts that are known to be bad, and serve because nobody may take them out, come last: after every other host of their
group, as members and as spares. They lie aside in the index, so where none is bad this costs nothing. It is a
preference: a gang that would not fit without them gets them.
"""

from collections.abc import Collection, Iterator

from trainmaster.core.base.ids import ClusterId, HostId, PodId, RackId
from trainmaster.core.base.reasons import Reason, Token
from trainmaster.core.base.value import Value
from trainmaster.core.fleet.inventory import HostSpec

_Rack = dict[HostId, int]
Group = tuple[ClusterId, str]
"""A cluster and a stack: hosts that may share a job."""

STACKS_TOLD = 3


class Placement(Value):
    cluster: ClusterId
    stack: str
    members: tuple[HostId, ...]
    """In rank order, which is the order of declaration."""
    spares: tuple[HostId, ...]


class FreeIndex:
    """Free hosts by cluster, stack, pod and rack; host -> position of declaration."""

    def __init__(self) -> None:
        self._groups: dict[Group, dict[PodId, dict[RackId, _Rack]]] = {}
        self._pod_counts: dict[Group, dict[PodId, int]] = {}
        self._counts: dict[Group, int] = {}
        """Of those that are not bad, as the two above."""
        self._bad: dict[Group, _Rack] = {}
        self._where: dict[HostId, tuple[HostSpec, Group]] = {}

    def __contains__(self, host: HostId) -> bool:
        return host in self._where

    def add(self, spec: HostSpec, position: int, stack: str = "", is_bad: bool = False) -> None:
        assert spec.id not in self._where, spec.id
        group = (spec.cluster, stack)
        self._where[spec.id] = (spec, group)
        if is_bad:
            self._bad.setdefault(group, {})[spec.id] = position
            return
        self._groups.setdefault(group, {}).setdefault(spec.pod, {}).setdefault(spec.rack, {})[spec.id] = position
        counts = self._pod_counts.setdefault(group, {})
        counts[spec.pod] = counts.get(spec.pod, 0) + 1
        self._counts[group] = self._counts.get(group, 0) + 1

    def remove(self, host: HostId) -> None:
        spec, group = self._where.pop(host)
        aside = self._bad.get(group)
        if aside is not None and host in aside:
            del aside[host]
            if not aside:
                del self._bad[group]
            return
        racks = self._groups[group][spec.pod]
        del racks[spec.rack][host]
        if not racks[spec.rack]:
            del racks[spec.rack]
        self._pod_counts[group][spec.pod] -= 1
        self._counts[group] -= 1
        assert self._counts[group] >= 0, group

    def mark(self, host: HostId, position: int, is_bad: bool) -> None:
        """A free host is known to be bad now, or is no longer."""
        spec, group = self._where[host]
        if is_bad != (host in self._bad.get(group, ())):
            self.remove(host)
            self.add(spec, position, group[1], is_bad)

    def count(self, cluster: ClusterId, stack: str) -> int:
        """Free hosts of a cluster that have this stack."""
        return self._count((cluster, stack))

    def _count(self, group: Group) -> int:
        return self._counts.get(group, 0) + len(self._bad.get(group, ()))

    def _all(self) -> list[tuple[Group, int]]:
        """Groups with their free hosts, good or bad."""
        if not self._bad:
            return list(self._counts.items())
        return [(group, self._count(group)) for group in {**self._counts, **self._bad}]

    def holds(self, cluster: ClusterId, hosts: int) -> bool:
        """Whether so many free hosts of a cluster agree."""
        return any(name == cluster and count >= hosts for (name, _), count in self._all())

    def counts(self) -> dict[ClusterId, int]:
        """Free hosts by cluster, whatever their stacks."""
        found: dict[ClusterId, int] = {}
        for (cluster, _), count in sorted(self._all()):
            if count:
                found[cluster] = found.get(cluster, 0) + count
        return found

    def nearest(self, cluster: ClusterId, stack: str, wanted: int, without: Collection[HostId] = ()) -> list[HostId]:
        """Up to `wanted` free hosts with this stack, close together, best first; none of `without`."""
        assert wanted > 0, wanted
        taken: list[HostId] = []
        for host, _ in self._walk((cluster, stack), wanted):
            if host not in without:
                taken.append(host)
                if len(taken) == wanted:
                    break
        return taken

    def place(self, hosts: int, spares: int) -> Placement | Reason:
        """A placement of a gang, or the reason why there is none."""
        assert hosts >= 1, hosts
        fitting = [(count, group) for group, count in self._counts.items() if count >= hosts]
        if not fitting and self._bad:
            fitting = [(count, group) for group, count in self._all() if count >= hosts]
        if not fitting:
            return self._refusal(hosts)
        _, group = min(fitting)
        found: list[tuple[HostId, int]] = []
        for item in self._walk(group, hosts):
            found.append(item)
            if len(found) == hosts + spares:
                break
        members = sorted(found[:hosts], key=lambda item: item[1])
        return Placement(
            cluster=group[0],
            stack=group[1],
            members=tuple(host for host, _ in members),
            spares=tuple(host for host, _ in found[hosts:]),
        )

    def _refusal(self, hosts: int) -> Reason:
        counts = self.counts()
        most = max(counts.values(), default=0)
        if most >= hosts:
            return self._mixed(hosts, min((-count, cluster) for cluster, count in counts.items())[1])
        sentence = f"wants {hosts} hosts in one cluster; the most that are free in one are {most}"
        return Reason(
            token=Token.NOT_ENOUGH_HOSTS,
            sentence=sentence,
            numbers={"wanted": hosts, "free": most, "short": hosts - most},
        )

    def _mixed(self, hosts: int, cluster: ClusterId) -> Reason:
        """Enough hosts are free, but they do not agree."""
        stacks = sorted((-count, stack) for (name, stack), count in self._all() if name == cluster and count)
        told = ", ".join(f"{-count} have {stack or 'no known versions'}" for count, stack in stacks[:STACKS_TOLD])
        agree = -stacks[0][0]
        sentence = f"wants {hosts} hosts that agree; of those that are free in {cluster} {told}"
        return Reason(
            token=Token.MIXED_VERSIONS,
            sentence=sentence,
            numbers={"wanted": hosts, "agree": agree, "stacks": len(stacks), "short": hosts - agree},
        )

    def _walk(self, group: Group, wanted: int) -> Iterator[tuple[HostId, int]]:
        """Free hosts of a group with their positions, in the order in which a gang of `wanted` takes them."""
        counts = self._pod_counts.get(group, {})
        first = min([(count, pod) for pod, count in counts.items() if count >= wanted], default=None)
        if first is not None:
            yield from self._of_pod(group, first[1])
        rest = sorted([(-count, pod) for pod, count in counts.items() if count])
        for _, pod in rest:
            if first is None or pod != first[1]:
                yield from self._of_pod(group, pod)
        yield from sorted(self._bad.get(group, {}).items(), key=_position)

    def _of_pod(self, group: Group, pod: PodId) -> Iterator[tuple[HostId, int]]:
        """Racks with the most free hosts first; of equals that which was declared first."""
        by_size: dict[int, list[_Rack]] = {}
        for rack in self._groups[group][pod].values():
            by_size.setdefault(len(rack), []).append(rack)
        for size in sorted(by_size, reverse=True):
            for rack in sorted(by_size[size], key=_first_position):
                yield from sorted(rack.items(), key=_position)


def _first_position(rack: _Rack) -> int:
    return min(rack.values())


def _position(item: tuple[HostId, int]) -> int:
    return item[1]
