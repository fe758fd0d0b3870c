"""`trainmaster ckpt`: checkpoints in a directory or in a bucket. Needs no server and no PyTorch.

A checkpoint is given by the path of its directory, a group of them by the directory above; in a bucket by
`s3://BUCKET/PREFIX`. What is written here are notes beside a checkpoint (a pin, a verdict) and deletions, both in
directories only; the bytes of a checkpoint are never changed.
"""

import getpass
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar

import click
import msgspec

from trainmaster.cli.ckpt_interval import interval_command
from trainmaster.cli.ckpt_place import PlaceType, is_checkpoint, reaching, size_text, writing
from trainmaster.cli.ckpt_pull import pull_command
from trainmaster.cli.errors import Failed, NoSuchThing, PartlyDone, WrongUsage
from trainmaster.cli.options import Change, Noun, changes, settings, shows
from trainmaster.cli.output import Column, Output, instant_text, say
from trainmaster.core.base.ids import JobId
from trainmaster.core.base.value import Value
from trainmaster.core.checkpoint.index import Tensor
from trainmaster.core.checkpoint.listing import MANIFEST_NAME, step_of
from trainmaster.storage import directory, survey
from trainmaster.storage.contents import Unsound
from trainmaster.storage.directory import Pin
from trainmaster.storage.item import NotPlain
from trainmaster.storage.place import Place
from trainmaster.storage.survey import Fate, View
from trainmaster.storage.transfer import Damage
from trainmaster.storage.whole import Opened, compare, export, verify

T = TypeVar("T")
_PATH: Final = click.Path(path_type=Path)
_DIRECTORY: Final = click.argument("root", metavar="DIR", type=_PATH)
_CHECKPOINT: Final = click.argument("place", metavar="CHECKPOINT", type=PlaceType())
_PLACE: Final = click.argument("place", metavar="CHECKPOINT", type=PlaceType())


class TensorView(Value):
    name: str
    dtype: str
    shape: tuple[int, ...]
    size_bytes: int
    chunks: int


class ShownView(Value):
    checkpoint: View
    tensors: tuple[TensorView, ...]
    values: tuple[str, ...]


class JudgedView(Value):
    """What came of reading a checkpoint whole; `sound` is None where nothing says what its bytes should be."""

    name: str
    sound: bool | None
    size_bytes: int
    took_s: float
    problems: tuple[str, ...]


@click.group(
    cls=Noun,
    examples=[
        ("trainmaster ckpt ls /checkpoints", "what there is, newest first"),
        ("trainmaster ckpt verify /checkpoints", "read every byte of every one"),
        ("trainmaster ckpt export /checkpoints/step-00001200 model.safetensors --below model", "the weights alone"),
    ],
)
def ckpt() -> None:
    """See, verify, keep, clean, compare, export and fetch checkpoints.

    A place is a directory or `s3://BUCKET/PREFIX`. Buckets are reached with what `AWS_*` and `~/.aws` say, and need
    `pip install 'trainmaster[s3]'`.
    """


@ckpt.command(
    examples=[
        ("trainmaster ckpt ls /checkpoints", "newest first"),
        ("trainmaster ckpt ls /checkpoints -o wide", "with owner, samples and digest"),
        ("trainmaster ckpt ls /checkpoints -o name | head -1", "the newest"),
        ("trainmaster ckpt ls s3://models/llama", "in a bucket"),
    ],
    exit_codes=(0, 2, 3, 5, 6),
)
@click.argument("place", metavar="PLACE", type=PlaceType())
@shows
def ls(place: Place, output: Output) -> None:
    """List the checkpoints in a place.

    States: published; damaged, when it is known not to be whole; unfinished, a save that has not ended; torn, moved
    aside, or without its manifest; foreign, another program's. Only small files are read: `verify` reads the rest.
    """
    with reaching(place):
        found = survey.views(_existing(place.path)) if place.path else survey.views_in(place.shelf())
    output.listing("checkpoint", found, _COLUMNS)


