"""What the fleet is made of: clusters, pods, racks and hosts, as declared.

A fleet is declared by blocks: so many hosts of one platform, in natural order, so many to a rack and so many racks to a
pod. `lay_out` turns blocks into hosts, each with its rack and pod; ids are made of the cluster's name and a number with
even width (`roce-r0001`, `roce-p1`), so that they fold. A block must fill its racks and pods: a remainder is a typing
mistake more often than a half empty rack, and who has one declares it as a block of its own. All problems are found at
once, since a person repairs a file once, not once a problem.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Final, Literal, get_args

from trainmaster.core.base.hostlist import GroupResolver, fold
from trainmaster.core.base.ids import NAME_PATTERN, ClusterId, HostId, PodId, RackId
from trainmaster.core.base.value import Value
from trainmaster.core.fleet.platform import PLATFORMS

Fabric = Literal["roce", "infiniband", "loopback"]
UnitKind = Literal["compute", "storage", "switch", "controller"]
"""Jobs are placed on compute hosts only; all kinds are maintained. A controller runs the steps of operations on what
has no agent of its own: racks, power rows, planes."""
UNIT_KINDS: Final[tuple[str, ...]] = get_args(UnitKind)
FABRICS: Final[tuple[str, ...]] = get_args(Fabric)


class HostSpec(Value):
    """A host as declared: where it stands and what it has."""

    id: HostId
    cluster: ClusterId
    pod: PodId
    rack: RackId
    platform: str
    gpus: int
    kind: UnitKind = "compute"
    row: str = ""
    """The power row that feeds it."""
    plane: str = ""
    """The fabric plane that a switch belongs to."""


class ClusterSpec(Value):
    """A cluster: hosts that share a training fabric."""

    name: ClusterId
    fabric: Fabric
    racks: int
    pods: int


class FleetSpec(Value):
    """A whole fleet. The place of a host in `hosts` is its index."""

    name: str
    clusters: tuple[ClusterSpec, ...]
    hosts: tuple[HostSpec, ...]

    def gpus(self) -> int:
        return sum(host.gpus for host in self.hosts)


class HostBlock(Value):
    """Hosts that are declared together. 0 stands for the platform's own (`hosts_per_rack`) or for one pod."""

    hosts: tuple[HostId, ...]
    platform: str
    hosts_per_rack: int = 0
    racks_per_pod: int = 0
    kind: str = "compute"
    racks_per_row: int = 0
    """0: no power rows."""
    plane: str = ""


class ClusterBlock(Value):
    """A cluster as declared."""

    name: str
    fabric: str
    blocks: tuple[HostBlock, ...]


class InventoryProblem(Value):
    """One thing that is wrong with a declaration."""

    path: tuple[str | int, ...]
    """Where in the declaration: ("cluster", 0, "hosts", 1, "platform")."""
    reason: str
    fix: str


class InventoryError(ValueError):
    """A declaration that makes no fleet; carries all of its problems."""

    def __init__(self, problems: Iterable[InventoryProblem]) -> None:
        self.problems = tuple(problems)
        super().__init__("; ".join(f"{problem.path}: {problem.reason}" for problem in self.problems))


def lay_out(name: str, clusters: tuple[ClusterBlock, ...]) -> FleetSpec:
    """The fleet that the blocks declare. Raises `InventoryError`."""
    problems = list(_problems(name, clusters))
    if problems:
        raise InventoryError(problems)
    specs: list[ClusterSpec] = []
    hosts: list[HostSpec] = []
    for cluster in clusters:
        spec, members = _lay_out_cluster(cluster)
        specs.append(spec)
        hosts += members
    assert len({host.id for host in hosts}) == len(hosts)
    return FleetSpec(name=name, clusters=tuple(specs), hosts=tuple(hosts))


def groups_of(hosts: Iterable[HostSpec]) -> GroupResolver:
    """Groups for host lists: @all, @cluster:C, @pod:P, @rack:R, @platform:P, @kind:K, @row:W, @plane:F."""
    members: dict[str, list[HostId]] = {"all": []}
    for host in hosts:
        members["all"].append(host.id)
        for kind, key in (
            ("cluster", host.cluster), ("pod", host.pod), ("rack", host.rack), ("platform", host.platform),
            ("kind", host.kind), ("row", host.row), ("plane", host.plane)
        ):  # fmt: skip
            if key:
                members.setdefault(f"{kind}:{key}", []).append(host.id)
    return members.get


