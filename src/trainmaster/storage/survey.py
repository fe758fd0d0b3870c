"""A look over a directory of checkpoints, for people: what each one is, and what may go.

One word a directory: `published`, `damaged` (published, and known not to be whole), `unfinished` (a save that has not
ended), `torn` (moved aside), `foreign` (another program's). Nothing is read but small files, so `published` without a
verdict means "as large as it should be" and says so.
"""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import msgspec

from trainmaster.core.base.ids import JobId, owner_text
from trainmaster.core.base.value import Value
from trainmaster.core.checkpoint.listing import MANIFEST_NAME, Entry, published_steps, pull_of, step_of, unpublished_of
from trainmaster.core.checkpoint.manifest import Manifest
from trainmaster.core.checkpoint.retention import retire
from trainmaster.storage import directory
from trainmaster.storage.blob_store import BlobStore
from trainmaster.storage.contents import Unsound, locate, look_into
from trainmaster.storage.directory import Verdict
from trainmaster.storage.foreign import METADATA_NAME
from trainmaster.storage.place import Shelf


class View(Value):
    """One directory. Instants are in microseconds, 0 if unknown; `sound` is None if it was never read whole, and no
    damage is seen from outside."""

    name: str
    state: str
    step: int | None
    job: str | None
    world: int | None
    size_bytes: int | None
    written_at: int
    sound: bool | None
    verified_at: int
    pin: str
    problem: str
    samples: int | None = None
    digest: str = ""


PULL_LEFT: Final = "a copy by `ckpt pull` that has not ended: the same command goes on with it; else delete it by hand"


class Fate(Value):
    """What would become of a directory, and why. `act` is `delete`, `keep` or `leave` (not ours to judge)."""

    name: str
    act: str
    why: str
    size_bytes: int


def views(root: Path) -> list[View]:
    """Everything below `root` that is, or claims to be, a checkpoint; newest first. Raises `OSError`."""
    shown = [view(root / entry.name, entry) for entry in directory.look(root) if _is_of_interest(root, entry)]
    return sorted(shown, key=lambda each: (-(each.step if each.step is not None else -1), each.name))


def _is_of_interest(root: Path, entry: Entry) -> bool:
    names = (step_of(entry.name), unpublished_of(entry.name), pull_of(entry.name))
    named = any(each is not None for each in names)
    return named or (root / entry.name / ".metadata").is_file()


def views_in(shelf: Shelf) -> list[View]:
    """The same of a store that is no file system; newest first. Raises `OSError`."""
    shown = [each for name in shelf.groups() if (each := view_in(shelf, name)) is not None]
    return sorted(shown, key=lambda each: (-(each.step if each.step is not None else -1), each.name))


def view_in(shelf: Shelf, name: str) -> View | None:
    """What one group of such a store is; None if it is nothing of interest. Nothing is hidden there while it is
    written, so one without a manifest is a save that has not ended, or never will."""
    try:
        sizes = shelf.sizes(name)
    except FileNotFoundError:
        return None
    step = step_of(name)
    has_manifest = MANIFEST_NAME in sizes
    if not has_manifest and METADATA_NAME not in sizes and step is None:
        return None
    mark = directory.mark_in(shelf.get(name, directory.OWNER_NAME)) if directory.OWNER_NAME in sizes else None
    manifest, problem = _manifest(shelf, name) if has_manifest else (None, "")
    state = "damaged" if problem else "published" if manifest else "unfinished" if mark or step else "foreign"
    return View(
        name=name,
        state=state,
        step=manifest.step if manifest is not None else step,
        job=manifest.job if manifest is not None else mark.job if mark is not None else None,
        world=manifest.world if manifest is not None else None,
        size_bytes=sum(sizes.values()),
        written_at=manifest.written_at if manifest is not None else 0,
        sound=False if problem else None,
        verified_at=0,
        pin="",
        problem=problem,
        samples=manifest.position.samples if manifest is not None else None,
        digest=manifest.digest() if manifest is not None else "",
    )