@ckpt.command(
    examples=[
        ("trainmaster ckpt show /checkpoints/step-00001200", "what it is"),
        ("trainmaster ckpt show /checkpoints/step-00001200 --tensors", "and what is in it"),
        ("trainmaster ckpt show /checkpoints/step-00001200 -o json", "all of it, for programs"),
    ],
    exit_codes=(0, 1, 2, 3),
)
@_PLACE
@click.option("--tensors", is_flag=True, help="List the tensors instead.")
@shows
def show(place: Place, tensors: bool, output: Output) -> None:
    """Show a checkpoint, ours or of plain PyTorch."""
    opened = _opened(place)
    listed = tuple(_tensor(name, tensor) for name, tensor in sorted(opened.index.tensors.items()))
    if tensors:
        output.listing("tensor", listed, _TENSOR_COLUMNS)
        return
    with reaching(place):
        seen = survey.view(place.path) if place.path else survey.view_in(*place.located())
    assert seen is not None, "it was opened a moment ago"
    shown = ShownView(checkpoint=seen, tensors=listed, values=tuple(sorted(opened.index.values)))
    fields = [
        *(Column(each.name, _of_checkpoint(each), each.text, state=each.state) for each in _COLUMNS),
        Column("tensors", lambda item: len(item.tensors)),
        Column("elements", lambda item: sum(_elements(each) for each in item.tensors), "{:,}".format),
        Column("values", lambda item: len(item.values)),
    ]
    output.one("checkpoint", shown, fields)


@ckpt.command(
    name="verify",
    examples=[
        ("trainmaster ckpt verify /checkpoints/step-00001200", "read every byte of it"),
        ("trainmaster ckpt verify /checkpoints", "of every one in a directory"),
        ("trainmaster ckpt verify /checkpoints --readonly", "without a note beside them"),
    ],
    exit_codes=(0, 1, 2, 3),
)
@click.argument("places", metavar="PLACE...", nargs=-1, required=True, type=PlaceType())
@shows
def verify_command(places: tuple[Place, ...], output: Output) -> int:
    """Read every byte of checkpoints and compare it with what was written.

    In a directory the verdict is noted beside the checkpoint: one found sound is what cleaning keeps in any case, one
    found damaged no longer counts as kept. "No" if anything is damaged, or if nothing says what the bytes should be
    (foreign).
    """
    found = [_judge(place, note=not settings().readonly) for given in places for place in _checkpoints_at(given)]
    columns = [
        Column("name", lambda item: item.name),
        Column("sound", lambda item: item.sound, _sound_text, state=True),
        Column("size", lambda item: item.size_bytes, size_text),
        Column("took", lambda item: item.took_s, lambda seconds: f"{seconds:.1f} s"),
        Column("problem", lambda item: "; ".join(item.problems)),
    ]
    output.listing("checkpoint", found, columns)
    return 0 if found and all(each.sound for each in found) else 1


@ckpt.command(
    examples=[
        ('trainmaster ckpt pin /checkpoints/step-00001200 --reason "start of the ablation"', "it stays"),
        ("trainmaster ckpt pin /checkpoints/step-00001200 --dry-run", "what would be noted"),
    ],
    exit_codes=(0, 1, 2, 3, 5),
)
@_CHECKPOINT
@changes
def pin(place: Place, change: Change) -> None:
    """Keep a checkpoint in a directory until it is unpinned."""
    path = _published(place)
    if change.dry_run:
        say(f"dry run: {path.name} would be pinned")
        return
    note = Pin(reason=change.reason, by=getpass.getuser(), at=_now())
    directory.note(path, directory.PIN_NAME, note)
    say(f"{path.name} is pinned: {note.reason}")


@ckpt.command(
    examples=[
        ('trainmaster ckpt unpin /checkpoints/step-00001200 --reason "ablation is done"', "it may go"),
        ("trainmaster ckpt unpin /checkpoints/step-00001200 --dry-run", "why it is pinned"),
    ],
    exit_codes=(0, 1, 2, 3, 5),
)
@_CHECKPOINT
@changes
def unpin(place: Place, change: Change) -> None:
    """Let a pinned checkpoint go the way of the others."""
    path = _published(place)
    found = directory.pin_of(path)
    if found is None:
        raise Failed(f"{path.name} is not pinned", fix=f"trainmaster ckpt ls {path.parent}")
    if change.dry_run:
        say(f"dry run: {path.name} would be unpinned; it was pinned by {found.by or 'somebody'}: {found.reason}")
        return
    (path / directory.PIN_NAME).unlink()
    directory.sync_directory(path)
    say(f"{path.name} is unpinned; it was pinned by {found.by or 'somebody'}: {found.reason}")


