"""`trainmaster hosts`: the host-list tool. Lists come from the arguments or, without any, from stdin."""

import sys
from pathlib import Path

import click

from trainmaster.cli.errors import WrongUsage
from trainmaster.cli.options import Noun
from trainmaster.core.base.hostlist import GroupResolver, fold, parse, sort
from trainmaster.core.base.ids import HostId


@click.group(
    cls=Noun,
    examples=[
        ("trainmaster hosts expand 'h[1-3]!h2'", "h1 and h3, a line each"),
        ("squeue -ho %N | trainmaster hosts fold", "one short list from many"),
        ("trainmaster hosts count 'a[0-2]b[3-5]'", "9"),
    ],
)
def hosts() -> None:
    """Expand, fold and count host lists.

    A list is names, ranges (n[001-128], a[0-2]b[3-5], n[1-4,10], n[0-10/2]) and groups (@rack:r12), joined by
    , (union), ! (difference), & (intersection), ^ (symmetric difference), from left to right. Padding is part of a
    name: 7, 07 and 007 are three hosts. Quote lists: brackets, ! and & mean something to shells.
    """


_lists = click.argument("lists", nargs=-1, metavar="[LIST]...")
_exclude = click.option("-x", "--exclude", metavar="LIST", help="Leave these hosts out.")
_fleet = click.option(
    "--fleet", "fleet_file", metavar="FILE", type=click.Path(path_type=Path), help="Fleet file that knows the @groups."
)


@hosts.command(
    examples=[
        ("trainmaster hosts expand 'n[08-11]'", "n08 n09 n10 n11, a line each"),
        ("trainmaster hosts expand -s ' ' 'n[1-4]' -x n2", "n1 n3 n4"),
        ("trainmaster hosts expand --fleet fleet.toml @rack:c-r1", "the hosts of a rack"),
    ]
)
@_lists
@_exclude
@_fleet
@click.option("-s", "--separator", default="\\n", help=r"Between the names; \n and \t are known.", show_default=True)
def expand(lists: tuple[str, ...], exclude: str | None, fleet_file: Path | None, separator: str) -> None:
    """Print every host of the lists, in natural order."""
    names = _read(lists, exclude, fleet_file)
    if names:
        sys.stdout.write(separator.replace("\\n", "\n").replace("\\t", "\t").join(names) + "\n")


@hosts.command(
    name="fold",
    examples=[
        ("trainmaster hosts fold h1 h2 h10", "h[1-2,10]"),
        ("trainmaster hosts fold < hosts.txt", "hosts from a file, # begins a comment"),
        ("trainmaster hosts fold 'h[1-9]' -x 'h[3-4]'", "h[1-2,5-9]"),
    ],
)
@_lists
@_exclude
@_fleet
def fold_command(lists: tuple[str, ...], exclude: str | None, fleet_file: Path | None) -> None:
    """Print the hosts of the lists as one short list. The order of input does not matter."""
    sys.stdout.write(fold(_read(lists, exclude, fleet_file)) + "\n")


@hosts.command(
    examples=[
        ("trainmaster hosts count 'n[001-128]'", "128"),
        ("trainmaster hosts count 'a[1-9]&a[5-20]'", "5"),
        ("trainmaster hosts count < hosts.txt", "hosts of a file, each once"),
    ]
)
@_lists
@_exclude
@_fleet
def count(lists: tuple[str, ...], exclude: str | None, fleet_file: Path | None) -> None:
    """Print how many hosts the lists name, each counted once."""
    sys.stdout.write(f"{len(_read(lists, exclude, fleet_file))}\n")


def _read(lists: tuple[str, ...], exclude: str | None, fleet_file: Path | None) -> tuple[HostId, ...]:
    """The union of the lists (or of stdin) without the excluded hosts."""
    groups = _groups(fleet_file)
    if not lists:
        if sys.stdin.isatty():
            raise WrongUsage(
                "no host list", "there are no arguments, and stdin is a terminal", "name hosts, or pipe them in"
            )
        lists = ("-",)
    names: set[HostId] = set()
    for text in lists:
        names.update(parse(sys.stdin.read() if text == "-" else text, groups))
    if exclude is not None:
        names.difference_update(parse(exclude, groups))
    return sort(names)


def _groups(fleet_file: Path | None) -> GroupResolver | None:
    if fleet_file is None:
        return None
    from trainmaster.core.fleet.inventory import groups_of
    from trainmaster.live.fleetfile import load

    return groups_of(load(fleet_file).fleet.hosts)
