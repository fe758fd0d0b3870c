"""`trainmaster twin what-if`: what a plan would do to the running fleet, simulated from its present state."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from trainmaster import __version__
from trainmaster.cli.errors import Failed, WrongUsage
from trainmaster.cli.options import Command, shows
from trainmaster.cli.output import Column, Output, duration_text, say
from trainmaster.cli.twin_meter import Progress
from trainmaster.cli.twin_paired import columns, number, of_interest
from trainmaster.cli.words import counts_text, small_table
from trainmaster.core.base.time import HOUR, Duration, seconds
from trainmaster.core.words import count_text

if TYPE_CHECKING:
    from trainmaster.live.maintfile import Asked
    from trainmaster.twin.whatif import PlannedOperation, WhatIfReport

TIMEOUT_S = 120.0
"""The state of a large fleet is tens of megabytes."""
SHOWN = 20
"""Operations of the plan in a table; all of them are in the other forms."""


@click.command(
    "what-if",
    cls=Command,
    examples=[
        ("trainmaster twin what-if upgrade.toml", "a day onward, with it and without"),
        ("trainmaster twin what-if plan.json --days 7 --seeds 20 --out what-if.svg", "a week, and a picture"),
        ("trainmaster twin what-if train.toml --failures 0 -o json", "without failures, for programs"),
    ],
    exit_codes=(0, 1, 2, 5, 6),
)
@click.argument("plan", type=click.Path(path_type=Path))
@click.option("--days", type=click.FloatRange(0.001, 3660), default=1.0, show_default=True, metavar="D",
              help="How long to simulate.")  # fmt: skip
@click.option("--seeds", type=click.IntRange(1, 1000), default=8, show_default=True, metavar="N",
              help="Simulate so many times, with the plan and without.")  # fmt: skip
@click.option("--failures", type=click.FloatRange(0, 10_000), default=6.5, show_default=True, metavar="RATE",
              help="Failures of hosts per 1,000 host-days.")  # fmt: skip
@click.option("--out", type=click.Path(path_type=Path), metavar="FILE.svg", help="Draw capacity over time.")
@shows
def what_if(plan: Path, days: float, seeds: int, failures: float, out: Path | None, output: Output) -> None:
    """Simulate a plan from the state of the running server; change nothing.

    PLAN is a maintenance file, or a plan that `maint plan --out` kept. The state is fetched once (the token must be an
    operator's) and simulated onward here, with the plan and without it, under the same chance. Running jobs go on as
    far as they said how long they take; nothing new is asked for by others. All figures are simulated.
    """
    from trainmaster.cli.twin_what_if_asks import events_of
    from trainmaster.twin.whatif import what_if as simulate

    if out is not None and out.suffix != ".svg":
        raise WrongUsage(f"cannot draw {out}", "the picture is an SVG", f"use --out {out.with_suffix('.svg')}")
    asked = _asked(plan)
    snapshot = _state()
    progress = Progress()
    try:
        report = simulate(
            snapshot,
            lambda engine: events_of(engine, asked),
            Duration(round(days * 24 * HOUR)),
            range(1, seeds + 1),
            failures,
            lambda done, total: progress.tell(f"simulated {done} of {total} runs"),
        )
    except msgspec.DecodeError as error:
        why = f"it is of another version than this command: {error}"
        raise Failed(
            "the state of the server can't be read", why, "use the server's version (trainmaster version)"
        ) from error
    progress.end()
    _show(report, output)
    if out is not None:
        _draw(out, report)


def _state() -> bytes:
    """The state of the server. Raises `Failed` if it is one of another version, whose state means other things."""
    from trainmaster.cli.client import connect
    from trainmaster.live.server.resources import StatusView

    client = connect(TIMEOUT_S)
    theirs = client.get("/v1/status", StatusView).version
    if theirs != __version__:
        why = f"this is {__version__}, and would not understand all of its state"
        raise Failed(f"the server runs trainmaster {theirs}", why, f"use trainmaster {theirs} for this")
    return client.raw("/v1/snapshot")


def _asked(plan: Path) -> "Asked":
    from trainmaster.cli.maint_ask import Made, Words, read

    words = Words(
        kind="", component="", version="", hosts="", scope=(), priority="", after=(), not_before=None, deadline=None
    )
    found = read(plan, words)
    return found.asked if isinstance(found, Made) else found


def _show(report: "WhatIfReport", output: Output) -> None:
    if output.form not in ("table", "wide"):
        output.one("twin-what-if", report, [])
        return
    length = duration_text(seconds(report.simulated_s))
    say(
        f"simulated, not measured: {length} from event {report.index:,} on,"
        f" {count_text(len(report.seeds), 'seed')}, with and without"
    )
    if report.operations:
        small_table(output, report.operations[:SHOWN], _operation_columns(report))
        if len(report.operations) > SHOWN:
            say(f"and {len(report.operations) - SHOWN:,} more; all are in -o json")
        click.echo()
    for text in _trains(report):
        say(text)
    output.listing("figure", of_interest(report.figures, output), columns("without", "with plan"))
    say(f"verdicts: {report.test}" if len(report.seeds) > 1 else "one seed says nothing about noise: give --seeds")


def _trains(report: "WhatIfReport") -> Iterator[str]:
    """A line for each train and rollout of the plan."""
    for train in report.trains:
        observes = '; it only observes, so nothing happens: mode = "act"' if train.mode == "observe" else ""
        carried = f", {number(train.carried)} carried over" if train.carried else ""
        visits = f"{number(train.visited)} of {count_text(train.units, 'unit')}"
        yield f"train {train.train}: visits {visits}{carried}{observes}"
    for one in report.rollouts:
        states = counts_text(one.states)
        what = f"{one.component} {one.version} on {number(one.carriers)} of {count_text(one.pool, 'unit')}"
        yield f"{one.rollout}: {what} at the end ({states} in {count_text(len(report.seeds), 'seed')})"


def _operation_columns(report: "WhatIfReport") -> list[Column]:
    def scope(row: "PlannedOperation") -> str:
        more = f" and {len(row.scope) - 1} more" if len(row.scope) > 1 else ""
        return row.scope[0] + more

    def after(at: int | None) -> str:
        return duration_text(at - report.began_at) if at is not None else "-"

    return [
        Column("would be", lambda row: row.operation),
        Column("work", lambda row: f"{row.component} {row.version}" if row.component else row.kind),
        Column("on", scope),
        Column("done in", lambda row: f"{row.done} of {len(report.seeds)}"),
        Column("after", lambda row: row.done_at, after),
        Column("first", lambda row: row.done_first_at, after),
        Column("last", lambda row: row.done_last_at, after),
    ]


def _draw(out: Path, report: "WhatIfReport") -> None:
    from trainmaster.cli.twin_what_if_picture import svg

    try:
        out.write_text(svg(report), "utf-8")
    except OSError as error:
        raise WrongUsage(f"cannot write {out}", str(error.strerror), "choose another --out") from error
    say(f"drawn: {out}")