@ckpt.command(
    examples=[
        ("trainmaster ckpt gc /checkpoints --keep 3 --dry-run", "what would go, and why"),
        ('trainmaster ckpt gc /checkpoints --keep 3 --reason "disk is full"', "asks, then deletes"),
        ('trainmaster ckpt gc /checkpoints --keep 3 --unfinished --reason "job is over" --yes', "leftovers as well"),
    ],
    exit_codes=(0, 1, 2, 3, 5, 7),
)
@_DIRECTORY
@click.option("--keep", type=click.IntRange(1), required=True, help="How many published ones stay.")
@click.option("--job", metavar="JOB", help="Whose; needed where several jobs share the directory.")
@click.option("--unfinished", is_flag=True, help="Also saves that never ended. Not while the job runs.")
@changes
@shows
def gc(root: Path, keep: int, job: str | None, unfinished: bool, change: Change, output: Output) -> None:
    """Delete old checkpoints of a job.

    Nothing that is pinned goes, nothing of others, and nothing at all before one that stays has been read whole and
    found sound: the newest is read if none has been.
    """
    owner = _owner(_existing(root), job)
    planned = survey.fates(root, job=owner, keep=keep, unfinished=unfinished)
    while not change.dry_run and (unread := _unread_fallback(root, owner, planned)):
        say(f"reading {unread.name}, so that what stays is known to be sound")
        _judge(Place(str(unread)), note=True)
        planned = survey.fates(root, job=owner, keep=keep, unfinished=unfinished)
    gone = [each for each in planned if each.act == "delete"]
    output.listing("fate", planned, _FATE_COLUMNS)
    size = size_text(sum(each.size_bytes for each in gone))
    if change.dry_run or not gone:
        say(f"dry run: {len(gone)} of {len(planned)} would be deleted, {size}" if change.dry_run else "nothing to do")
        return
    change.confirm(f"delete {len(gone)} of {len(planned)} directories, {size}, of {owner} in {root}")
    left = [each.name for each in gone if not _removed(root / each.name)]
    if left:
        raise PartlyDone(f"{len(left)} of {len(gone)} could not be deleted", ", ".join(left), "look at their rights")
    say(f"deleted {len(gone)}, {size}: {change.reason}")


@ckpt.command(
    examples=[
        ("trainmaster ckpt diff /a/step-00001200 /b/step-00001200", "which tensors differ"),
        ("trainmaster ckpt diff step-1 step-2 -o json", "for programs"),
    ],
    exit_codes=(0, 1, 2, 3),
)
@click.argument("left", metavar="CHECKPOINT", type=PlaceType())
@click.argument("right", metavar="CHECKPOINT", type=PlaceType())
@shows
def diff(left: Place, right: Place, output: Output) -> int:
    """Compare two checkpoints, tensor by tensor and bit by bit, whatever number of ranks wrote them.

    "Yes" if they are equal. Values that are no tensors are not compared.
    """
    one, other = _opened(left), _opened(right)
    found = _readable(lambda: list(compare(one, other)), left, right)
    columns = [
        Column("name", lambda item: item.name),
        Column("kind", lambda item: item.kind),
        Column("left", lambda item: item.left),
        Column("right", lambda item: item.right),
    ]
    if found or output.form not in ("table", "wide"):
        output.listing("difference", found, columns)
    else:
        say(f"{len(one.index.tensors)} tensors are equal, bit for bit")
    return 1 if found else 0


