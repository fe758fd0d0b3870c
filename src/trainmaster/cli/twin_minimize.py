"""`trainmaster twin minimize`: the few inputs of a history that break an invariant, and the command that shows it."""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import click

from trainmaster.cli.errors import Failed
from trainmaster.cli.options import Command, shows
from trainmaster.cli.output import Column, Output, say
from trainmaster.cli.twin_meter import Progress
from trainmaster.cli.words import DURATION
from trainmaster.core.base.hostlist import fold
from trainmaster.core.base.time import in_seconds, seconds
from trainmaster.core.words import count_text, seconds_text

if TYPE_CHECKING:
    from trainmaster.twin.minimize import Minimal
    from trainmaster.twin.scenario import Scenario


@click.command(
    cls=Command,
    examples=[
        ("trainmaster twin minimize small.toml --seed 7", "the seed whose run broke an invariant"),
        ("trainmaster twin minimize small.toml --seed 7 --runs 2000 -o json", "with more patience, for programs"),
    ],
    exit_codes=(0, 1, 2, 130),
)
@click.argument("scenario", type=click.Path(path_type=Path))
@click.option("--seed", type=click.IntRange(0, 2**63), metavar="N", help="Instead of the scenario's.")
@click.option("--duration", type=DURATION, metavar="TIME", help="Simulated; instead of the scenario's.")
@click.option("--watch-every", type=click.IntRange(1), default=100, show_default=True, metavar="N",
              help="Look at the state after so many events of the whole run; more often in smaller ones.")  # fmt: skip
@click.option(
    "--runs", type=click.IntRange(2), default=500, show_default=True, metavar="N", help="Try at most so many."
)
@shows
def minimize(
    scenario: Path, seed: int | None, duration: float | None, watch_every: int, runs: int, output: Output
) -> None:
    """Find the few inputs with which a run still breaks an invariant.

    Requests, failures, failing steps and boots, jobs and hosts are left out as long as the same invariant breaks.
    Prints what remains, the last events before it breaks, and one command that shows it. Ends with 1 if nothing breaks.
    """
    from trainmaster.cli.scenariofile import load
    from trainmaster.twin.minimize import NothingBreaks, NotTheSame
    from trainmaster.twin.minimize import minimize as search

    whole = load(scenario)
    whole = whole.but(
        seed=whole.seed if seed is None else seed, duration=whole.duration if duration is None else seconds(duration)
    )
    progress = Progress()
    try:
        found = search(whole, watch_every, runs, progress.tell)
    except NothingBreaks:
        why = f"seed {whole.seed}, looked at after every {count_text(watch_every, 'event')}"
        fix = "give another --seed, a longer --duration, or a smaller --watch-every"
        raise Failed("no invariant breaks in this run, so there is nothing to minimize", why, fix) from None
    except NotTheSame as error:
        fix = f"keep the whole run: trainmaster twin run {scenario} --seed {whole.seed} --watch-every {watch_every}"
        raise Failed("given its inputs one by one, the run does not break in the same way", str(error), fix) from error
    progress.end()
    _show(found, scenario, whole, output)


def command_of(found: "Minimal", scenario: Path, whole: "Scenario") -> str:
    """What shows the minimal history."""
    words = ["trainmaster", "twin", "run", str(scenario), "--seed", str(found.seed)]
    words += ["--only", ",".join(one.name for one in found.inputs)]
    if len(found.hosts) < len(whole.fleet.hosts):
        words += ["--hosts", fold(found.hosts)]
    words += ["--duration", f"{found.duration_s:.6f}s", "--watch-every", str(found.watch_every)]
    return shlex.join(words)


def _show(found: "Minimal", scenario: Path, whole: "Scenario", output: Output) -> None:
    command = command_of(found, scenario, whole)
    if output.form not in ("table", "wide"):
        output.one("twin-minimal", found, [Column("command", lambda _: command)])
    else:
        from trainmaster.twin.scenario import START

        click.echo(f"broken:  {found.broken.sentence}")
        click.echo(f"after:   {seconds_text(in_seconds(found.broken.at - START))}, event {found.broken.event:,}")
        click.echo(f"inputs:  {len(found.inputs):,} of {found.inputs_before:,}")
        for one in found.inputs:
            click.echo(f"  {one.name:<10} {seconds_text(in_seconds(one.at - START)):>14}  {one.words}")
        click.echo(f"hosts:   {len(found.hosts):,} of {found.hosts_before:,}: {fold(found.hosts)}")
        click.echo("events:")
        for line in found.story:
            click.echo(f"  {line}")
    say(f"{count_text(found.runs, 'run')} of a simulated fleet" + ("" if found.complete else "; less might do: --runs"))
    say(f"try: {command}")