def _lay_out_cluster(cluster: ClusterBlock) -> tuple[ClusterSpec, list[HostSpec]]:
    """Numbers racks and pods through all blocks of the cluster."""
    racks = sum(_racks(block) for block in cluster.blocks)
    pods = sum(_racks(block) // _racks_per_pod(block) for block in cluster.blocks)
    rack_width, pod_width = len(str(racks)), len(str(pods))
    hosts: list[HostSpec] = []
    rack_base = pod_base = 0
    for block in cluster.blocks:
        gpus = PLATFORMS[block.platform].gpus_per_host
        per_rack, per_pod = _hosts_per_rack(block), _racks_per_pod(block)
        for index, host in enumerate(block.hosts):
            rack = index // per_rack
            hosts.append(
                HostSpec(
                    id=host,
                    cluster=ClusterId(cluster.name),
                    pod=PodId(f"{cluster.name}-p{pod_base + rack // per_pod + 1:0{pod_width}}"),
                    rack=RackId(f"{cluster.name}-r{rack_base + rack + 1:0{rack_width}}"),
                    platform=block.platform,
                    gpus=gpus if block.kind == "compute" else 0,
                    kind=block.kind,  # type: ignore[arg-type]  # checked before
                    row=_row(cluster.name, rack_base + rack, block),
                    plane=f"{cluster.name}-{block.plane}" if block.plane else "",
                )
            )
        rack_base += _racks(block)
        pod_base += _racks(block) // per_pod
    assert (rack_base, pod_base) == (racks, pods)
    fabric: Fabric = cluster.fabric  # type: ignore[assignment]  # checked before
    return ClusterSpec(name=ClusterId(cluster.name), fabric=fabric, racks=racks, pods=pods), hosts


def _row(cluster: str, rack: int, block: HostBlock) -> str:
    return f"{cluster}-w{rack // block.racks_per_row + 1}" if block.racks_per_row else ""


def _hosts_per_rack(block: HostBlock) -> int:
    return block.hosts_per_rack or PLATFORMS[block.platform].hosts_per_rack


def _racks(block: HostBlock) -> int:
    return len(block.hosts) // _hosts_per_rack(block)


def _racks_per_pod(block: HostBlock) -> int:
    return block.racks_per_pod or _racks(block)


def _problems(name: str, clusters: tuple[ClusterBlock, ...]) -> Iterator[InventoryProblem]:
    if not NAME_PATTERN.fullmatch(name):
        yield _bad_name(("name",), name)
    if not clusters:
        yield InventoryProblem(path=("cluster",), reason="a fleet needs a cluster", fix="add a [[cluster]] table")
    names = Counter(cluster.name for cluster in clusters)
    for place, cluster in enumerate(clusters):
        path: tuple[str | int, ...] = ("cluster", place)
        if not NAME_PATTERN.fullmatch(cluster.name):
            yield _bad_name((*path, "name"), cluster.name)
        if names[cluster.name] > 1:
            reason = f"the cluster {cluster.name} is declared {names[cluster.name]} times"
            yield InventoryProblem(path=(*path, "name"), reason=reason, fix="merge them, or rename one")
        if cluster.fabric not in FABRICS:
            fix = f"use one of {', '.join(FABRICS)}"
            yield InventoryProblem(path=(*path, "fabric"), reason=f"unknown fabric {cluster.fabric!r}", fix=fix)
        if not cluster.blocks:
            fix = "add a [[cluster.hosts]] table"
            yield InventoryProblem(path=(*path, "hosts"), reason="a cluster needs hosts", fix=fix)
        for number, block in enumerate(cluster.blocks):
            yield from _block_problems((*path, "hosts", number), block)
    yield from _duplicates(clusters)


def _bad_name(path: tuple[str | int, ...], name: str) -> InventoryProblem:
    fix = "use 1 to 63 lower-case letters, digits and hyphens, with a letter or digit at both ends"
    return InventoryProblem(path=path, reason=f"{name!r} is not a name", fix=fix)


def _block_problems(path: tuple[str | int, ...], block: HostBlock) -> Iterator[InventoryProblem]:
    if block.platform not in PLATFORMS:
        reason, fix = f"unknown platform {block.platform!r}", f"use one of {', '.join(PLATFORMS)}"
        yield InventoryProblem(path=(*path, "platform"), reason=reason, fix=fix)
        return
    if block.kind not in UNIT_KINDS:
        fix = f"use one of {', '.join(UNIT_KINDS)}"
        yield InventoryProblem(path=(*path, "kind"), reason=f"unknown kind {block.kind!r}", fix=fix)
    if not block.hosts:
        fix = 'name hosts, for example list = "h[0-4]"'
        yield InventoryProblem(path=(*path, "list"), reason="the list names no host", fix=fix)
        return
    per_rack = _hosts_per_rack(block)
    remainder = len(block.hosts) % per_rack
    if remainder:
        reason = f"{len(block.hosts)} hosts do not fill racks of {per_rack}; {remainder} are left over"
        fix = "change hosts_per_rack, or declare the rest in a [[cluster.hosts]] of its own"
        yield InventoryProblem(path=(*path, "hosts_per_rack"), reason=reason, fix=fix)
    elif _racks(block) % _racks_per_pod(block):
        reason = f"{_racks(block)} racks do not fill pods of {block.racks_per_pod}"
        fix = "change racks_per_pod, or declare the rest in a [[cluster.hosts]] of its own"
        yield InventoryProblem(path=(*path, "racks_per_pod"), reason=reason, fix=fix)


def _duplicates(clusters: tuple[ClusterBlock, ...]) -> Iterator[InventoryProblem]:
    """Hosts that an earlier block has already."""
    seen: set[HostId] = set()
    for place, cluster in enumerate(clusters):
        for number, block in enumerate(cluster.blocks):
            again = seen.intersection(block.hosts)
            if again:
                reason = f"declared twice: {fold(again)}"
                path = ("cluster", place, "hosts", number, "list")
                yield InventoryProblem(path=path, reason=reason, fix="leave them out of one of the lists")
            seen.update(block.hosts)
