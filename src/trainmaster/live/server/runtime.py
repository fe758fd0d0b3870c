"""The life of an event, without sockets: decide, store, and only then act.

    stage     the engine applies the events of a request; nothing is promised yet
    store     all that was staged becomes one transaction of the log (may run in another thread)
    publish   now it is true: effects go to the agents, watchers are told, the askers are answered

The engine runs ahead of the log between `stage` and `publish`; who reads its state waits until both agree. If the log
refuses, or the engine finds an event impossible and stops halfway, its state is thrown away and built again from the
log: state is disposable, the log is not. An impossible event of an agent goes to the rejected ones and is acknowledged,
else the agent would send it for ever; an impossible event of anybody else is refused to its sender.

A replay must decide as the first run did, so the effects that it yields are compared with those in the log; a
difference means other code under the same version, and going on would follow neither history.
"""

import logging
import secrets
import traceback
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from trainmaster.core.agent.wire import Report
from trainmaster.core.base.hostlist import fold
from trainmaster.core.base.ids import HostId, Owner, SessionId
from trainmaster.core.base.time import Instant
from trainmaster.core.base.value import Value
from trainmaster.core.effects import parts
from trainmaster.core.events import AgentReport, AnyEvent, LeaseTaken, TimePassed
from trainmaster.core.fleet.events import AgentRegistered
from trainmaster.core.recovery.events import EffectEnded
from trainmaster.ports.agent_link import EffectSender
from trainmaster.ports.clock import Clock
from trainmaster.ports.decider import Decider, DeciderFactory
from trainmaster.ports.event_log import Batch, Entry, EventLog, LogFull, LogUnusable, Rejection, ReportNumber, Snapshot

SNAPSHOT_EVERY_EVENTS: Final = 2_000
FLEET_ID_BYTES: Final = 4
"""Enough for some hundred fleets that share a file system, and short enough to be read aloud."""
EVENT_BYTES: Final = 300
"""About what an event and its effects take in the log."""
READ_AT_ONCE: Final = 1_000

logger = logging.getLogger(__name__)


class EventRefused(Exception):
    """The engine found the event impossible: a defect of its sender or of the engine. Nothing of it is in the log."""


class SessionOver(Exception):
    """A report of a session that is not the host's current one under this lease: the agent must register first."""


class ReportResult(Value):
    number: int
    """The newest number of the session that is stored; the report itself, or a later one."""
    repeated: bool
    rejected: int


