"""`trainmaster mount` and `trainmaster umount`: a store as a directory."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from trainmaster.cli.errors import Failed
from trainmaster.cli.options import Command, check_writable, settings_flags
from trainmaster.cli.output import say

if TYPE_CHECKING:
    from trainmaster.storage.fuse.daemon import Mode, Options, Outcome

_STORE = click.argument("store", metavar="STORE", type=click.Path(path_type=Path))
_DIRECTORY = click.argument("directory", metavar="DIR", type=click.Path(path_type=Path))


@contextmanager
def _telling() -> Iterator[None]:
    from trainmaster.storage.fuse.refused import Refused

    try:
        yield
    except Refused as error:
        raise Failed(error.what, error.why, error.fix) from error


@click.command(
    cls=Command,
    examples=[
        ("trainmaster mount /var/lib/store /data", "in the background, until it is unmounted"),
        ("trainmaster mount /var/lib/store /data --foreground", "until Ctrl-C, which unmounts it"),
        ("trainmaster mount /var/lib/store /data --mode copying", "where the kernel must not touch the disk itself"),
        ("getfattr -n user.trainmaster.state /data/FILE", "written, or accepted: synced as it is"),
    ],
    exit_codes=(0, 1, 2, 5, 130),
)
@_STORE
@_DIRECTORY
@click.option(
    "--mode",
    type=click.Choice(["auto", "passthrough", "copying"]),
    default="auto",
    show_default=True,
    help="Whether the kernel reads and writes the files of the store itself (Linux 6.9, root), or we copy.",
)
@click.option(
    "--cache-ms",
    type=click.IntRange(0, 3_600_000),
    default=1000,
    show_default=True,
    help="For how long the kernel may believe names and attributes.",
)
@click.option("--foreground", is_flag=True, help="Stay, and unmount on Ctrl-C.")
@settings_flags()
def mount(store: Path, directory: Path, mode: "Mode", cache_ms: int, foreground: bool) -> int:
    """Mount a store. A directory that is new or empty becomes one.

    Files are as those of a disk: renamed, linked, appended to, mapped, locked. What was synced is on the disk of this
    host. A daemon that dies is replaced, and programs that have files open go on. At most 16,384 files may be open.
    """
    from trainmaster.storage.fuse.daemon import Options
    from trainmaster.storage.fuse.launch import start

    check_writable(dry_run=False)
    options = Options(store=str(store.resolve()), directory=str(directory.resolve()), mode=mode, cache_ms=cache_ms)
    with _telling():
        if foreground:
            return _stay(options)
        outcome = start(options)
    _tell(options, outcome)
    return 0


def _stay(options: "Options") -> int:
    from trainmaster.storage.fuse.daemon import hold

    def tell(outcome: "Outcome") -> None:
        if outcome.what:
            say(Failed(outcome.what, outcome.why, outcome.fix).text())
        else:
            _tell(options, outcome)

    return hold(options, tell)


def _tell(options: "Options", outcome: "Outcome") -> None:
    say(f"{options.store} is mounted at {options.directory} ({outcome.mode}{', ' if outcome.why else ''}{outcome.why})")
    say(f"  log     {options.store}/mount.log")
    say(f"  end it  trainmaster umount {options.directory}")


@click.command(
    cls=Command,
    examples=[
        ("trainmaster umount /data", "when nobody uses it"),
        ("trainmaster umount --lazy /data", "out of sight now, ended when nobody uses it any more"),
        ("trainmaster umount /data && trainmaster mount /var/lib/store /data", "anew, with all that was in it"),
    ],
    exit_codes=(0, 1, 2, 5),
)
@_DIRECTORY
@click.option("--lazy", is_flag=True, help="Even while it is used; who uses it may go on.")
@settings_flags()
def umount(directory: Path, lazy: bool) -> None:
    """End a mount. Returns when its store is free again."""
    from trainmaster.storage.fuse.launch import stop

    check_writable(dry_run=False)
    with _telling():
        store = stop(directory.resolve(), lazy)
    say(f"{directory} is unmounted; its files are in {store}")
