"""`trainmaster ckpt pull`: a checkpoint from a store into a directory."""

import sys
import time
from pathlib import Path
from typing import Final

import click
import msgspec

from trainmaster.cli.ckpt_place import PlaceType, is_checkpoint, reaching, size_text, writing
from trainmaster.cli.errors import Failed, NoSuchThing
from trainmaster.cli.options import Command, shows
from trainmaster.cli.output import Column, Output, say
from trainmaster.storage.contents import Unsound
from trainmaster.storage.place import Place, Shelf
from trainmaster.storage.pull import Occupied, Pulled, candidates, pull
from trainmaster.storage.transfer import Damage

_EVERY_S: Final = 0.2


@click.command(
    name="pull",
    cls=Command,
    examples=[
        ("trainmaster ckpt pull s3://models/llama/step-00001200 /checkpoints", "this one"),
        ("trainmaster ckpt pull s3://models/llama /checkpoints", "the newest that verifies"),
        ("trainmaster ckpt pull /mnt/archive/llama /checkpoints -o json", "from another directory; for programs"),
    ],
    exit_codes=(0, 1, 2, 3, 5, 6),
)
@click.argument("source", metavar="SOURCE", type=PlaceType())
@click.argument("root", metavar="DIR", type=click.Path(path_type=Path, file_okay=False))
@shows
def pull_command(source: Place, root: Path, output: Output) -> None:
    """Copy a checkpoint into a directory, verified on the way.

    SOURCE is a checkpoint, or a place with checkpoints: then the newest that verifies is taken, and it is said which
    were passed over. A copy that was cut goes on where it was. The checkpoint appears in DIR whole or not at all, and
    nothing that is there is replaced.
    """
    with reaching(source):
        if is_checkpoint(source):
            store, name = source.located()
            names = [name]
        else:
            store = source.shelf()
            names = candidates(store)
        if not names:
            raise NoSuchThing(f"there is no checkpoint in {source}", fix=f"trainmaster ckpt ls {source}")
        with writing(root):
            pulled = _first_sound(source, store, names, root)
    columns = [
        Column("name", lambda item: item.name),
        Column("size", lambda item: item.size_bytes, size_text),
        Column("fetched", lambda item: item.fetched_bytes, size_text),
    ]
    output.one("checkpoint", pulled, columns)


def _first_sound(source: Place, store: Shelf, names: list[str], root: Path) -> Pulled:
    passed_over: list[str] = []
    for name in names:
        line = _Line(name)
        try:
            return pull(store, name, root, line.progress)
        except (Unsound, Damage, EOFError, msgspec.MsgspecError) as error:
            line.end()
            passed_over.append(f"{name}: {error}")
            say(f"{name} cannot be used: {error}")
        except Occupied as error:
            line.end()
            raise Failed(f"cannot copy {name}", str(error), f"trainmaster ckpt ls {root}") from error
        finally:
            line.end()
    raise Failed(f"nothing in {source} can be used", "\n".join(passed_over), f"trainmaster ckpt verify {source}")


class _Line:
    """Says how far it is, on one line of a terminal."""

    def __init__(self, name: str) -> None:
        self._name, self._started = name, time.monotonic()
        self._told = 0.0
        self._shown = sys.stderr.isatty()

    def progress(self, done: int, total: int) -> None:
        now = time.monotonic()
        if not self._shown or (now - self._told < _EVERY_S and done < total):
            return
        self._told = now
        rate = size_text(round(done / max(now - self._started, 1e-3)))
        percent = done * 100 // max(total, 1)
        sys.stderr.write(f"\r{self._name}: {percent} % of {size_text(total)}, {rate}/s  ")
        sys.stderr.flush()

    def end(self) -> None:
        """Leaves the line, once."""
        if self._told:
            sys.stderr.write("\n")
            self._told = 0.0
