"""Fleet files: TOML that declares the hosts, where the server listens, and how local agents behave.

    schema = "trainmaster.fleet/v1"
    name = "local"

    [[cluster]]
    name = "desk"
    fabric = "loopback"            # roce, infiniband, loopback

    [[cluster.hosts]]
    list = "h[0-4]"                # a host list
    platform = "laptop"            # grand-teton, dgx-h100, laptop
    hosts_per_rack = 1             # default: the platform's
    racks_per_pod = 5              # default: one pod
    kind = "compute"               # compute, storage, switch, controller
    racks_per_row = 5              # racks that one power row feeds; default: no power rows
    plane = "a"                    # fabric plane of switches; default: none

    [server]                       # optional
    host = "127.0.0.1"
    port = 0                       # 0: a free port that the kernel chooses

    [agents]                       # optional; local agents only
    heartbeat_s = 1.0              # time between two heartbeats
    silent_s = 10.0                # an agent that is connected and sends none for so long has its host taken for lost
    reboot_s = 5.0                 # how long a local host takes to come back

    catalogue = "catalogue.toml"   # optional, at the top: what can be done to the hosts; beside this file
    [versions]                     # optional: versions that are proven, until somebody calls another one proven
    gpu-driver = "550.90"
    [[train]]                      # optional: see `trainfile.py`
    [capacity]                     # optional: see `capacityfile.py`
    [health]                       # optional: see `healthfile.py`
    [twin]                         # optional: see `cli/scenariofile.py`; a fleet of real hosts does not read it

Ten seconds of silence are long on purpose. What dies closes its connection, and that is seen in milliseconds; a rank
that hangs is found by its steps. Silence is left for a host that freezes as a whole or loses its network, and there a
machine that is only busy looks the same: on two cores with twenty who want them an agent is kept waiting for seconds,
and to lose a healthy host costs more than to notice a frozen one late. On hosts of their own three seconds are enough.

The file says what should exist; `core/fleet/inventory.py` decides whether that makes a fleet.
"""

from pathlib import Path
from typing import Final

from trainmaster.core.base.hostlist import HostListError, parse
from trainmaster.core.base.ids import ComponentName, HostId
from trainmaster.core.base.time import Duration, in_seconds, seconds
from trainmaster.core.base.value import Value
from trainmaster.core.fleet.inventory import ClusterBlock, FleetSpec, HostBlock, InventoryError, lay_out
from trainmaster.core.health.conduct import HealthConduct
from trainmaster.core.maintenance.capacity import CapacityPolicy, counted
from trainmaster.core.maintenance.wish import TrainWish
from trainmaster.live.capacityfile import read_capacity
from trainmaster.live.healthfile import read_health
from trainmaster.live.tomlfile import Document, Table
from trainmaster.live.trainfile import read_trains

SCHEMA: Final = "trainmaster.fleet/v1"
_BEATS: Final = 3
"""One heartbeat may be late and one lost."""


class FleetFile(Value):
    """What a fleet file says."""

    fleet: FleetSpec
    server_host: str
    server_port: int
    """0: a free port that the kernel chooses."""
    heartbeat: Duration
    """Between two heartbeats of a local agent."""
    silence: Duration
    """Without a heartbeat, after which an agent counts as silent."""
    reboot: Duration
    """How long a local host takes to come back after a loss."""
    catalogue: str = ""
    """Path of the catalogue file, as it is written; empty: none is named."""
    capacity: CapacityPolicy
    trains: tuple[TrainWish, ...] = ()
    versions: dict[ComponentName, str] = {}
    """Proven ones."""
    health: HealthConduct | None = None
    """None: nothing is said of it."""


def load(file: Path) -> FleetFile:
    """Reads a fleet file. Raises `trainmaster.live.tomlfile.FileError` with all problems."""
    document = Document(file, "fleet file")
    document.root.table("twin")
    found = read(document)
    document.root.finish()
    document.finish()
    assert found is not None, "a noted problem ends in FileError"
    return found


def read(document: Document) -> FleetFile | None:
    """What the file says; None if its clusters make no fleet, which is noted then. The caller finishes the root."""
    root = document.root
    document.check_schema(SCHEMA)
    name = root.text("name")
    clusters = tuple(_cluster(table) for table in root.tables("cluster"))
    server, agents = root.table("server"), root.table("agents")
    host, port = server.text("host", "127.0.0.1"), server.integer("port", 0, 0, 65535)
    heartbeat = seconds(agents.number("heartbeat_s", 1.0, 0.05, 60.0))
    silence = _silence(agents, heartbeat)
    reboot = seconds(agents.number("reboot_s", 5.0, 0.0, 3600.0))
    catalogue = root.text("catalogue", "", may_be_empty=False)
    trains = read_trains(root)
    versions = {ComponentName(component): version for component, version in root.mapping("versions").items()}
    for table in (server, agents):
        table.finish()
    try:
        fleet = lay_out(name, clusters)
    except InventoryError as error:
        for problem in error.problems:
            document.note(problem.path, problem.reason, problem.fix)
    if document.problems:  # what is misread would only add echoes
        root.table("capacity")
        root.table("health")
        return None
    return FleetFile(
        fleet=fleet,
        server_host=host,
        server_port=port,
        heartbeat=heartbeat,
        silence=silence,
        reboot=reboot,
        catalogue=catalogue,
        capacity=read_capacity(root, [counted(spec) for spec in fleet.hosts]),
        trains=trains,
        versions=versions,
        health=read_health(root, fleet.hosts),
    )


def _silence(agents: Table, heartbeat: Duration) -> Duration:
    least_s = _BEATS * in_seconds(heartbeat)
    silent_s = agents.number("silent_s", max(10.0, least_s), 1.0, 3600.0)
    if silent_s < least_s:
        fix = f"use {least_s:g} or more, or a shorter heartbeat_s"
        agents.note("silent_s", f"{silent_s:g} s are less than {_BEATS} heartbeats", fix)
    return seconds(silent_s)


def _cluster(table: Table) -> ClusterBlock:
    """Unknown fabrics and platforms are noted by the inventory, which knows them."""
    name, fabric = table.text("name"), table.text("fabric")
    blocks = tuple(_block(block) for block in table.tables("hosts"))
    table.finish()
    return ClusterBlock(name=name, fabric=fabric, blocks=blocks)


def _block(table: Table) -> HostBlock:
    hosts: tuple[HostId, ...] = ()
    text = table.text("list")
    try:
        hosts = parse(text)
    except HostListError as error:
        table.note("list", f"{error.reason} at character {error.position + 1} of {text!r}", error.fix)
    platform = table.text("platform")
    hosts_per_rack = table.integer("hosts_per_rack", 0, 0, 1024)
    racks_per_pod = table.integer("racks_per_pod", 0, 0, 65536)
    kind = table.text("kind", "compute")
    racks_per_row = table.integer("racks_per_row", 0, 0, 65536)
    plane = table.text("plane", "")
    table.finish()
    return HostBlock(
        hosts=hosts,
        platform=platform,
        hosts_per_rack=hosts_per_rack,
        racks_per_pod=racks_per_pod,
        kind=kind,
        racks_per_row=racks_per_row,
        plane=plane,
    )
