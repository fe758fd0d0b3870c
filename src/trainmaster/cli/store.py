"""`trainmaster store`: what a mounted store knows of its files."""

import errno
import os
from pathlib import Path

import click

from trainmaster.cli.ckpt_place import size_text
from trainmaster.cli.errors import Failed, NoSuchThing
from trainmaster.cli.options import Noun, shows
from trainmaster.cli.output import Column, Output, instant_text
from trainmaster.core.base.value import Value


class FileView(Value):
    """A file on a mount. `state` is None for what has none: directories, links."""

    path: str
    state: str | None
    size_bytes: int
    modified_at: int
    store: str


@click.group(
    cls=Noun,
    examples=[
        ("trainmaster store stat /data/model.pt", "whether it is on the disk, come what may"),
        ("trainmaster store stat /data/*.pt -o json", "for programs"),
        ("trainmaster mount /var/lib/store /data", "a store as a directory"),
    ],
)
def store() -> None:
    """Ask what a mounted store knows of its files."""


@store.command(
    examples=[
        ("trainmaster store stat /data/model.pt", "written, or accepted"),
        ("trainmaster store stat /data/*.pt --columns path,state", "of many"),
        ("getfattr -n user.trainmaster.state /data/model.pt", "the same without us"),
    ],
    exit_codes=(0, 1, 2, 3),
)
@click.argument("paths", metavar="PATH...", nargs=-1, required=True, type=click.Path(path_type=Path))
@shows
def stat(paths: tuple[Path, ...], output: Output) -> None:
    """Show the states of files on a mount.

    written: as on any disk, it may be lost with the power. accepted: it was synced as it is now, and so was its name.
    """
    columns = [
        Column("path", lambda item: item.path),
        Column("state", lambda item: item.state, state=True),
        Column("size", lambda item: item.size_bytes, size_text),
        Column("modified", lambda item: item.modified_at, instant_text),
        Column("store", lambda item: item.store, wide=True),
    ]
    output.listing("file", [_view(path) for path in paths], columns)


def _view(path: Path) -> FileView:
    from trainmaster.storage.fuse.mounting import mount_of
    from trainmaster.storage.fuse.tree import STATE

    try:
        status = path.lstat()
    except (FileNotFoundError, NotADirectoryError) as error:
        raise NoSuchThing(f"there is no {path}", error.strerror or str(error), f"look at: ls {path.parent}") from error
    mounted = mount_of(path.parent.resolve() / path.name)
    if mounted is None:
        fix = "mount its store first: trainmaster mount STORE DIR"
        raise Failed(f"{path} is on no mount of trainmaster", "other file systems do not say what is synced", fix)
    try:
        state = os.getxattr(path, STATE, follow_symlinks=False).decode()
    except OSError as error:
        if error.errno not in (errno.ENODATA, errno.EPERM):
            raise
        state = None
    modified = status.st_mtime_ns // 1000
    return FileView(path=str(path), state=state, size_bytes=status.st_size, modified_at=modified, store=mounted.source)
