"""`trainmaster maint`: maintenance trains and what they consist of. Its verbs are in
`maint_VERB.py` or, where they belong together, `maint_THING.py`."""

import click

from trainmaster.cli.maint_catalogue import diff, lint
from trainmaster.cli.maint_change import abort, cancel, pause, promote, resume, watch
from trainmaster.cli.maint_domain_size import domain_size
from trainmaster.cli.maint_ls import capacity, ls
from trainmaster.cli.maint_plan import apply, plan
from trainmaster.cli.maint_show import show
from trainmaster.cli.options import Noun


@click.group(
    cls=Noun,
    examples=[
        ("trainmaster maint plan --component gpu-driver --version 560.28 -w h3", "what an upgrade would do"),
        ("trainmaster maint ls --waiting", "what waits, and for what"),
        ("trainmaster maint show weekly", "a train: stops, who was missed, what it waits for"),
    ],
)
def maint() -> None:
    """Plan maintenance, ask for it, and see what becomes of it."""


for command in (
    abort, apply, cancel, capacity, diff, domain_size, lint, ls, pause, plan, promote, resume, show, watch
):  # fmt: skip
    maint.add_command(command)
