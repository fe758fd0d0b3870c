"""How a save becomes a checkpoint.

    staged     the staging directory exists, ranks are writing
    written    every rank has written and synced its files and told sizes and checksums; the manifest is written
    verified   what lies in the directory agrees with the manifest
    published  the directory has its final name: one rename, after which readers see all of it, before it none
    torn       anything else; never visible under a final name

A save never writes into a directory that has a final name. If the final name is taken by something that was never
published (a save that was cut before), that leftover is moved aside; an exists-check that raises instead would stop the
same job at the same step for ever, and if only one rank made it the others would wait for it in the next collective.
"""

from collections.abc import Iterable
from enum import Enum
from typing import Final

from trainmaster.core.base.ids import JobId
from trainmaster.core.base.machine import Machine
from trainmaster.core.checkpoint.listing import Entry, Problem, step_of, unpublished_of


class Stage(Enum):
    STAGED = "staged"
    WRITTEN = "written"
    VERIFIED = "verified"
    PUBLISHED = "published"
    TORN = "torn"


MACHINE: Final = Machine(
    "checkpoint",
    Stage.STAGED,
    [
        (Stage.STAGED, Stage.WRITTEN, "all ranks wrote and synced"),
        (Stage.WRITTEN, Stage.VERIFIED, "the directory agrees with its manifest"),
        (Stage.VERIFIED, Stage.PUBLISHED, "renamed to its final name"),
        (Stage.STAGED, Stage.TORN, "a write failed or a writer died"),
        (Stage.WRITTEN, Stage.TORN, "the directory does not agree, or a writer died"),
        (Stage.VERIFIED, Stage.TORN, "the rename failed or a writer died"),
        (Stage.PUBLISHED, Stage.TORN, "it no longer verifies"),
    ],
)


class Occupant(Enum):
    """What stands under the final name of a save before its publish."""

    NOTHING = "nothing"
    FOREIGN = "foreign"  # not this job's: nothing of ours may touch it, so the save cannot be
    LEFTOVER = "leftover"  # never published: move it aside
    PUBLISHED = "published"  # complete: the new one replaces it, the old one moves aside in the same breath


def occupant(entries: Iterable[Entry], step: int, job: JobId) -> Occupant:
    """What a save of `step` will meet. All ranks must be told the same answer."""
    found = [entry for entry in entries if step_of(entry.name) == step]
    if not found:
        return Occupant.NOTHING
    if any(entry.owner != job for entry in found):
        return Occupant.FOREIGN
    return Occupant.PUBLISHED if any(entry.complete for entry in found) else Occupant.LEFTOVER


def collisions(entries: Iterable[Entry], *, resume_step: int, save_every_steps: int) -> tuple[Problem, ...]:
    """Leftovers that a job resumed at `resume_step` will meet when it saves every so many steps.

    Known before the job starts, so it is said before the job starts.
    """
    assert save_every_steps > 0
    claimed = ((entry, step_of(entry.name)) for entry in entries if not entry.complete)
    met = [(entry, step) for entry, step in claimed if step is not None and step > resume_step]
    return tuple(
        Problem(
            token="leftover-in-the-way",
            sentence=f"the save at step {step} will meet {entry.name}, never published; it is safe to move aside",
            numbers={"step": step, "resume_step": resume_step},
            files=(entry.name,),
        )
        for entry, step in sorted(met, key=lambda pair: pair[1])
        if step % save_every_steps == 0
    )


def outrun_by(entries: Iterable[Entry], *, step: int, job: JobId, attempt: int, epoch: int) -> Entry | None:
    """Why a save of `step` by this membership (an epoch of an attempt) has nothing left to do: what a later one wrote
    or writes here, or the same step, published already. A writer that was replaced, and does not know it yet, thus
    publishes nothing over those who replaced it."""
    for entry in entries:
        claimed, save = step_of(entry.name), unpublished_of(entry.name)
        if entry.owner != job or (claimed is None and save is None):
            continue
        made_by = (entry.attempt, save.epoch if save is not None else entry.epoch)
        if made_by > (attempt, epoch) or (made_by == (attempt, epoch) and claimed == step and entry.complete):
            return entry
    return None
