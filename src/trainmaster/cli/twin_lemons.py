"""`trainmaster twin lemons`: how many planted lemons the policies of health find, and what that is worth."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from trainmaster.cli.errors import Failed, WrongUsage
from trainmaster.cli.options import Command, shows
from trainmaster.cli.output import Column, Output, say
from trainmaster.cli.twin_meter import Progress
from trainmaster.core.base.value import Value
from trainmaster.core.words import count_text

if TYPE_CHECKING:
    from trainmaster.twin.lemons import Estimate, LemonReport


class Figure(Value):
    """A line of the table."""

    figure: str
    value: str
    interval: str = ""
    published: str = ""


@click.command(
    cls=Command,
    examples=[
        ("trainmaster twin lemons --seeds 20", "recall, precision, and the failures of large jobs"),
        ("trainmaster twin lemons --seeds 200 --picture lemons.svg", "drawn as well"),
        ("trainmaster twin lemons --hosts 2048 --days 56 -o json", "another fleet, for programs"),
    ],
    exit_codes=(0, 1, 2),
)
@click.option("--seeds", type=click.IntRange(1, 1000), default=10, show_default=True, metavar="N",
              help="Fleets to live through, three times each.")  # fmt: skip
@click.option("--seed", type=click.IntRange(1), default=1, show_default=True, metavar="N", help="The first of them.")
@click.option("--hosts", type=click.IntRange(512, 8192), default=1024, show_default=True, metavar="N",
              help="Hosts of 8 GPUs.")  # fmt: skip
@click.option("--days", type=click.IntRange(35, 730), default=84, show_default=True, metavar="N",
              help="Simulated; jobs are counted after the first 28.")  # fmt: skip
@click.option("--picture", type=click.Path(path_type=Path), metavar="FILE.svg", help="Draw what was found.")
@shows
def lemons(seeds: int, seed: int, hosts: int, days: int, picture: Path | None, output: Output) -> None:
    """Plant lemons in a simulated fleet and let the policies of health find them.

    Hosts break as published tables say, each fault is played as the lines that real hosts write, and the readers,
    verdicts and histories that judge real hosts judge these. Jobs of several sizes die of faults. Each fleet lives
    three times: lemons are kept; those that are found are taken out; all are known from the first day.
    """
    from trainmaster.core.health.conduct import OffenderLimits
    from trainmaster.core.health.policy import Index
    from trainmaster.live.health.policyfile import shipped
    from trainmaster.twin.lemon_world import LemonFleet
    from trainmaster.twin.lemons import experiment

    if picture is not None and picture.suffix != ".svg":
        raise WrongUsage(f"cannot draw {picture}", "the picture is an SVG", f"use {picture.with_suffix('.svg')}")
    if picture is not None and not picture.parent.is_dir():
        raise WrongUsage(f"cannot write {picture}", f"there is no directory {picture.parent}", "make it first")
    progress = Progress()
    found = experiment(
        LemonFleet.of(hosts, days),
        range(seed, seed + seeds),
        Index(shipped()),
        OffenderLimits(),
        lambda done, total: progress.tell(f"simulated {done} of {total} histories"),
    )
    progress.end()
    _show(found, output)
    if picture is not None:
        from trainmaster.cli.twin_lemons_picture import svg

        picture.write_text(svg(found), "utf-8")
        say(f"drawn: {picture}")
    if found.false_actions:
        why = f"{count_text(found.false_actions, 'line')} that tell of no fault of a host took one out"
        raise Failed("a verdict is wrong", why, "see which with trainmaster health read; report it")


def _show(found: "LemonReport", output: Output) -> None:
    if output.form not in ("table", "wide", "jsonl", "name"):
        output.one("twin-lemons", found, [])
        return
    if output.form in ("table", "wide"):
        fleet = f"{found.fleet.hosts:,} hosts over {found.fleet.days} days under {count_text(len(found.seeds), 'seed')}"
        say(f"simulated, not measured: {fleet} from {found.seeds[0]} on; {found.lines:,} lines judged")
    output.listing(
        "figure",
        figures(found),
        [
            Column("figure", lambda row: row.figure),
            Column("value", lambda row: row.value),
            Column("95%_interval", lambda row: row.interval),
            Column("published", lambda row: row.published),
        ],
    )


def figures(found: "LemonReport") -> list[Figure]:
    """The table, with what was published beside it."""
    from trainmaster.twin.lemons import PUBLISHED_AFTER, PUBLISHED_BEFORE

    recall = f"{found.recall_low:.1%} to {found.recall_high:.1%}"
    precision = f"{found.precision_low:.1%} to {found.precision_high:.1%}"
    rows = [
        Figure(figure="lemons planted", value=f"{found.planted:,}", published="1.2% of hosts"),
        Figure(figure="found (recall)", value=f"{found.recall:.1%}", interval=recall),
        Figure(figure="right (precision)", value=f"{found.precision:.1%}", interval=precision, published="over 85%"),
    ]
    rows += [
        Figure(
            figure=f"found of those {band.low:.0f} to {band.high:.0f} times as bad",
            value=_share(band.found, band.planted),
        )
        for band in found.bands
    ]
    rows += [
        Figure(figure="days until found, median", value=f"{found.days_to_find:.0f}"),
        *(Figure(figure=f"condemned by {by}", value=f"{count:,}") for by, count in found.found_by),
        Figure(figure="large jobs killed, lemons kept", value=f"{found.kept_share.mean:.1%}",
               interval=_interval(found.kept_share), published=f"{PUBLISHED_BEFORE:.0%} (scaled to)"),
        Figure(figure="large jobs killed, found ones out", value=f"{found.found_share.mean:.1%}",
               interval=_interval(found.found_share), published=f"{PUBLISHED_AFTER:.0%}"),
        Figure(figure="large jobs killed, all known", value=f"{found.known_share.mean:.1%}",
               interval=_interval(found.known_share)),
        Figure(figure="fewer failures, found ones out", value=f"{found.factor.mean:.2f} times",
               interval=f"{found.factor.low:.2f} to {found.factor.high:.2f}",
               published=f"{found.published_factor:.1f} times"),
        Figure(figure="fewer failures, all known", value=f"{found.ceiling.mean:.2f} times",
               interval=f"{found.ceiling.low:.2f} to {found.ceiling.high:.2f}"),
        Figure(figure="jobs that touch a lemon", value=f"{found.touched_share:.1%}", published="13% a day"),
        Figure(figure="faults per 1,000 host-days", value=f"{found.faults_per_thousand_host_days:.2f}",
               published="6.50 (RSC-1), 2.34 (RSC-2)"),
    ]  # fmt: skip
    return rows


def _share(part: int, whole: int) -> str:
    return f"{part} of {whole}" if whole else "none planted"


def _interval(estimate: "Estimate") -> str:
    return f"{estimate.low:.1%} to {estimate.high:.1%}"
