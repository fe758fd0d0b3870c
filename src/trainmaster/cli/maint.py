"""`trainmaster maint`: maintenance trains and what they consist of. Its verbs are in
`maint_VERB.py` or, where they belong together, `maint_THING.py`."""

import click

from trainmaster.cli.maint_catalogue import diff, lint
from trainmaster.cli.maint_domain_size import domain_size
from trainmaster.cli.options import Noun


@click.group(
    cls=Noun,
    examples=[
        ("trainmaster maint domain-size --hosts 3072 --job 2048 --job 32x20", "how many hosts a stop should take out"),
        ("trainmaster maint lint catalogue.toml", "what is wrong with components, kinds and rules"),
        ("trainmaster maint diff old.toml new.toml", "what a new catalogue changes"),
    ],
)
def maint() -> None:
    """Plan maintenance: what goes out together, when, and what it costs."""


for command in (diff, domain_size, lint):
    maint.add_command(command)
