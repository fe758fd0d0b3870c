"""`trainmaster fleet`: what a fleet file declares. Needs no server."""

from pathlib import Path

import click

from trainmaster.cli.options import Noun, shows
from trainmaster.cli.output import Column, Output
from trainmaster.core.base.hostlist import fold
from trainmaster.core.base.ids import ClusterId
from trainmaster.core.base.value import Value
from trainmaster.core.fleet.inventory import FleetSpec
from trainmaster.live.fleetfile import load


class ClusterView(Value):
    """One row."""

    name: ClusterId
    fabric: str
    platforms: tuple[str, ...]
    hosts: str
    """Folded."""
    host_count: int
    gpus: int
    racks: int
    pods: int


@click.group(
    cls=Noun,
    examples=[
        ("trainmaster fleet show fleet.toml", "a line a cluster"),
        ("trainmaster fleet show fleet.toml -o json", "the same for programs"),
        ("trainmaster fleet show fleet.toml --sort -gpus", "the largest first"),
    ],
)
def fleet() -> None:
    """Look at a fleet file."""


@fleet.command(
    examples=[
        ("trainmaster fleet show scenarios/two-clusters.toml", "a line a cluster"),
        ("trainmaster fleet show fleet.toml --columns name,hosts", "two columns"),
        ("trainmaster fleet show fleet.toml -o json", "for programs"),
    ]
)
@click.argument("file", type=click.Path(path_type=Path))
@shows
def show(file: Path, output: Output) -> None:
    """Read a fleet file and show its clusters: hosts, GPUs, racks, pods."""
    spec = load(file).fleet
    columns = [
        Column("name", lambda view: view.name),
        Column("fabric", lambda view: view.fabric),
        Column("platforms", lambda view: ",".join(view.platforms)),
        Column("hosts", lambda view: view.hosts),
        Column("host_count", lambda view: view.host_count),
        Column("gpus", lambda view: view.gpus),
        Column("racks", lambda view: view.racks),
        Column("pods", lambda view: view.pods),
    ]
    output.listing("cluster", views(spec), columns, extra={"fleet": spec.name, "gpus": spec.gpus()})


def views(spec: FleetSpec) -> list[ClusterView]:
    rows = []
    for cluster in spec.clusters:
        members = [host for host in spec.hosts if host.cluster == cluster.name]
        rows.append(
            ClusterView(
                name=cluster.name,
                fabric=cluster.fabric,
                platforms=tuple(sorted({host.platform for host in members})),
                hosts=fold(host.id for host in members),
                host_count=len(members),
                gpus=sum(host.gpus for host in members),
                racks=cluster.racks,
                pods=cluster.pods,
            )
        )
    return rows
