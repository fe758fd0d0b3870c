"""Where a gang goes, in its first form: all or nothing, within one cluster, close together.

Take the pod with the fewest free hosts that holds the whole gang (large holes stay for large gangs); within it the
racks with the most free hosts first (few racks, little traffic above them). If no pod is large enough, take pods from
the fullest hole down. Spares come from what is left nearest: same pods first. The index keeps hosts by cluster, pod
and rack, so a placement costs what it takes and the number of pods and racks it looks at, not the fleet.
"""

from collections.abc import Collection, Iterator

from trainmaster.core.base.ids import ClusterId, HostId, PodId, RackId
from trainmaster.core.base.reasons import Reason, Token
from trainmaster.core.base.value import Value
from trainmaster.core.fleet.inventory import HostSpec

_Rack = dict[HostId, int]


class Placement(Value):
    cluster: ClusterId
    members: tuple[HostId, ...]
    """In rank order, which is the order of declaration."""
    spares: tuple[HostId, ...]


class FreeIndex:
    """Free hosts by cluster, pod and rack; host -> position of declaration."""

    def __init__(self) -> None:
        self._clusters: dict[ClusterId, dict[PodId, dict[RackId, _Rack]]] = {}
        self._pod_counts: dict[tuple[ClusterId, PodId], int] = {}
        self._counts: dict[ClusterId, int] = {}
        self._where: dict[HostId, HostSpec] = {}

    def __contains__(self, host: HostId) -> bool:
        return host in self._where

    def add(self, spec: HostSpec, position: int) -> None:
        assert spec.id not in self._where, spec.id
        self._where[spec.id] = spec
        self._clusters.setdefault(spec.cluster, {}).setdefault(spec.pod, {}).setdefault(spec.rack, {})[spec.id] = (
            position
        )
        self._pod_counts[spec.cluster, spec.pod] = self._pod_counts.get((spec.cluster, spec.pod), 0) + 1
        self._counts[spec.cluster] = self._counts.get(spec.cluster, 0) + 1

    def remove(self, host: HostId) -> None:
        spec = self._where.pop(host)
        racks = self._clusters[spec.cluster][spec.pod]
        del racks[spec.rack][host]
        if not racks[spec.rack]:
            del racks[spec.rack]
        self._pod_counts[spec.cluster, spec.pod] -= 1
        self._counts[spec.cluster] -= 1
        assert self._counts[spec.cluster] >= 0, spec.cluster

    def count(self, cluster: ClusterId) -> int:
        return self._counts.get(cluster, 0)

    def counts(self) -> dict[ClusterId, int]:
        return {cluster: count for cluster, count in sorted(self._counts.items()) if count}

    def nearest(self, cluster: ClusterId, wanted: int, without: Collection[HostId] = ()) -> list[HostId]:
        """Up to `wanted` free hosts, close together, best first; none of `without`."""
        taken: list[HostId] = []
        for host, _ in self._walk(cluster, wanted):
            if len(taken) == wanted:
                break
            if host not in without:
                taken.append(host)
        return taken

    def place(self, hosts: int, spares: int) -> Placement | Reason:
        """A placement of a gang, or the reason why there is none."""
        assert hosts >= 1, hosts
        fitting = [(count, cluster) for cluster, count in self.counts().items() if count >= hosts]
        if not fitting:
            return self._refusal(hosts)
        _, cluster = min(fitting)
        found: list[tuple[HostId, int]] = []
        for item in self._walk(cluster, hosts):
            if len(found) == hosts + spares:
                break
            found.append(item)
        members = sorted(found[:hosts], key=lambda item: item[1])
        return Placement(
            cluster=cluster, members=tuple(host for host, _ in members), spares=tuple(host for host, _ in found[hosts:])
        )

    def _refusal(self, hosts: int) -> Reason:
        counts = self.counts()
        most = max(counts.values(), default=0)
        sentence = f"wants {hosts} hosts in one cluster; the most that are free in one are {most}"
        return Reason(
            token=Token.NOT_ENOUGH_HOSTS,
            sentence=sentence,
            numbers={"wanted": hosts, "free": most, "short": hosts - most},
        )

    def _walk(self, cluster: ClusterId, wanted: int) -> Iterator[tuple[HostId, int]]:
        """Free hosts of a cluster with their positions, in the order in which a gang of `wanted` takes them."""
        pods = [(self._pod_counts[cluster, pod], pod) for pod in self._clusters.get(cluster, {})]
        fitting = sorted((count, pod) for count, pod in pods if count >= wanted)
        first = [fitting[0][1]] if fitting else []
        rest = [pod for count, pod in sorted(pods, key=lambda item: (-item[0], item[1])) if count and pod not in first]
        for pod in first + rest:
            racks = self._clusters[cluster][pod].values()
            for rack in sorted(racks, key=lambda rack: (-len(rack), min(rack.values()))):
                yield from sorted(rack.items(), key=lambda item: item[1])
