"""`trainmaster maint lint` and `trainmaster maint diff`: catalogue files, before they are declared. Need no server."""

from pathlib import Path

import click

from trainmaster.cli.errors import WrongUsage
from trainmaster.cli.options import Command, shows
from trainmaster.cli.output import Column, Output, say
from trainmaster.core.maintenance.compare import differences
from trainmaster.core.words import count_text
from trainmaster.live.cataloguefile import Finding, examine, load


@click.command(
    cls=Command,
    examples=[
        ("trainmaster maint lint scenarios/catalogue.toml", "every problem with its line and a fix"),
        ("trainmaster maint lint catalogue.toml -o json", "for programs"),
        ("trainmaster maint lint catalogue.toml --columns line,reason", "two columns"),
    ],
    exit_codes=(0, 2),
)
@click.argument("file", type=click.Path(path_type=Path))
@shows
def lint(file: Path, output: Output) -> None:
    """Find what is wrong with a catalogue of components, kinds of operation and rules.

    With errors it cannot be declared (exit code 2); warnings are likely not meant.
    """
    found = examine(file)
    columns = [
        Column("line", lambda finding: finding.line),
        Column("severity", lambda finding: finding.severity),
        Column("place", lambda finding: finding.place),
        Column("reason", lambda finding: finding.reason),
        Column("fix", lambda finding: finding.fix),
    ]
    output.listing("finding", found, columns, extra={"file": str(file)})
    errors = _count(found, "error")
    if errors:
        raise WrongUsage(f"cannot use the catalogue {file}: {count_text(errors, 'error')}")
    if found:
        say(f"{count_text(_count(found, 'warning'), 'warning')}, no error")


def _count(found: tuple[Finding, ...], severity: str) -> int:
    return sum(finding.severity == severity for finding in found)


@click.command(
    cls=Command,
    examples=[
        ("trainmaster maint diff old.toml new.toml", "what was added, removed, changed"),
        ("trainmaster maint diff old.toml new.toml -o json", "for programs"),
        ("trainmaster maint diff old.toml new.toml --sort what", "by name"),
    ],
    exit_codes=(0, 2),
)
@click.argument("old", type=click.Path(path_type=Path))
@click.argument("new", type=click.Path(path_type=Path))
@shows
def diff(old: Path, new: Path, output: Output) -> None:
    """Compare two catalogues. Both must be without errors."""
    columns = [
        Column("what", lambda item: item.what),
        Column("change", lambda item: item.change),
        Column("key", lambda item: item.key),
        Column("before", lambda item: item.before if item.key else ""),
        Column("after", lambda item: item.after if item.key else ""),
    ]
    output.listing("difference", differences(load(old), load(new)), columns)
