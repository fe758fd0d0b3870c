"""`trainmaster twin`: simulated fleets. Each verb has its own file, `twin_VERB.py`."""

import click

from trainmaster.cli.options import Noun
from trainmaster.cli.twin_burst import burst
from trainmaster.cli.twin_compare import compare
from trainmaster.cli.twin_lemons import lemons
from trainmaster.cli.twin_minimize import minimize
from trainmaster.cli.twin_replay import replay
from trainmaster.cli.twin_run import run
from trainmaster.cli.twin_what_if import what_if


@click.group(
    cls=Noun,
    examples=[
        ("trainmaster twin run scenarios/two-clusters.toml", "a simulated day of two clusters"),
        ("trainmaster twin what-if plan.json --days 7", "what a plan would do to the running fleet"),
        ("trainmaster twin compare a.toml b.toml", "which differences are more than noise"),
        ("trainmaster twin lemons --seeds 20", "how many bad hosts are found, and what that is worth"),
        ("trainmaster twin burst scenarios/exabyte-burst.toml", "what a save of all ranks does to readers"),
        ("trainmaster twin minimize a.toml --seed 7", "the few inputs that break an invariant"),
        ("trainmaster twin replay run/log.sqlite", "does this version decide as the server did?"),
    ],
)
def twin() -> None:
    """Let a simulated fleet live under the very policies that run live."""


twin.add_command(run)
twin.add_command(compare)
twin.add_command(minimize)
twin.add_command(replay)
twin.add_command(what_if)
twin.add_command(lemons)
twin.add_command(burst)