class Runtime:
    """Opens the state: newest snapshot, rest of the log, then the event that takes the lease."""

    def __init__(
        self,
        log: EventLog,
        engine_factory: DeciderFactory,
        sender: EffectSender,
        clock: Clock,
        snapshot_every_events: int = SNAPSHOT_EVERY_EVENTS,
    ) -> None:
        assert snapshot_every_events > 0
        self._log, self._factory, self._sender, self._clock = log, engine_factory, sender, clock
        self._snapshot_every_events = snapshot_every_events
        self._staged: list[Entry] = []
        self._staged_numbers: dict[HostId, ReportNumber] = {}
        self._staged_rejections: list[Rejection] = []
        self._registered: set[HostId] = set()
        """Hosts whose agent registered under this lease."""
        self._snapshot_index = self._snapshot_bytes = 0
        self.stored_events = self.commits = 0
        """Since the start; for the server's own log."""
        self.watchers: list[Callable[[Sequence[Entry]], None]] = []
        self.engine: Decider
        self.reload()
        self._time = (self.engine.state.now, clock.elapsed())
        fleet = "" if self.engine.state.fleet else secrets.token_hex(FLEET_ID_BYTES)
        self.submit((LeaseTaken(at=self.now(), lease=log.lease, by=Owner("policy:server"), fleet=fleet),))

    @property
    def lease(self) -> int:
        return self._log.lease

    def now(self) -> Instant:
        """The wall clock, except that it never stands or steps back, not even over a restart: deadlines of the engine
        would otherwise wait for the clock to catch up."""
        last, elapsed = self._time
        now_elapsed = self._clock.elapsed()
        now = Instant(max(self._clock.now(), last + now_elapsed - elapsed))
        self._time = (now, now_elapsed)
        return now

    # --- the three steps

    def stage(self, event: AnyEvent) -> Entry:
        """Applies an event of the server or of a person. Raises `EventRefused`."""
        entry = self._apply(event)
        if isinstance(event, AgentRegistered):
            known = self._number(event.host)
            if known is None or known.session != event.session:
                self._staged_numbers[event.host] = ReportNumber(host=event.host, session=event.session, number=0)
            self._registered.add(event.host)
        return entry

    def stage_all(self, events: Callable[[], Iterable[AnyEvent]]) -> None:
        """Applies several events or none of them. Each is made when those before it are applied. Raises `EventRefused`,
        and what `events` raises."""
        before = len(self._staged)
        try:
            for event in events():
                self._apply(event)
        except Exception:
            if len(self._staged) > before:
                del self._staged[before:]
                self.engine = self._rebuild(self._staged)
            raise

    def stage_report(self, report: Report) -> ReportResult:
        """Applies the events of a report unless they are known. Raises `SessionOver`."""
        assert report.number > 0
        assert all(event.host == report.host for event in report.events)
        known = self._number(report.host)
        if known is None or not self.is_registered(report.host, report.session):
            raise SessionOver(f"session {report.session} of {report.host} is not registered")
        if report.number <= known.number:
            return ReportResult(number=known.number, repeated=True, rejected=0)
        rejections = []
        now = self.now()
        for event in report.events:
            # A host whose clock runs ahead must not carry everybody's time into the future.
            why_not = self._try(event if event.at <= now else event.but(at=now))
            if why_not:
                session, number = report.session, report.number
                rejections.append(
                    Rejection(at=now, host=report.host, session=session, number=number, event=event, reason=why_not)
                )
        self._staged_rejections += rejections
        self._staged_numbers[report.host] = known.but(number=report.number)
        return ReportResult(number=report.number, repeated=False, rejected=len(rejections))

    def store(self) -> None:
        """Makes what is staged durable. Raises `LogFull` or `LogUnusable`; then call `reload`."""
        if self._staged or self._staged_numbers or self._staged_rejections:
            self._log.append(
                Batch(
                    entries=tuple(self._staged),
                    numbers=tuple(self._staged_numbers.values()),
                    rejections=tuple(self._staged_rejections),
                )
            )
            self.stored_events += len(self._staged)
            self.commits += 1

    def publish(self) -> None:
        """Acts on what has been stored: sends the effects and tells the watchers."""
        entries = tuple(self._staged)
        assert self._log.last_index == self.engine.index, "publish without store"
        self._numbers.update(self._staged_numbers)
        self._forget_staged()
        for entry in entries:
            for effect in entry.effects:
                for host, part in parts(effect):
                    self._sender.send(host, self.lease, part)
        if entries:
            for watcher in self.watchers:
                watcher(entries)

    def wants_snapshot(self) -> bool:
        """The log has grown enough since the last one. A large state waits until the log grew by as much, so that a
        fleet of thousands of hosts does not write its state more often than what happens to it."""
        least = max(self._snapshot_every_events, self._snapshot_bytes // EVENT_BYTES)
        return self.engine.index - self._snapshot_index >= least

    def submit(self, events: Sequence[AnyEvent] = (), reports: Sequence[Report] = ()) -> tuple[ReportResult, ...]:
        """All three steps in one go; the answers are those of the reports."""
        try:
            for event in events:
                self.stage(event)
            results = tuple(self.stage_report(report) for report in reports)
            self.store()
        except Exception:
            self.reload()
            raise
        self.publish()
        if self.wants_snapshot():
            self.save_snapshot()
        return results

    def submit_all(self, events: Callable[[], Iterable[AnyEvent]]) -> None:
        """All three steps for several events, each made when those before it are applied; all of them or none."""
        try:
            self.stage_all(events)
            self.store()
        except Exception:
            self.reload()
            raise
        self.publish()

    # --- time, connections, state

    def wake(self, now: Instant) -> bool:
        """Tells the engine that time has passed if it asked to be told by now."""
        event = self.due(now)
        if event is None:
            return False
        self.submit((event,))
        return True

    def due(self, now: Instant) -> TimePassed | None:
        """The event that wakes the engine, if it asked to be woken by now."""
        wake = self.engine.next_wake()
        return TimePassed(at=now) if wake is not None and wake <= now else None

    def resend(self, host: HostId) -> int:
        """Sends everything that waits for an outcome of this host, in order and under the old ids."""
        pending = self.engine.pending(host)
        for effect in pending:
            self._sender.send(host, self.lease, effect)
        return len(pending)

    def session(self, host: HostId) -> SessionId | None:
        """The session that is registered under this lease."""
        known = self._number(host)
        return known.session if known is not None and host in self._registered else None

    def is_registered(self, host: HostId, session: str) -> bool:
        return self.session(host) == session

    def unregister(self, host: HostId) -> None:
        """The session of the host is over; its agent must register again before it is heard."""
        self._registered.discard(host)

    def read(self, since: int, limit: int) -> Sequence[Entry]:
        return self._log.read(since, limit)

    def rejections(self, limit: int) -> Sequence[Rejection]:
        return self._log.rejections(limit)

    def save_snapshot(self) -> None:
        """Stores the state as it is (may run in another thread, while nothing is staged). A full disk is no reason to
        stop: the log has everything."""
        assert not self._staged
        if self.engine.index == self._snapshot_index:
            return
        state = self.engine.snapshot()
        self._snapshot_bytes = len(state)
        try:
            self._log.save_snapshot(Snapshot(index=self.engine.index, state=state))
        except LogFull as error:
            logger.warning("no snapshot at event %d: %s", self.engine.index, error)
        self._snapshot_index = self.engine.index

    def reload(self) -> None:
        """Builds the engine from the log and forgets what was staged. Raises `LogUnusable`."""
        # A registration that was not stored did not happen.
        self._registered -= {entry.event.host for entry in self._staged if isinstance(entry.event, AgentRegistered)}
        self._forget_staged()
        self.engine = self._rebuild(())
        self._numbers = {number.host: number for number in self._log.report_numbers()}
        assert self.engine.index == self._log.last_index

    def close(self) -> None:
        self.save_snapshot()
        self._log.close()

    def _number(self, host: HostId) -> ReportNumber | None:
        return self._staged_numbers.get(host) or self._numbers.get(host)

    def _try(self, event: AgentReport) -> str:
        """Applies an event of an agent; why not, if it is impossible."""
        if isinstance(event, EffectEnded):
            # Looked at beforehand, because an event that the engine refuses costs a replay.
            pending = self.engine.state.pending.get(event.effect)
            if pending is not None and event.host not in pending.open_at and event.host not in pending.effect.hosts:
                return f"{event.host} answers for {fold(pending.effect.hosts)}"
        try:
            self._apply(event)
        except EventRefused as error:
            return str(error)
        return ""

    def _forget_staged(self) -> None:
        self._staged.clear()
        self._staged_numbers.clear()
        self._staged_rejections.clear()

    def _apply(self, event: AnyEvent) -> Entry:
        index = self.engine.index + 1
        try:
            effects = self.engine.handle(event)
        except Exception as error:
            logger.error("event refused: %s\n%s", event, traceback.format_exc())
            self.engine = self._rebuild(self._staged)
            raise EventRefused(f"{type(error).__name__}: {error}") from error
        assert self.engine.index == index, f"the engine went from {index - 1} to {self.engine.index}"
        entry = Entry(index=index, event=event, effects=effects)
        self._staged.append(entry)
        return entry

    def _rebuild(self, staged: Sequence[Entry]) -> Decider:
        """The state after the whole log and `staged`."""
        engine = self._from_snapshot()
        while entries := self._log.read(engine.index + 1, READ_AT_ONCE):
            _replay(engine, entries)
        _replay(engine, staged)
        return engine

    def _from_snapshot(self) -> Decider:
        for snapshot in self._log.snapshots():
            engine = self._factory.restore(snapshot.state)
            assert engine.index == snapshot.index, f"a snapshot of {engine.index} is stored as {snapshot.index}"
            self._snapshot_index, self._snapshot_bytes = snapshot.index, len(snapshot.state)
            return engine
        return self._factory()


def _replay(engine: Decider, entries: Sequence[Entry]) -> None:
    for entry in entries:
        try:
            effects = engine.handle(entry.event)
        except Exception as error:
            raise _other_program(entry, f"it is impossible now ({type(error).__name__}: {error})") from error
        if effects != entry.effects:
            raise _other_program(entry, "it leads to other effects than when it was written")


def _other_program(entry: Entry, why: str) -> LogUnusable:
    return LogUnusable(
        f"event {entry.index} of the log can't be replayed",
        f"{why}, so this is not the program that wrote it",
        "run the program that wrote the log, or start over with an empty state directory",
    )
