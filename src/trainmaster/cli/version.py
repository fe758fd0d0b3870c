"""`trainmaster version`: what to write into a report."""

import platform

import click

from trainmaster import __version__
from trainmaster.cli.options import Command, shows
from trainmaster.cli.output import Column, Output
from trainmaster.core.base.value import Value


class VersionView(Value):
    """What runs here."""

    trainmaster: str
    python: str
    system: str


@click.command(
    cls=Command,
    examples=[
        ("trainmaster version", "what runs here"),
        ("trainmaster version -o name", "the number alone"),
        ("trainmaster version -o json", "for programs"),
    ],
)
@shows
def version(output: Output) -> None:
    """Print the version of trainmaster, of Python and of the system."""
    view = VersionView(
        trainmaster=__version__,
        python=platform.python_version(),
        system=f"{platform.system()} {platform.release()} {platform.machine()}",
    )
    fields = [
        Column("trainmaster", lambda item: item.trainmaster),
        Column("python", lambda item: item.python),
        Column("system", lambda item: item.system),
    ]
    output.one("version", view, fields)
