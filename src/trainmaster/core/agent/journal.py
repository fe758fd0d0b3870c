"""The journal: what an agent did with each effect, so that an effect which is sent again is answered, not repeated.

An effect is offered with the lease of its sender. The answer is one of three: start it, wait (it is being carried out),
or here is its outcome. An effect of an older lease than the newest one seen is refused for ever: its sender has been
replaced, and the new one sends what it still wants under its own lease.

What a host did before a reboot is gone after it, except for ends: a stop or a release stays done, and so do the steps
of an operation. So an entry of an
earlier boot answers "failed", which makes the server ask anew instead of waiting for workers that no longer exist. An
entry that was begun but not ended (the agent crashed in between) is started again; the handlers look at the world
first, so this is harmless.

Entries of an attempt are dropped when its release is done and acknowledged; others when they are acknowledged and
`KEPT_LOOSE` newer ones exist. The journal is pure: it hands out lines to store and is built again from such lines.
"""

from collections.abc import Iterable
from typing import Final, Literal

from trainmaster.core.base.ids import AttemptId, BootId, EffectId
from trainmaster.core.base.value import Value
from trainmaster.core.effects import AnyEffect, RebootHost, ReleaseAttempt, RunSteps, StopWorkers, attempt_of
from trainmaster.core.recovery.events import Outcome

KEPT_LOOSE: Final = 64
"""Entries without an attempt that stay after their acknowledgement. A repeat can only be on its way for as long as one
stream lives, so this is generous; it bounds the journal of a host that is verified for years."""

_REBOOTED: Final = "the host rebooted since this was done"


class Entry(Value):
    """What is known of one effect. `outcome` is None while it is carried out."""

    effect: EffectId
    boot: BootId
    attempt: AttemptId | None
    ends: bool
    """A stop, a release, steps of an operation: still true after a reboot."""
    releases: bool = False
    outcome: Outcome | None = None
    detail: str = ""
    numbers: dict[str, int | float | str] = {}
    acknowledged: bool = False


class Line(Value):
    """One line of the stored journal: exactly one is set. A later entry replaces an earlier one of the same effect."""

    entry: Entry | None = None
    dropped: tuple[EffectId, ...] = ()
    lease: int | None = None


class Answer(Value):
    """What to do with an offered effect: `start` it, `wait`, or report the outcome in `entry`."""

    verdict: Literal["start", "wait", "ended"]
    entry: Entry
    lines: tuple[Line, ...] = ()
    """To be stored before the effect is started."""


class Journal:
    """Mutable, owned by one agent."""

    def __init__(self, boot: BootId, lines: Iterable[Line] = ()) -> None:
        self.boot = boot
        self.lease = 0
        self._entries: dict[EffectId, Entry] = {}
        self._running: set[EffectId] = set()
        for line in lines:
            self._replay(line)

    def _replay(self, line: Line) -> None:
        if line.entry is not None:
            self._entries[line.entry.effect] = line.entry
        for effect in line.dropped:
            self._entries.pop(effect, None)
        if line.lease is not None:
            self.lease = max(self.lease, line.lease)

    def lines(self) -> tuple[Line, ...]:
        """The whole journal, compacted."""
        return (Line(lease=self.lease), *(Line(entry=entry) for entry in self._entries.values()))

    def see_lease(self, lease: int) -> tuple[Line, ...]:
        """A server with this lease spoke; lines to store if it is the newest."""
        assert lease >= 0, lease
        if lease <= self.lease:
            return ()
        self.lease = lease
        return (Line(lease=lease),)

    def offer(self, effect: AnyEffect, lease: int) -> Answer:
        """An effect arrived."""
        fence = self.see_lease(lease)
        known = self._entries.get(effect.id)
        if known is None and lease < self.lease:
            return Answer(verdict="ended", entry=self._refused(effect, lease))
        if effect.id in self._running:
            assert known is not None, effect.id
            return Answer(verdict="wait", entry=known, lines=fence)
        if known is not None and known.outcome is not None:
            return Answer(verdict="ended", entry=self._as_of_now(known), lines=fence)
        if lease < self.lease:
            return Answer(verdict="ended", entry=self._refused(effect, lease))
        entry = _entry(effect, self.boot)
        self._entries[effect.id] = entry
        self._running.add(effect.id)
        return Answer(verdict="start", entry=entry, lines=(*fence, Line(entry=entry)))

    def _refused(self, effect: AnyEffect, lease: int) -> Entry:
        detail = f"stale lease: {lease} is older than {self.lease}"
        return _entry(effect, self.boot).but(outcome="not-run", detail=detail)

    def _as_of_now(self, entry: Entry) -> Entry:
        if entry.boot == self.boot or entry.ends or entry.outcome != "done":
            return entry
        return entry.but(outcome="failed", detail=_REBOOTED, numbers={})

    def ended(
        self, effect: EffectId, outcome: Outcome, detail: str, numbers: dict[str, int | float | str]
    ) -> tuple[Line, ...]:
        """An effect that was started has an outcome; lines to store before it is reported."""
        assert effect in self._running, effect
        entry = self._entries[effect].but(outcome=outcome, detail=detail, numbers=numbers)
        self._running.discard(effect)
        self._entries[effect] = entry
        return (Line(entry=entry),)

    def acknowledged(self, effect: EffectId) -> tuple[Line, ...]:
        """The server has the outcome in its log; lines to store."""
        entry = self._entries.get(effect)
        if entry is None or entry.acknowledged:
            return ()
        if entry.outcome is None:  # an older outcome of the same id was acknowledged while it is carried out again
            return ()
        marked = entry.but(acknowledged=True)
        self._entries[effect] = marked
        dropped = self._droppable(marked)
        for name in dropped:
            del self._entries[name]
        if effect in dropped:
            return (Line(dropped=dropped),)
        return (Line(entry=marked), Line(dropped=dropped)) if dropped else (Line(entry=marked),)

    def _droppable(self, marked: Entry) -> tuple[EffectId, ...]:
        entries = self._entries.values()
        if marked.attempt is None:
            loose = [e.effect for e in entries if e.attempt is None and e.acknowledged]
            return tuple(loose[:-KEPT_LOOSE])
        if not (marked.releases and marked.outcome == "done"):
            return ()
        return tuple(e.effect for e in entries if e.attempt == marked.attempt and e.effect not in self._running)

    def entry(self, effect: EffectId) -> Entry | None:
        return self._entries.get(effect)

    def __len__(self) -> int:
        return len(self._entries)


def _entry(effect: AnyEffect, boot: BootId) -> Entry:
    attempt = attempt_of(effect)
    return Entry(
        effect=effect.id,
        boot=boot,
        attempt=attempt,
        ends=isinstance(effect, StopWorkers | ReleaseAttempt | RunSteps | RebootHost),
        releases=isinstance(effect, ReleaseAttempt),
    )