@ckpt.command(
    name="export",
    examples=[
        ("trainmaster ckpt export /checkpoints/step-00001200 all.safetensors", "every tensor"),
        ("trainmaster ckpt export /checkpoints/step-00001200 model.safetensors --below model", "the weights alone"),
    ],
    exit_codes=(0, 1, 2, 3, 5),
)
@_PLACE
@click.argument("file", metavar="FILE", type=_PATH)
@click.option("--below", metavar="NAME", help="Only what lies below this name, which is left out of the names.")
@click.option("--force", is_flag=True, help="Replace FILE if it exists.")
def export_command(place: Place, file: Path, below: str | None, force: bool) -> None:
    """Write the tensors as one safetensors file, verified on the way."""
    opened = _opened(place)
    prefix = f"{below.rstrip('.')}." if below else ""
    names = {name: name.removeprefix(prefix) for name in sorted(opened.index.tensors) if name.startswith(prefix)}
    if not names:
        tops = sorted({name.partition(".")[0] for name in opened.index.tensors})
        raise NoSuchThing(f"no tensor lies below {below}", f"there are {', '.join(tops)}", "name one of them")
    if file.exists() and not force:
        raise WrongUsage(f"{file} exists", "nothing is replaced without being asked for", "add --force, or a new name")
    manifest = opened.contents.manifest
    about = {"step": str(manifest.step), "job": manifest.job, "digest": manifest.digest()} if manifest else {}
    with writing(file):
        size = _readable(lambda: export(opened, file, names, about), place)
    say(f"{len(names)} tensors, {size_text(size)}, in {file}")


ckpt.add_command(pull_command)
ckpt.add_command(interval_command)


def _sound_text(sound: bool | None) -> str:
    return {True: "ok", False: "failed", None: "unknown"}[sound]


def _verified_text(at: int) -> str:
    return instant_text(at) if at else "never"


_COLUMNS: Final = [
    Column("name", lambda item: item.name),
    Column("state", lambda item: item.state, state=True),
    Column("size", lambda item: item.size_bytes, size_text),
    Column("ranks", lambda item: item.world, lambda ranks: "" if ranks is None else str(ranks)),
    Column("written", lambda item: item.written_at, lambda at: instant_text(at) if at else "unknown"),
    Column("sound", lambda item: item.sound, _sound_text, state=True),
    Column("pin", lambda item: item.pin),
    Column("problem", lambda item: item.problem),
    Column("job", lambda item: item.job, lambda job: job or "", wide=True),
    Column("samples", lambda item: item.samples, lambda count: "" if count is None else f"{count:,}", wide=True),
    Column("verified", lambda item: item.verified_at, _verified_text, wide=True),
    Column("digest", lambda item: item.digest, wide=True),
]
_TENSOR_COLUMNS: Final = [
    Column("name", lambda item: item.name),
    Column("dtype", lambda item: item.dtype),
    Column("shape", lambda item: "x".join(map(str, item.shape)) or "scalar"),
    Column("size", lambda item: item.size_bytes, size_text),
    Column("chunks", lambda item: item.chunks),
]
_FATE_COLUMNS: Final = [
    Column("name", lambda item: item.name),
    Column("act", lambda item: item.act),
    Column("size", lambda item: item.size_bytes, size_text),
    Column("why", lambda item: item.why),
]


def _tensor(name: str, tensor: Tensor) -> TensorView:
    return TensorView(
        name=name, dtype=tensor.dtype, shape=tensor.shape, size_bytes=tensor.size_bytes(), chunks=len(tensor.chunks)
    )


def _elements(view: TensorView) -> int:
    count = 1
    for size in view.shape:
        count *= size
    return count


def _of_checkpoint(column: Column) -> Callable[[Any], Any]:
    return lambda item: column.value(item.checkpoint)


def _existing(root: Path) -> Path:
    if not root.is_dir():
        raise NoSuchThing(f"there is no directory {root}", fix="give the directory that holds the checkpoints")
    return root


def _published(place: Place) -> Path:
    path = place.path
    if path is None:
        why = "a pin is a note beside a checkpoint in a directory, and nothing here deletes from buckets"
        raise WrongUsage(f"{place} cannot be pinned: buckets have no pins", why, f"trainmaster ckpt pull {place} DIR")
    if step_of(path.name) is None or not (path / MANIFEST_NAME).is_file():
        raise NoSuchThing(f"{path} is no published checkpoint", fix=f"trainmaster ckpt ls {path.parent}")
    return path


