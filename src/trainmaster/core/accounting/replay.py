"""Steps that were done, lost, and done again; and whose fault that was.

An epoch that restores step 50 where step 100 had been reached does 50 steps again. A step that was lost several times
is repeated because of the last epoch that had done it: its end is what made that work worthless.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from typing import Final, NamedTuple

from trainmaster.core.accounting.timeline import key
from trainmaster.core.recovery.attempt import Attempt, Epoch

STORAGE: Final = "storage"
"""See `EpochPhase.origin`."""


class Again(NamedTuple):
    """Steps from `after` (exclusive) to `until` that an epoch does again."""

    incident: str
    """`key` of the epoch that had done them last; empty: its end was no incident."""
    after: int
    until: int


def steps_again(attempts: Sequence[Attempt], incidents: frozenset[str]) -> dict[str, tuple[Again, ...]]:
    """By the `key` of each epoch, the steps that it does again or will. `incidents`: see `incident_keys`."""
    epochs = [(attempt, epoch) for attempt in attempts for epoch in attempt.epochs]
    reached = list(accumulate((epoch.last_step for _, epoch in epochs), max))
    return {key(*each): tuple(_again(epochs[:place], reached, each[1], incidents)) for place, each in enumerate(epochs)}


def _again(
    before: Sequence[tuple[Attempt, Epoch]], reached: Sequence[int], epoch: Epoch, incidents: frozenset[str]
) -> Iterator[Again]:
    """`reached`: the furthest step up to each epoch."""
    if epoch.restored_at is None:
        return
    low = max(epoch.restored_step, 0)
    for place in range(len(before) - 1, -1, -1):
        if reached[place] <= low:
            return
        attempt, earlier = before[place]
        if earlier.last_step > low:
            name = key(attempt, earlier)
            yield Again(name if name in incidents else "", low, earlier.last_step)
            low = earlier.last_step


def published_step(epochs: Iterable[Epoch]) -> int:
    """The newest step that is known to be in storage; 0 if none is."""
    told = list(epochs)
    restored = [epoch.restored_step for epoch in told if epoch.restored_from == STORAGE]
    return max([0, *restored, *(epoch.published_step for epoch in told)])


def steps_lost(epochs: Iterable[Epoch], left: int | None = None) -> list[int]:
    """For each epoch the steps that the next one that restored anything did not find in its checkpoint. `left`: what
    could be gone on from, where no epoch will follow."""
    lost: list[int] = []
    restored = left
    for epoch in reversed(list(epochs)):
        lost.append(max(epoch.last_step - max(restored, 0), 0) if restored is not None else 0)
        restored = epoch.restored_step if epoch.restored_at is not None else restored
    return lost[::-1]
