"""What became of each writer of a save: when it asked, when it was let in, what it spent its time with.

A save ends with its slowest writer, so the report names it and what held it up. Its time falls into four: *queued*
(before its first grant: others were before it), *shaped* (later waits for a grant), *moving* (the store had the turn)
and *own* (neither: the writer computed, or was not there).
"""

from collections.abc import Sequence
from typing import Final, Literal

import msgspec

from trainmaster.core.base.time import Instant, in_seconds
from trainmaster.core.base.value import Value

Phase = Literal["queued", "shaped", "moving", "own"]
PHASES: Final[tuple[Phase, ...]] = ("queued", "shaped", "moving", "own")


class Turn(msgspec.Struct, kw_only=True, gc=False):
    """A writer, as admission saw it. Times in microseconds."""

    writer: str
    kind: Literal["checkpoint", "data", "code"]
    save: str
    size_bytes: int
    """As it said; 0: a stream."""
    opened_at: Instant
    since: Instant
    state: Literal["waiting", "moving", "own"] = "own"
    granted_at: Instant | None = None
    ended_at: Instant | None = None
    """When it last had moved something."""
    asked_bytes: int = 0
    moved_bytes: int = 0
    queued: int = 0
    shaped: int = 0
    moving: int = 0
    own: int = 0

    def enter(self, state: Literal["waiting", "moving", "own"], now: Instant) -> None:
        """Counts the time since the last change of state to what it was spent with."""
        spent = now - self.since
        assert spent >= 0, self
        if self.state == "moving":
            self.moving += spent
        elif self.state == "own":
            self.own += spent
        elif self.granted_at is None or self.granted_at == now:
            self.queued += spent
        else:
            self.shaped += spent
        self.state, self.since = state, now

    def phase(self) -> Phase:
        """What it spent most of its time with."""
        spent: dict[Phase, int] = {
            "queued": self.queued, "shaped": self.shaped, "moving": self.moving, "own": self.own
        }  # fmt: skip
        return max(PHASES, key=lambda phase: spent[phase])

    def whole(self) -> bool:
        """Whether it moved all that it had said."""
        return self.moved_bytes >= self.size_bytes


class SaveReport(Value):
    """A burst that has ended."""

    save: str
    writers: int
    unfinished: tuple[str, ...]
    """Writers that went before they had moved everything."""
    moved_bytes: int
    makespan: int
    """From the first that asked to the last byte."""
    slowest: str
    phase: Phase
    """What the slowest one spent most of its time with."""
    sentence: str

    def rate(self) -> float:
        """Bytes a second."""
        return 1e6 * self.moved_bytes / max(self.makespan, 1)


def report(turns: Sequence[Turn]) -> SaveReport:
    """Of all writers of one save, which have gone."""
    assert turns
    assert len({turn.save for turn in turns}) == 1, "of one save"
    started = min(turn.opened_at for turn in turns)
    slowest = max(turns, key=lambda turn: (turn.ended_at or turn.opened_at, turn.writer))
    ended = slowest.ended_at or slowest.opened_at
    moved_bytes = sum(turn.moved_bytes for turn in turns)
    unfinished = tuple(sorted(turn.writer for turn in turns if not turn.whole()))
    sentence = (
        f"{len(turns)} writers moved {moved_bytes >> 20} MiB in {in_seconds(ended - started):.2f} s; the last was "
        f"{slowest.writer}: {in_seconds(slowest.queued):.2f} s queued, {in_seconds(slowest.shaped):.2f} s shaped, "
        f"{in_seconds(slowest.moving):.2f} s moving, {in_seconds(slowest.own):.2f} s on its own"
    )
    if unfinished:
        sentence += f"; {len(unfinished)} went before the end, {unfinished[0]} first in the list"
    return SaveReport(
        save=turns[0].save,
        writers=len(turns),
        unfinished=unfinished,
        moved_bytes=moved_bytes,
        makespan=ended - started,
        slowest=slowest.writer,
        phase=slowest.phase(),
        sentence=sentence,
    )