def _opened(place: Place) -> Opened:
    try:
        with reaching(place):
            return Opened(place)
    except Unsound as unsound:
        kind = NoSuchThing if unsound.problems[0].token in ("no-such-checkpoint", "no-checkpoint") else Failed
        raise kind(f"cannot use {place}", str(unsound), f"trainmaster ckpt ls {_listed(place)}") from unsound
    except (msgspec.MsgspecError, ValueError) as error:
        raise Failed(f"cannot use {place}", str(error), f"trainmaster ckpt ls {place.parent}") from error


def _listed(place: Place) -> Place:
    """Where to look for checkpoints: in the place itself, if it is a directory that holds some, else beside it."""
    path = place.path
    holds = path is not None and path.is_dir() and any(is_checkpoint(Place(str(each))) for each in path.iterdir())
    return place if holds else place.parent


def _readable(act: Callable[[], T], *places: Place) -> T:
    """The result of reading checkpoints; what is wrong with their bytes becomes a message."""
    try:
        return act()
    except (Damage, Unsound, NotPlain, EOFError) as error:
        named = [str(place) for place in places]
        fix = f"trainmaster ckpt verify {' '.join(named)}"
        raise Failed(f"cannot use {' or '.join(named)}", str(error), fix) from error


def _checkpoints_at(place: Place) -> list[Place]:
    """The checkpoint at a place, or those in it."""
    with reaching(place):
        if is_checkpoint(place):
            return [place]
        found = survey.views(_existing(place.path)) if place.path else survey.views_in(place.shelf())
    named = [place.child(each.name) for each in found if each.state not in ("unfinished", "torn")]
    if not named:
        raise NoSuchThing(f"there is no checkpoint in {place}", fix=f"trainmaster ckpt ls {place}")
    return named


def _judge(place: Place, note: bool) -> JudgedView:
    started = time.monotonic()
    size = 0
    sound: bool | None = None
    problems: tuple[str, ...]
    try:
        with reaching(place):
            opened = Opened(place)
            manifest = opened.contents.manifest
            if manifest is None:
                problems = ("another program wrote it: nothing says what its bytes should be",)
            else:
                size = manifest.size_bytes()
                problems = tuple(problem.sentence for problem in verify(opened))
                sound = not problems
    except (Unsound, msgspec.MsgspecError, ValueError) as error:
        problems, sound = (str(error),), False
    ours = place.path and any((place.path / name).exists() for name in (directory.OWNER_NAME, MANIFEST_NAME))
    if note and sound is not None and place.path and ours:
        survey.judged(place.path, "; ".join(problems), _now())
    took_s = round(time.monotonic() - started, 3)
    return JudgedView(name=place.name, sound=sound, size_bytes=size, took_s=took_s, problems=problems)


def _owner(root: Path, job: str | None) -> JobId:
    known = survey.owners(directory.look(root))
    if job is not None:
        meant = [name for name in known if name.partition("@")[0] == job]
        if job not in known and len(meant) == 1:
            return meant[0]
        if job not in known:
            raise NoSuchThing(f"{job} has no checkpoints in {root}", f"there are {', '.join(known) or 'none'}")
        return JobId(job)
    if len(known) != 1:
        why = f"there are {', '.join(known)}" if known else "no directory in it says whose it is"
        raise WrongUsage(f"whose checkpoints in {root}?", why, "add --job JOB")
    return known[0]


def _unread_fallback(root: Path, owner: JobId, planned: list[Fate]) -> Path | None:
    """The newest checkpoint that stays, if published ones would go and none that stays is known to be sound."""
    if not any(each.act == "delete" and step_of(each.name) is not None for each in planned):
        return None
    stays = {each.name for each in planned if each.act == "keep"}
    held = [entry for entry in directory.look(root) if entry.name in stays and entry.complete and entry.owner == owner]
    if any(entry.sound for entry in held):
        return None
    unread = sorted(entry.name for entry in held if entry.sound is None)
    return root / unread[-1] if unread else None


def _removed(path: Path) -> bool:
    try:
        directory.remove(path)
    except OSError as error:
        say(f"{path.name} stays: {error}")
        return False
    return True


def _now() -> int:
    """Microseconds since 1970 (UTC)."""
    return time.time_ns() // 1000
