"""`trainmaster config`: the settings, and where each comes from."""

import click

from trainmaster.cli.options import Noun, resolved, shows
from trainmaster.cli.output import Column, Output
from trainmaster.core.base.value import Value


class SettingView(Value):
    """One row."""

    name: str
    value: str | bool
    origin: str
    doc: str


@click.group(
    cls=Noun,
    examples=[
        ("trainmaster config show", "all settings"),
        ("trainmaster config show --origin", "and where each comes from"),
        ("TRAINMASTER_READONLY=1 trainmaster config show --origin", "a variable outranks the files"),
    ],
)
def config() -> None:
    """Show the settings and where they come from."""


@config.command(
    examples=[
        ("trainmaster config show", "all settings"),
        ("trainmaster config show --origin", "and where each comes from"),
        ("trainmaster config show -o wide", "with a line of documentation"),
    ]
)
@click.option("--origin", is_flag=True, help="Show where each setting comes from.")
@shows
def show(origin: bool, output: Output) -> None:
    """Show all settings.

    A setting comes from the first of: a flag, TRAINMASTER_NAME in the environment, the user's file
    ($XDG_CONFIG_HOME/trainmaster/config.toml), the site's file (/etc/trainmaster/config.toml), the default.
    """
    from trainmaster.live.config import docs

    found = resolved()
    rows = [
        SettingView(name=name, value=getattr(found.config, name), origin=found.origins[name], doc=doc)
        for name, doc in docs().items()
    ]
    columns = [
        Column("name", lambda row: row.name),
        Column("value", lambda row: row.value),
        Column("origin", lambda row: row.origin, wide=not origin),
        Column("doc", lambda row: row.doc, wide=True),
    ]
    output.listing("setting", rows, columns)
