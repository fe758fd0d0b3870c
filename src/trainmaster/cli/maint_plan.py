"""`trainmaster maint plan` and `trainmaster maint apply`: what maintenance would do, and doing just that."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from trainmaster.cli import maint_ask
from trainmaster.cli.client import Client, complete_hosts, connect
from trainmaster.cli.errors import WrongUsage
from trainmaster.cli.maint_ask import PLAN_KIND, Applied, Made, Words
from trainmaster.cli.maint_ls import WAITING
from trainmaster.cli.maint_plan_page import blast, print_plan
from trainmaster.cli.maint_wait import wait_for
from trainmaster.cli.options import Change, Command, changes_by_file, shows
from trainmaster.cli.output import Column, Output, say
from trainmaster.cli.words import DURATION, reason_text
from trainmaster.core.maintenance.catalogue import Priority
from trainmaster.core.words import count_text
from trainmaster.live.server.maintenance_resources import MaintenanceView

F = TypeVar("F", bound=Callable[..., Any])
PRIORITIES: Final = tuple(priority.value for priority in Priority)


def _asks(function: F) -> F:
    """The file, or the options that stand for one operation a host; the command gets them as `file` and words."""
    for decorate in (
        click.option("--deadline", type=DURATION, metavar="DURATION", help="When it should be done, from now."),
        click.option("--not-before", type=DURATION, metavar="DURATION", help="When it may begin, from now."),
        click.option("--after", metavar="OP", multiple=True, help="An operation that must be done before."),
        click.option("--priority", type=click.Choice(PRIORITIES), default="planned", help="Its class in line."),
        click.option("--scope", metavar="R", multiple=True, help="One operation on all of this: rack/R, row/W, pod/P."),
        click.option(
            "-w", "--hosts", metavar="LIST", default="", help="One operation a host.", shell_complete=complete_hosts
        ),
        click.option("--kind", metavar="K", default="", help="Kind of operation of the catalogue: reboot."),
        click.option("--version", metavar="V", default="", help="To which."),
        click.option("--component", metavar="C", default="", help="What to upgrade."),
        click.argument("file", required=False, type=click.Path(path_type=Path)),
    ):
        function = decorate(function)
    return function


@click.command(
    cls=Command,
    examples=[
        ("trainmaster maint plan upgrade.toml --out plan.json", "what it would do; keep it for apply"),
        ("trainmaster maint plan --component gpu-driver --version 560.28 -w 'h[0-3]'", "without a file"),
        ("trainmaster maint plan plan.json", "a plan that was kept: does it hold still? exit code 4: no"),
    ],
    exit_codes=(0, 1, 2, 3, 4, 5, 6),
)
@_asks
@click.option("--out", type=click.Path(path_type=Path), help="Keep the plan in this file.")
@shows
def plan(file: Path | None, out: Path | None, output: Output, **words: Any) -> None:
    """Show what maintenance would do; change nothing.

    Which units leave and in which order, which jobs that hits and what becomes of them, how long it takes, capacity
    before and after, and what would have to wait. FILE is a maintenance file (examples/maintenance-*.toml).
    """
    asked = maint_ask.read(file, Words(**words))
    client = connect()
    if isinstance(asked, Made):
        made = maint_ask.plan(client, asked.asked)
        maint_ask.check(asked, made)
    else:
        made = maint_ask.plan(client, asked)
    if output.form in ("table", "wide"):
        print_plan(made, output)
    else:
        output.one(PLAN_KIND, made, [])
    maint_ask.check_refused(made)
    if out is not None:
        maint_ask.keep_plan(out, made)


@click.command(
    cls=Command,
    examples=[
        ('trainmaster maint apply plan.json --reason "security fix"', "just what was planned, or nothing"),
        ("trainmaster maint apply upgrade.toml --dry-run", "the same as plan"),
        ('trainmaster maint apply --kind reboot -w h3 --reason "leaks" --yes --wait', "for scripts"),
    ],
    exit_codes=(0, 1, 2, 3, 4, 5, 6, 7, 130),
)
@_asks
@click.option("--wait", is_flag=True, help="Wait until all of it has ended; exit code 1 or 7 unless it ended well.")
@click.option("--timeout", type=DURATION, metavar="DURATION", help="Wait no longer (exit code 6): 90s, 10m, 2h.")
@changes_by_file
@shows
def apply(file: Path | None, wait: bool, timeout: float | None, change: Change, output: Output, **words: Any) -> None:
    """Ask for maintenance: by a plan that was kept, a file, or options.

    Prints the ids of the operations. A plan that would be another one now is refused (exit code 4), and what changed
    is told. --reason holds for all of it, whatever the file says; without it each part needs a reason in the file.
    With --wait: operations, gang upgrades and rollouts are waited for until they have ended, a train until its first
    cycle has.
    """
    if timeout is not None and not wait:
        raise WrongUsage("--timeout is for --wait", fix="add --wait")
    asked = maint_ask.read(file, Words(**words))
    if not change.dry_run:
        maint_ask.check_reason(asked.asked if isinstance(asked, Made) else asked, change.reason)
    client = connect()
    made = _agreed(client, asked, change, output)
    if made is None:
        return
    since = client.get("/v1/maintenance", MaintenanceView).at if wait and made.gangs else made.made_at
    applied = maint_ask.apply(client, made, change.reason)
    _print(applied, output)
    if wait:
        wait_for(client, applied, since, timeout)


def _agreed(client: Client, asked: Any, change: Change, output: Output) -> Made | None:
    """The plan that is to be carried out; None after a dry run."""
    kept = isinstance(asked, Made)
    made = maint_ask.plan(client, asked.asked if kept else asked)
    if kept:
        maint_ask.check(asked, made)
    if change.dry_run:
        if output.form in ("table", "wide"):
            print_plan(made, output)
        else:
            output.one(PLAN_KIND, made, [])
        say("dry run: nothing was asked for")
        maint_ask.check_refused(made)
        return None
    if not change.yes:
        change.confirm(blast(made))
        again = maint_ask.plan(client, made.asked)
        maint_ask.check(made, again)
        return again
    return made


def _print(applied: Applied, output: Output) -> None:
    """The ids alone on stdout, so that a script can take them; the rest is talk."""
    match output.form:
        case "table" | "wide" | "name":
            sys.stdout.write("".join(f"{answer.operation}\n" for answer in applied.operations))
            sys.stdout.flush()
        case _:
            output.one("maintenance-report", applied, [Column("index", lambda item: item.index)])
            return
    for sentence in applied.told:
        say(sentence)
    waiting = [answer for answer in applied.operations if answer.state in WAITING and answer.reason is not None]
    if waiting:
        first = waiting[0]
        waits = "waits" if len(waiting) == 1 else "wait"
        say(f"{count_text(len(waiting), 'operation')} {waits}; {first.operation}: {reason_text(first.reason)}")
