"""`trainmaster maint`: maintenance trains and what they consist of. Each verb has its own file, `maint_VERB.py`."""

import click

from trainmaster.cli.maint_domain_size import domain_size
from trainmaster.cli.options import Noun


@click.group(
    cls=Noun,
    examples=[
        ("trainmaster maint domain-size --hosts 3072 --job 2048 --job 32x20", "how many hosts a stop should take out")
    ],
)
def maint() -> None:
    """Plan maintenance: what goes out together, when, and what it costs."""


maint.add_command(domain_size)
