"""`trainmaster maint domain-size`: the cost of a maintenance domain by its size, by the closed form and by the twin."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import click

from trainmaster.cli.errors import NoSuchThing, WrongUsage
from trainmaster.cli.options import Command, shows
from trainmaster.cli.output import Column, Output, say
from trainmaster.cli.words import DURATION
from trainmaster.core.base.hostlist import HOST_LIMIT
from trainmaster.core.base.time import HOUR, seconds
from trainmaster.core.base.value import Value
from trainmaster.core.fleet.inventory import HostSpec
from trainmaster.core.maintenance.domain_size import (
    BestSize,
    GangClass,
    SizeCost,
    SizeModel,
    SizeProblem,
    best,
    cost,
    sizes_around,
)
from trainmaster.core.maintenance.domains import build
from trainmaster.core.words import count_text
from trainmaster.twin.domain_cost import LivedSize, free_hosts, live_through

_HOST_LIMIT: Final = 1_000_000
"""Hosts times seeds times sizes that the twin lives through in one call: some twelve minutes."""
_JOB: Final = re.compile(r"([0-9]{1,7})(?:[x×]([0-9]{1,7}))?")
_DECIDED: Final = {
    "cost": "",
    "cycle": "smaller domains would cost less, but their stops do not fit into the cycle",
    "limit": "larger domains would cost less, but the buffer does not let them out",
}


class SizeRow(Value):
    """One row: what a size costs."""

    cost: SizeCost
    stops_a_day: float
    best: bool
    simulated: LivedSize | None
    """None: the twin was not asked."""


class JobType(click.ParamType):  # type: ignore[type-arg]  # generic in newer versions of click only
    """`2048` or `32x20`: hosts of a job, and how many such jobs."""

    name = "job"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> GangClass:
        if isinstance(value, GangClass):
            return value
        match = _JOB.fullmatch(str(value).strip().lower())
        if match is None or int(match.group(1)) == 0 or int(match.group(2) or 1) == 0:
            self.fail(f"{value!r} is not HOSTSxCOUNT; write 2048, or 32x20 for twenty jobs of 32 hosts", param, ctx)
        return GangClass(hosts=int(match.group(1)), count=int(match.group(2) or 1))


@click.command(
    name="domain-size",
    cls=Command,
    examples=[
        ("trainmaster maint domain-size --hosts 3072 --job 2048 --job 32x20", "one large job, twenty small ones"),
        ("trainmaster maint domain-size --fleet fleet.toml --cluster roce --job 2048", "hosts and racks of a cluster"),
        ("trainmaster maint domain-size --hosts 3072 --job 2048 --twin --out cost.svg", "simulated too, and drawn"),
        ("trainmaster maint domain-size --hosts 3072 --job 256x12 --lost 3m -o json", "for programs"),
    ],
    exit_codes=(0, 1, 2, 3),
)
@click.option("--hosts", type=click.IntRange(1, HOST_LIMIT), metavar="N", help="Hosts of the cluster.")
@click.option("--fleet", type=click.Path(path_type=Path), metavar="FILE", help="Fleet file to take the hosts from.")
@click.option("--cluster", metavar="NAME", help="Cluster of the fleet file; needed if it has several.")
@click.option(
    "--job", "jobs", type=JobType(), multiple=True, required=True, metavar="HOSTSxCOUNT", help="Jobs; may be repeated."
)
@click.option("--cycle", type=DURATION, default="30d", show_default=True, help="Time in which every host is visited.")
@click.option("--lost", type=DURATION, default="15m", show_default=True, help="What an interruption costs a job.")
@click.option("--stop", type=DURATION, default="2h", show_default=True, help="How long a stop lasts, on average.")
@click.option("--at-most", type=click.IntRange(1), metavar="N", help="Hosts that the buffer lets out at once.")
@click.option("--rest", is_flag=True, help="The buffer works between stops; count the stops alone as held out.")
@click.option("--twin", is_flag=True, help="Live through each size under the very planner, too.")
@click.option("--seeds", type=click.IntRange(1, 1000), default=3, show_default=True, help="Seeds of the twin.")
@click.option("--out", type=click.Path(path_type=Path), metavar="FILE.svg", help="Draw the curve.")
@shows
def domain_size(
    hosts: int | None,
    fleet: Path | None,
    cluster: str | None,
    jobs: tuple[GangClass, ...],
    cycle: float,
    lost: float,
    stop: float,
    at_most: int | None,
    rest: bool,
    twin: bool,
    seeds: int,
    out: Path | None,
    output: Output,
) -> None:
    """Show what the size of a maintenance domain costs, and which size costs least.

    Small domains make many stops, and each interrupts jobs; large ones hold much capacity out. Costs are host-hours in
    a cycle. Jobs are taken to lie on neighbouring hosts; what an interruption costs is what a job redoes, or needs to
    save, and the time to re-form.
    """
    if out is not None and out.suffix != ".svg":
        raise WrongUsage(f"cannot draw {out}", "the picture is an SVG", f"use --out {out.with_suffix('.svg')}")
    units = _units(hosts, fleet, cluster)
    model = SizeModel(
        hosts=len(units) or hosts or 0,
        gangs=jobs,
        cycle=seconds(cycle),
        lost=seconds(lost),
        stop=seconds(stop),
        size_limit=at_most or 0,
        rest=rest,
    )
    try:
        found = best(model)
    except SizeProblem as problem:
        raise WrongUsage(problem.what, problem.why, problem.fix) from problem
    costs = [cost(model, size) for size in sizes_around(model, found.cost.size)]
    simulated = _simulated(model, costs, seeds) if twin else []
    _show(model, found, costs, simulated, output)
    for line in _summary(model, found, units):
        say(line)
    if out is not None:
        from trainmaster.cli.maint_domain_size_picture import svg

        _write(out, svg(model, found, simulated))


def _units(hosts: int | None, fleet: Path | None, cluster: str | None) -> list[HostSpec]:
    """The hosts of the cluster; none if only their number is given."""
    if (hosts is None) == (fleet is None):
        why = "it is not known how many hosts there are" if hosts is None else "both say how many hosts there are"
        raise WrongUsage("give either --hosts or --fleet", why, "trainmaster maint domain-size --hosts 3072 --job 2048")
    if fleet is None:
        if cluster is not None:
            raise WrongUsage("--cluster needs --fleet", "only a fleet file has clusters", "add --fleet FILE")
        return []
    from trainmaster.live.fleetfile import load

    spec = load(fleet).fleet
    names = [str(each.name) for each in spec.clusters]
    if cluster is None and len(names) > 1:
        why = f"the fleet {spec.name} has {', '.join(names)}; a train visits one cluster"
        raise WrongUsage("which cluster?", why, f"add --cluster {names[0]}")
    if cluster is not None and cluster not in names:
        raise NoSuchThing(f"no cluster {cluster!r} in {fleet}", fix=f"use one of {', '.join(names)}")
    return [unit for unit in spec.hosts if unit.cluster == (cluster or names[0]) and unit.kind == "compute"]


def _simulated(model: SizeModel, costs: Sequence[SizeCost], seeds: int) -> list[LivedSize]:
    lived = seeds * len(costs) * model.hosts
    if lived > _HOST_LIMIT:
        why = f"that would be {lived:,} hosts over all sizes and seeds; the limit is {_HOST_LIMIT:,}"
        raise WrongUsage("too much to simulate", why, "use fewer --seeds, or leave out --twin")
    largest = max(each.size for each in costs)
    if largest > free_hosts(model):
        why = f"a stop moves jobs to free hosts; {free_hosts(model):,} are free, and the largest domain has {largest:,}"
        raise WrongUsage("the twin cannot move the jobs", why, "take fewer or smaller jobs, or leave out --twin")
    return live_through([each.size for each in costs], range(1, seeds + 1), model)


def _show(
    model: SizeModel, found: BestSize, costs: Sequence[SizeCost], simulated: Sequence[LivedSize], output: Output
) -> None:
    days = model.cycle / (24 * HOUR)
    rows = [
        SizeRow(
            cost=each,
            stops_a_day=each.stops / days,
            best=each.size == found.cost.size,
            simulated=simulated[place] if simulated else None,
        )
        for place, each in enumerate(costs)
    ]
    extra = {"unit": "host-hours a cycle", "model": model, "best": found}
    output.listing("domain-size", rows, _columns(bool(simulated)), extra=extra)


def _columns(twin: bool) -> list[Column]:
    columns = [
        Column("size", lambda row: row.cost.size),
        Column("stops", lambda row: row.cost.stops),
        Column("a_day", lambda row: row.stops_a_day, "{:.1f}".format),
        Column("hits", lambda row: row.cost.hits, "{:,.1f}".format),
        Column("interrupted_h", lambda row: row.cost.interruptions_host_h, _hours),
        Column("held_out_h", lambda row: row.cost.held_out_host_h, _hours),
        Column("total_h", lambda row: row.cost.total_host_h, _hours),
        Column("share", lambda row: row.cost.share, "{:.2%}".format),
    ]
    if twin:
        columns += [
            Column("simulated_h", lambda row: row.simulated.mean_host_h, _hours),
            Column("low_h", lambda row: row.simulated.low_host_h, _hours),
            Column("high_h", lambda row: row.simulated.high_host_h, _hours),
            Column("off_by", lambda row: row.simulated.mean_host_h / row.cost.total_host_h - 1, "{:+.1%}".format),
        ]
    return [*columns, Column("note", _note)]


def _note(row: SizeRow) -> str:
    return "best" if row.best else "" if row.cost.fits else "does not fit"


def _hours(value: float) -> str:
    return f"{value:,.0f}"


def _summary(model: SizeModel, found: BestSize, units: Sequence[HostSpec]) -> list[str]:
    """The answer in words."""
    chosen = found.cost
    lines = [
        f"best: domains of {count_text(chosen.size, 'host')} ({chosen.size / model.hosts:.1%}),"
        f" {count_text(chosen.stops, 'stop')} and {chosen.hits:,.1f} interruptions a cycle;"
        f" costs {chosen.total_host_h:,.0f} host-hours, {chosen.share:.2%} of the fleet"
    ]
    if _DECIDED[found.decided_by]:
        lines.append(_DECIDED[found.decided_by])
    if model.rest and not model.size_limit:
        lines.append("with --rest nothing rises with the size; --at-most says what the buffer lets out")
    if units:
        counts = [len(domain.units) for domain in build(units, chosen.size)]
        least, most = min(counts), max(counts)
        of_each = f"{least} to {count_text(most, 'host')}" if least < most else count_text(most, "host")
        lines.append(f"by whole racks and pods: {count_text(len(counts), 'domain')} of {of_each}")
    return lines


def _write(file: Path, text: str) -> None:
    try:
        file.write_text(text, "utf-8")
    except FileNotFoundError as error:
        raise WrongUsage(f"cannot write {file}", f"there is no directory {file.parent}", "make it first") from error
    say(f"drawn: {file}")
