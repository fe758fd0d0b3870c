"""`trainmaster report`: what all jobs lost, to what, and how often they were interrupted."""

import sys
from pathlib import Path
from typing import Final

import click

from trainmaster.cli.client import connect
from trainmaster.cli.errors import Failed
from trainmaster.cli.job_account import cause_columns, gpu_time_text
from trainmaster.cli.options import Command, shows
from trainmaster.cli.output import Column, Output, duration_text, say
from trainmaster.cli.words import section, small_table
from trainmaster.core.accounting.fleet import FleetAccount, JobLine, lost_gpu_s
from trainmaster.core.base.time import seconds
from trainmaster.core.words import count_text
from trainmaster.live.server.resources import FleetReport

GOAL: Final = 0.9
"""Goodput for which it is told what an interruption may cost: what the published large runs reached."""
ROWS_MAX: Final = 20


@click.command(
    cls=Command,
    examples=[
        ("trainmaster report", "what was lost, by cause and by job"),
        ("trainmaster report -o json", "all figures, for programs"),
        ("trainmaster report --out fleet.html", "as a page"),
    ],
    exit_codes=(0, 1, 2, 5, 6),
)
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False), help="Write a page of HTML there.")
@shows
def report(out: Path | None, output: Output) -> None:
    """Show what the fleet's jobs lost, by cause and by job, and how often they were interrupted.

    All jobs that the server knows, from their submission to their end or to now, in GPU-seconds.
    """
    from trainmaster.cli.account_page import fleet_page

    found = connect().get("/v1/account", FleetReport)
    if out is not None:
        try:
            out.write_text(fleet_page(found))
        except OSError as error:
            raise Failed(f"{out} can't be written: {error}", fix="choose another place with --out") from error
        say(f"wrote {out}")
    if output.form not in ("table", "wide"):
        output.one("fleet-report", found, [])
    elif out is None:
        _print(found.account, output)


def headline(account: FleetAccount) -> list[str]:
    """The sum in sentences."""
    seen, whole = account.interruptions, gpu_time_text(account.gpu_s, account.unit)
    if not account.gpu_s:
        return ["no job has spent any time yet"]
    lines = [f"goodput (ETTR) {account.goodput:.1%} of {whole} in {count_text(len(account.jobs), 'job')}"]
    lines.append(f"{count_text(seen.unplanned, 'unplanned interruption')}, {seen.planned:,} planned")
    if account.lost_each_s is not None:
        lines[-1] += f"; each cost its job {_time(account.lost_each_s)} on average"
    if account.mean_time_between_s is not None:
        lines.append(
            f"a job runs {_time(account.mean_time_between_s)} between unplanned ones"
            f" ({account.per_thousand_host_days:.2f} in 1,000 host-days)"
        )
    budget_s = seen.budget_s(GOAL)
    if budget_s is not None:
        lines.append(f"for {GOAL:.0%} of the run time each may cost {_time(budget_s)}, all kinds of loss together")
    return lines


def _time(length_s: float) -> str:
    return f"{length_s:.1f} s" if length_s < 60 else duration_text(seconds(length_s))


def job_columns() -> list[Column]:
    """Of a `JobLine`."""

    def lost(line: JobLine) -> str:
        return gpu_time_text(lost_gpu_s(line.account), line.account.unit)

    return [
        Column("id", lambda line: line.id),
        Column("name", lambda line: line.name),
        Column("state", lambda line: line.state, state=True),
        Column("hosts", lambda line: line.hosts),
        Column("goodput", lambda line: line.account.goodput, lambda share: f"{share:.1%}"),
        Column("lost", lost),
        Column("incidents", lambda line: len(line.account.incidents)),
        Column("steps_lost", lambda line: line.account.steps_lost_unplanned + line.account.steps_lost_planned),
    ]


def _print(account: FleetAccount, output: Output) -> None:
    sys.stdout.write("\n".join(headline(account)) + "\n")
    if account.causes:
        section("Lost, by cause")
        small_table(output, account.causes, cause_columns(account.unit))
    if account.jobs:
        more = len(account.jobs) - ROWS_MAX
        section("Jobs" + (f", the {ROWS_MAX} that lost most; all: trainmaster report -o json" if more > 0 else ""))
        small_table(output, account.jobs[:ROWS_MAX], job_columns())
