"""`trainmaster twin burst`: a save of all ranks in a simulated store, without admission and with it."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from trainmaster.cli.options import Command, shows
from trainmaster.cli.output import Column, Output, say
from trainmaster.core.base.value import Value

if TYPE_CHECKING:
    from trainmaster.twin.burst import BurstReport, BurstScenario


class Figure(Value):
    """A line of the table."""

    figure: str
    without: str
    admitted: str


@click.command(
    cls=Command,
    examples=[
        ("trainmaster twin burst scenarios/exabyte-burst.toml", "16,384 ranks save at once"),
        ("trainmaster twin burst scenarios/exabyte-burst.toml --set save.smallest_mb=4000", "each of them 4 GB"),
        ("trainmaster twin burst scenarios/exabyte-burst.toml --set admission.window_gb=250 -o json", "for programs"),
    ],
    exit_codes=(0, 2),
)
@click.argument("scenario", type=click.Path(path_type=Path))
@click.option("--set", "changes", multiple=True, metavar="KEY=VALUE", help="Change the file; may be repeated.")
@shows
def burst(scenario: Path, changes: tuple[str, ...], output: Output) -> None:
    """Let all ranks of a job save at once into a simulated store, beside readers of data.

    The save happens twice, without admission and with it: the same sizes, the same readers. Admission is the very
    policy that runs on hosts.
    """
    from trainmaster.cli.burstfile import load
    from trainmaster.twin.burst import both

    chosen = load(scenario, changes)
    if output.form in ("table", "wide"):
        say(f"simulated, not measured: {_told(chosen)}")
    without, admitted = both(chosen)
    if output.form in ("table", "wide", "jsonl", "name"):
        columns = [
            Column("figure", lambda row: row.figure),
            Column("without", lambda row: row.without),
            Column("with_admission", lambda row: row.admitted),
        ]
        output.listing("figure", figures(without, admitted), columns)
        return
    found = {"name": chosen.name, "seed": chosen.seed, "without": without, "admitted": admitted}
    output.one("twin-burst", found, [])


def _told(chosen: "BurstScenario") -> str:
    rates = (chosen.sustained_bytes_s, chosen.peak_bytes_s, chosen.data_bytes_s)
    sustained, peak, wanted = (f"{rate / 1e12:g} TB/s" for rate in rates)
    return (
        f"{chosen.ranks:,} ranks, {chosen.servers:,} servers, {sustained} sustained, {peak} peak, "
        f"readers want {wanted}; seed {chosen.seed}"
    )


def figures(without: "BurstReport", admitted: "BurstReport") -> list[Figure]:
    """The table."""

    def row(name: str, text: Callable[["BurstReport"], str]) -> Figure:
        return Figure(figure=name, without=text(without), admitted=text(admitted))

    return [
        row("saved", lambda it: f"{it.save_bytes / 1e12:.2f} TB"),
        row("makespan", lambda it: f"{it.makespan / 1e6:.2f} s"),
        row("makespan over bytes by sustained rate", lambda it: f"{it.over_sustained:.2f}"),
        row("makespan over the least possible", lambda it: f"{it.over_possible:.2f}"),
        row("data: share of moved bytes", lambda it: f"{it.data_share:.1%}"),
        row("data: served of what was wanted", lambda it: f"{it.data_served:.1%}"),
        row("reads before the save, 99th percentile", lambda it: f"{it.quiet_reads.p99 / 1e3:.0f} ms"),
        row("reads in the save, median", lambda it: f"{it.reads.median / 1e3:.0f} ms"),
        row("reads in the save, 99th percentile", lambda it: f"{it.reads.p99 / 1e3:.0f} ms"),
        row("reads in the save, longest", lambda it: f"{it.reads.longest / 1e3:.0f} ms"),
        row("last writer", lambda it: f"{it.slowest} ({it.phase})" if it.phase else it.slowest),
    ]