def view(path: Path, entry: Entry | None = None) -> View:
    """What one directory is."""
    entry = entry or directory.entry_of(path)
    unpublished, pulled = unpublished_of(entry.name), pull_of(entry.name)
    verdict = directory.verdict_of(path)
    manifest, problem = _manifest(*locate(path))
    if unpublished is not None:
        state = "torn" if entry.name.startswith(".torn") else "unfinished"
        problem = ""
    elif pulled is not None:
        state, problem = "unfinished", PULL_LEFT
    elif manifest is None and not problem:
        state = "foreign"
    elif problem or (verdict is not None and not verdict.sound):
        state = "damaged" if (path / MANIFEST_NAME).is_file() else "torn"
        problem = problem or (verdict.sentence if verdict else "")
    else:
        state = "published"
    step = unpublished.step if unpublished is not None else pulled if pulled is not None else step_of(entry.name)
    return View(
        name=entry.name,
        state=state,
        step=manifest.step if manifest is not None else step,
        job=entry.owner or (manifest.job if manifest is not None else None),
        world=manifest.world if manifest is not None else None,
        size_bytes=_size_bytes(path),
        written_at=manifest.written_at if manifest is not None else 0,
        sound=False if state == "damaged" else verdict.sound if verdict is not None else None,  # damage seen is newer
        verified_at=verdict.at if verdict is not None else 0,
        pin=entry.pin,
        problem=problem,
        samples=manifest.position.samples if manifest is not None else None,
        digest=manifest.digest() if manifest is not None else "",
    )


def _manifest(store: BlobStore, group: str) -> tuple[Manifest | None, str]:
    try:
        return look_into(store, group).manifest, ""
    except Unsound as unsound:
        return None, str(unsound)
    except (msgspec.MsgspecError, ValueError) as error:
        return None, str(error)


def _size_bytes(path: Path) -> int:
    with os.scandir(path) as entries:
        return sum(entry.stat(follow_symlinks=False).st_size for entry in entries)


def owners(entries: Iterable[Entry]) -> tuple[JobId, ...]:
    """The jobs that have checkpoints here, in order."""
    return tuple(sorted({entry.owner for entry in entries if entry.owner is not None}))


def fates(root: Path, *, job: JobId, keep: int, unfinished: bool) -> list[Fate]:
    """What cleaning would do so that `keep` checkpoints of a job remain.

    Saves that have not ended may be those of a running job, which nobody here can know, so they stay unless asked for.
    """
    entries = directory.look(root)
    decider = max((entry.attempt for entry in entries), default=0) if unfinished else -1
    plan = retire(entries, keep=keep, job=job, attempt=decider, epoch=1 << 30)
    gone = frozenset(plan.delete)
    ours = [entry for entry in entries if entry.owner == job and entry.sound is not False]
    newest = frozenset(published_steps(ours)[:keep])
    return [
        Fate(
            name=entry.name,
            act="delete" if entry.name in gone else "leave" if entry.name in plan.foreign else "keep",
            why=_why(entry, entry.name in gone, job, newest),
            size_bytes=_size_bytes(root / entry.name),
        )
        for entry in entries
    ]


def _why(entry: Entry, goes: bool, job: JobId, newest: frozenset[int]) -> str:
    step, is_save = step_of(entry.name), unpublished_of(entry.name) is not None
    if goes:
        never = is_save or not entry.complete
        return "it was never published" if never else f"it is older than the newest {len(newest)} that count"
    if entry.pin:
        return f"pinned: {entry.pin}"
    if is_save:
        return (
            "a save that may still be running" if entry.owner in (None, job) else f"it is {owner_text(entry.owner)}'s"
        )
    if pull_of(entry.name) is not None:
        return PULL_LEFT
    if step is None or entry.owner is None:
        return "it does not say whose it is"
    if entry.owner != job:
        return f"it is {owner_text(entry.owner)}'s"
    if step in newest:
        return f"it is among the newest {len(newest)} that count"
    return "it was read whole and found sound" if entry.sound else "it is newer than what counts"


def judged(path: Path, sentence: str, at: int) -> Verdict:
    """Notes what came of reading a checkpoint whole; an empty sentence: nothing is wrong. Raises `OSError`."""
    verdict = Verdict(sound=not sentence, sentence=sentence, at=at)
    directory.note(path, directory.VERDICT_NAME, verdict)
    return verdict
