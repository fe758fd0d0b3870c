"""What may be deleted from a directory of checkpoints.

Kept are the newest `keep` published ones, and everything that is not exactly ours: other tools also write directories
called `step-100`, so a name is not enough, the owner's mark must be in it. One that is known to be damaged does not
count, and the newest of which every byte was read and found sound stays in any case: it is what a resume falls back to.
A pinned one stays until it is unpinned. A directory without its manifest is
no checkpoint: it does not count as one of the `keep` (else a torn newest one would push out the last good one) and is
removed, because it was never published. The staging directory of the save in flight is not touched, nor one of a newer
membership: whoever decides here may be a process that was replaced and does not know it yet. A save from memory goes on
beside the steps, so one of this very membership stays until a checkpoint of its step or a later one is published.

The decision is pure; who carries it out renames a directory out of sight first, so that a deletion cut half-way leaves
nothing that still looks complete, and something that the next decision knows as a leftover.
"""

from collections.abc import Iterable

from trainmaster.core.base.ids import JobId
from trainmaster.core.base.value import Value
from trainmaster.core.checkpoint.listing import Entry, Unpublished, is_save_of, published_steps, step_of, unpublished_of


class Retirement(Value):
    """Names to delete and to keep, both sorted; `foreign` are names that are not ours to judge."""

    delete: tuple[str, ...]
    keep: tuple[str, ...]
    foreign: tuple[str, ...]


def retire(
    entries: Iterable[Entry], *, keep: int, job: JobId, attempt: int, epoch: int, in_flight: Unpublished | None = None
) -> Retirement:
    """What this membership of `job` (an epoch of an attempt) may delete so that `keep` published checkpoints remain.

    A save in flight counts as one of them, since it is about to be; but the last published one stays in any case.
    """
    assert keep >= 1
    listed = tuple(entries)
    ours = [entry for entry in listed if _is_ours(entry, job)]
    stay = max(1, keep - 1) if in_flight is not None else keep
    kept_steps = _kept(ours, stay)
    decider = (attempt, epoch)
    verdicts = {entry.name: entry in ours and _goes(entry, kept_steps, decider, in_flight) for entry in listed}
    foreign = tuple(sorted(entry.name for entry in listed if entry not in ours))
    delete = tuple(sorted(name for name, gone in verdicts.items() if gone))
    assert not set(delete) & set(foreign)
    stays = tuple(sorted(name for name, gone in verdicts.items() if not gone and name not in foreign))
    return Retirement(delete=delete, keep=stays, foreign=foreign)


def _kept(ours: Iterable[Entry], count: int) -> frozenset[int]:
    """Steps that stay: down to the newest `count` that are not known to be damaged, the fallback, pinned ones."""
    listed = tuple(ours)
    steps = published_steps(listed)
    usable = published_steps(entry for entry in listed if entry.sound is not False)
    oldest = usable[min(count, len(usable)) - 1] if usable else 0
    fallback = published_steps(entry for entry in listed if entry.sound)[:1]
    pinned = published_steps(entry for entry in listed if entry.pin)
    return frozenset((*(step for step in steps if step >= oldest), *fallback, *pinned))


def _is_ours(entry: Entry, job: JobId) -> bool:
    """A staging directory whose writer died before it left its mark is ours by its name, which nobody else uses."""
    save = unpublished_of(entry.name)
    if save is not None:
        return is_save_of(save, entry.owner, job)
    return step_of(entry.name) is not None and entry.owner == job


def _goes(entry: Entry, kept_steps: frozenset[int], decider: tuple[int, int], in_flight: Unpublished | None) -> bool:
    """Whether an entry is deleted."""
    save = unpublished_of(entry.name)
    if save is not None:
        if save.by_parts and (entry.attempt, save.epoch) == decider and save.step > max(kept_steps, default=-1):
            return False
        return (entry.attempt, save.epoch) <= decider and save != in_flight
    return not entry.complete or step_of(entry.name) not in kept_steps
