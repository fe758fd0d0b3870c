"""Places of checkpoints on a command line: paths and `s3://BUCKET/PREFIX`, and what goes wrong on the way to them."""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from trainmaster.cli.errors import Failed, NoSuchThing, NotAllowed, Unreachable
from trainmaster.core.checkpoint.listing import MANIFEST_NAME
from trainmaster.storage.foreign import METADATA_NAME
from trainmaster.storage.place import NoClient, Place


class PlaceType(click.ParamType):  # type: ignore[type-arg]  # generic in newer versions of click only
    """A place. What is wrong with its form is a wrong usage."""

    name = "place"

    def convert(self, value: str | Place, param: click.Parameter | None, ctx: click.Context | None) -> Place:
        if isinstance(value, Place):
            return value
        try:
            return Place(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


@contextmanager
def reaching(place: Place) -> Iterator[None]:
    """Turns what a store answers into messages. Errors of a directory are left as they are."""
    try:
        yield
    except NoClient as error:
        raise Failed(f"cannot reach {place}", str(error), "pip install 'trainmaster[s3]'") from error
    except OSError as error:
        if place.path is not None:
            raise
        if isinstance(error, PermissionError):
            fix = "look at AWS_PROFILE and the variables AWS_*, and at what the bucket allows"
            raise NotAllowed(f"cannot read {place}", str(error), fix) from error
        if isinstance(error, FileNotFoundError):
            raise NoSuchThing(f"cannot read {place}", str(error), "look at the bucket's name and region") from error
        if isinstance(error, ConnectionError):
            fix = "look at AWS_ENDPOINT_URL, the region, and the way there; then run it again"
            raise Unreachable(f"cannot reach {place}", str(error), fix) from error
        raise


@contextmanager
def writing(target: Path) -> Iterator[None]:
    """Turns what the file system says of a target, of what lies below it, or of its hidden twin, into a message."""
    try:
        yield
    except OSError as error:
        ours = (str(target), str(target.with_name(f".{target.name}")))
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)  # says its own fix
        if full or error.filename is None or not os.fsdecode(error.filename).startswith(ours):
            raise
        fix = "give a path in a directory that exists and where you may write"
        raise Failed(f"cannot write {target}", error.strerror or str(error), fix) from error


def is_checkpoint(place: Place) -> bool:
    """Whether a checkpoint lies there, ours or another program's; whether it is a good one is another question."""
    if place.path is not None:
        return any((place.path / name).exists() for name in (MANIFEST_NAME, METADATA_NAME))
    if not place.name:
        return False
    store, group = place.located()
    try:
        return bool({MANIFEST_NAME, METADATA_NAME} & store.sizes(group).keys())
    except FileNotFoundError:
        return False


def size_text(size_bytes: int | None) -> str:
    """`513 B`, `1.5 GiB`."""
    if size_bytes is None:
        return ""
    size, unit = float(size_bytes), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if size < 1024:
            break
        size, unit = size / 1024, larger
    return f"{size:.0f} {unit}" if unit == "B" or size >= 100 else f"{size:.1f} {unit}"
