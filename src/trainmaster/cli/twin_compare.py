"""`trainmaster twin compare`: two scenarios under the same seeds, and which differences are more than noise."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from trainmaster.cli.errors import Failed, WrongUsage
from trainmaster.cli.options import Command, shows
from trainmaster.cli.output import Output, duration_text, say
from trainmaster.cli.twin_meter import Progress
from trainmaster.cli.twin_paired import columns, of_interest
from trainmaster.cli.words import DURATION
from trainmaster.core.base.time import seconds
from trainmaster.core.words import count_text

if TYPE_CHECKING:
    from trainmaster.twin.compare import Comparison
    from trainmaster.twin.scenario import Scenario


@click.command(
    cls=Command,
    examples=[
        ("trainmaster twin compare small.toml other.toml --seeds 10", "two files"),
        ("trainmaster twin compare small.toml --set twin.operations.stop_hosts=16", "one file, and a change"),
        ("trainmaster twin compare small.toml --set 'capacity.book[1].maintenance_hosts=8' --duration 2d -o json",
         "keys as problems of files name them"),
    ],
    exit_codes=(0, 1, 2),
)  # fmt: skip
@click.argument("a", type=click.Path(path_type=Path))
@click.argument("b", type=click.Path(path_type=Path), required=False)
@click.option("--set", "changes", multiple=True, metavar="KEY=VALUE", help="Change B; may be repeated.")
@click.option("--seeds", type=click.IntRange(1, 1000), default=10, show_default=True, metavar="N",
              help="Run each under so many seeds, from A's own on.")  # fmt: skip
@click.option("--duration", type=DURATION, metavar="TIME", help="Simulated, of both; instead of A's.")
@click.option("--watch-every", type=click.IntRange(0), default=0, show_default=True, metavar="N",
              help="Look at the whole state after so many events; 0: watch nothing.")  # fmt: skip
@shows
def compare(
    a: Path,
    b: Path | None,
    changes: tuple[str, ...],
    seeds: int,
    duration: float | None,
    watch_every: int,
    output: Output,
) -> None:
    """Compare two scenarios in the figures of their runs.

    Both live through the same seeds, so that chance cancels as far as they are alike. B is a second file, or A with
    changes, or both. A difference is called more or less only where it is larger than noise.
    """
    from trainmaster.cli.scenariofile import load
    from trainmaster.twin.compare import compare_scenarios
    from trainmaster.twin.run import Options

    if b is None and not changes:
        raise WrongUsage("there is nothing to compare", "B would be A", "give a second file, or --set KEY=VALUE")
    one, other = load(a), load(b or a, changes)
    length = seconds(duration) if duration is not None else one.duration
    name = " ".join((str(b or a), *changes))
    progress = Progress()
    found = compare_scenarios(
        one.but(duration=length),
        other.but(duration=length),
        range(one.seed, one.seed + seeds),
        Options(whole_every=watch_every),
        (str(a), name),
        lambda done, total: progress.tell(f"simulated {done} of {total} runs"),
    )
    progress.end()
    _show(found, one, output)
    if found.invariants_broken:
        fix = f"find the run: trainmaster twin run {a} --seed {one.seed} (and the other seeds, and B)"
        raise Failed(f"{found.invariants_broken} times an invariant was broken", "the policies have a defect", fix)


def _show(found: "Comparison", one: "Scenario", output: Output) -> None:
    if output.form not in ("table", "wide", "jsonl", "name"):
        output.one("twin-comparison", found, [])
        return
    if output.form in ("table", "wide"):
        each = duration_text(seconds(found.simulated_s / len(found.seeds) / 2))
        say(f"simulated, not measured: {each} under {count_text(len(found.seeds), 'seed')} from {one.seed} on")
        say(f"A: {found.a}\nB: {found.b}")
    output.listing("figure", of_interest(found.figures, output), columns("A", "B"))
    if output.form in ("table", "wide"):
        one_seed = "one seed says nothing about noise: give --seeds"
        say(f"verdicts: {found.test}" if len(found.seeds) > 1 else one_seed)
