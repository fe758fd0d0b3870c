"""The durable log: events with the effects they caused, in order, without gaps.

Whatever belongs together is stored together: a `Batch` is one transaction, so the number of an agent's report and the
events of that report are there both or not at all, and that is what makes a report count exactly once.
The log is the truth and the engine's state only a cache of it; snapshots are a cache of that cache and may be lost.
"""

from collections.abc import Iterator, Sequence
from typing import Protocol

from trainmaster.core.base.ids import HostId, SessionId
from trainmaster.core.base.time import Instant
from trainmaster.core.base.value import Value
from trainmaster.core.effects import AnyEffect
from trainmaster.core.events import AgentReport, AnyEvent
from trainmaster.ports.errors import UserError


class Entry(Value):
    index: int
    event: AnyEvent
    effects: tuple[AnyEffect, ...]


class ReportNumber(Value):
    """The last report of a host's current session that is in the log; 0: none yet."""

    host: HostId
    session: SessionId
    number: int


class Rejection(Value):
    """An event of an agent that the engine found impossible. Kept for people; the log goes on without it."""

    at: Instant
    host: HostId
    session: SessionId
    number: int
    event: AgentReport
    reason: str


class Batch(Value):
    entries: tuple[Entry, ...] = ()
    numbers: tuple[ReportNumber, ...] = ()
    rejections: tuple[Rejection, ...] = ()


class Snapshot(Value):
    index: int
    state: bytes


class LogUnusable(UserError):
    """The log can't be opened, or can't go on: held by another server, of another version, damaged, a failing disk."""


class LogFull(UserError):
    """No space for a batch. Nothing of it was written; the next append may succeed."""


class EventLog(Protocol):
    @property
    def lease(self) -> int:
        """Number of this opening; greater than all earlier ones, never used again."""
        ...

    @property
    def last_index(self) -> int:
        """Index of the newest entry; 0: the log is empty."""
        ...

    def append(self, batch: Batch) -> None:
        """Stores the batch in one durable transaction. Raises `LogFull` or `LogUnusable`."""
        ...

    def read(self, since: int, limit: int) -> Sequence[Entry]:
        """At most `limit` entries from index `since` on. Raises `LogUnusable` if one is damaged."""
        ...

    def report_numbers(self) -> Sequence[ReportNumber]: ...

    def rejections(self, limit: int) -> Sequence[Rejection]:
        """The newest ones, newest first."""
        ...

    def snapshots(self) -> Iterator[Snapshot]:
        """Those that are whole, newest first."""
        ...

    def save_snapshot(self, snapshot: Snapshot) -> None:
        """Keeps this one and the one before it. Raises `LogFull` or `LogUnusable`."""
        ...

    def close(self) -> None: ...
