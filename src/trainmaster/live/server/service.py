"""The one owner of the runtime: a queue in front of the log, the clock's tick, and who may look at the state when.

Events of agents queue up; one writer takes all that wait, stages them and commits them together in a worker thread, so
that heartbeats and pings go on while the disk is slow, and the slower the disk, the larger the batches. `gate` is held
from the first staged event until the commit: who reads the state takes it too, and so never sees what might yet be
undone. People's commands go the same way, as a function that looks at the state and stages what follows, so that no
event comes between the check and the deed.

A full disk refuses requests and goes on; a log that fails otherwise ends the server, since what it would decide from
then on could not be remembered.
"""

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, Final, TypeVar

from trainmaster.core.agent.wire import Heartbeat, Register, Report
from trainmaster.core.base.ids import HostId, SessionId
from trainmaster.core.base.time import SECOND, Duration, Instant, after, in_seconds, seconds
from trainmaster.core.base.value import Value
from trainmaster.core.events import AnyEvent
from trainmaster.core.fleet.events import AgentDisconnected, AgentRegistered, AgentSilent
from trainmaster.core.recovery.liveness import Liveness
from trainmaster.live.server.full import Full
from trainmaster.live.server.links import AgentLinks, Link
from trainmaster.live.server.liveview import LiveView
from trainmaster.live.server.runtime import EventRefused, ReportResult, Runtime, SessionOver
from trainmaster.ports.clock import Clock
from trainmaster.ports.event_log import LogFull, LogUnusable

BATCH_MAX: Final = 1_000
TICK_S: Final = 0.25
TICKS_A_SECOND: Final = round(1 / TICK_S)
RETRY_AFTER: Final = SECOND

T = TypeVar("T")
logger = logging.getLogger(__name__)


class Settings(Value):
    heartbeat_s: float = 1.0
    heartbeat_timeout_s: float = 10.0
    query_timeout_s: float = 5.0
    jobs_dir: str = ""
    """Shared by all hosts; each job has a directory in it."""


class ServiceStopped(Exception):
    """The server is about to end; ask its successor."""


class _Job:
    """Something that waits for the writer: what to stage, and who waits for it."""

    def __init__(self, stage: Callable[[], object], future: "asyncio.Future[Any]") -> None:
        self.stage, self.future = stage, future


class Service:
    """Make it inside of a running loop; `run` returns after `stop`, or raises `LogUnusable`."""

    def __init__(self, runtime: Runtime, links: AgentLinks, clock: Clock, settings: Settings) -> None:
        assert settings.heartbeat_timeout_s > 2 * TICK_S
        self.runtime, self.links, self.settings = runtime, links, settings
        self.live = LiveView()
        self.started_at = runtime.now()
        self.gate = asyncio.Lock()
        self._clock = clock
        self._queue: deque[_Job] = deque()
        self._work = asyncio.Event()
        self._stopping = False
        timeout, tick = seconds(settings.heartbeat_timeout_s), seconds(2 * TICK_S)
        self._hearts = Liveness(timeout, tick, clock.elapsed())
        self._streams = Liveness(timeout, tick, clock.elapsed())
        """Hosts that registered and have yet to open their stream."""
        self.news = asyncio.Event()
        """Set (and replaced) when entries were published, each second, and when the server stops."""
        self._no_wake_before = Instant(0)
        self.log_full: Full | None = None
        """The disk of the log was full at the last try."""
        runtime.watchers.append(lambda entries: self._tell())

    @property
    def stopping(self) -> bool:
        return self._stopping

    def now(self) -> Instant:
        return self.runtime.now()

    # --- what agents say

    async def register(self, body: Register) -> None:
        """Raises `EventRefused`, `LogFull`."""
        self.links.drop(body.host)
        event = AgentRegistered(
            at=self.now(),
            host=body.host,
            session=body.session,
            boot=body.boot,
            address=body.address,
            attempts=body.attempts,
            versions=body.versions,
        )
        await self._queued(lambda: self.runtime.stage(event))
        now = self._clock.elapsed()
        self._hearts.signal(body.host, now)
        self._streams.signal(body.host, now)

    async def report(self, body: Report) -> ReportResult:
        """Raises `SessionOver`, `LogFull`."""
        result = await self._queued(lambda: self.runtime.stage_report(body))
        self._hearts.signal(body.host, self._clock.elapsed())
        return result

    def heartbeat(self, body: Heartbeat) -> None:
        """Raises `SessionOver`."""
        if not self.runtime.is_registered(body.host, body.session):
            raise SessionOver(f"session {body.session} of {body.host} is not registered")
        self.live.beat(body, self.now())
        self._hearts.signal(body.host, self._clock.elapsed())

    async def open_stream(self, host: HostId, session: SessionId) -> Link:
        """The stream of a registered session, with everything that is pending already in it. Raises `SessionOver`."""
        async with self.gate:
            if not self.runtime.is_registered(host, session):
                raise SessionOver(f"session {session} of {host} is not registered")
            link = self.links.open(host, session)
            self._streams.forget(host)
            self.runtime.resend(host)
            return link

    async def stream_ended(self, link: Link) -> None:
        """The connection is gone; if it was the host's present one, the agent is."""
        if self.links.ended(link) and not self._stopping:
            await self._left(link.host, link.session)

    # --- what people ask

    async def command(self, decide: Callable[[Runtime], T]) -> T:
        """Lets `decide` look at the state and stage one event, or several by `stage_all`; returns its answer when they
        are stored. Raises what `decide` raises, and `LogFull`."""
        return await self._queued(lambda: decide(self.runtime))

    @asynccontextmanager
    async def settled(self) -> AsyncIterator[Runtime]:
        """The runtime while its state equals the log. Only to read."""
        async with self.gate:
            yield self.runtime

    # --- the life of the server

    async def run(self) -> None:
        writer, ticker = asyncio.create_task(self._write()), asyncio.create_task(self._tick())
        try:
            await asyncio.wait((writer, ticker), return_when=asyncio.FIRST_EXCEPTION)
        finally:
            self.stop()
            ticker.cancel()
            await asyncio.gather(writer, ticker, return_exceptions=True)
            for job in self._queue:
                _fail(job, ServiceStopped("the server stops"))
        writer.result()
        if not ticker.cancelled():
            ticker.result()

    def stop(self) -> None:
        """Ends the streams and lets `run` return after what is queued."""
        self._stopping = True
        self.links.close()
        self._work.set()
        self._tell()

    async def _write(self) -> None:
        while self._queue or not self._stopping:
            await self._wait_for_work()
            async with self.gate:
                jobs = [self._queue.popleft() for _ in range(min(len(self._queue), BATCH_MAX))]
                await self._commit(jobs)

    async def _wait_for_work(self) -> None:
        """Until something is queued or the engine wants to be woken."""
        if self._queue or self._stopping:
            return
        wake = self.runtime.engine.next_wake()
        delay = None if wake is None else max(0.0, in_seconds(max(wake, self._no_wake_before) - self.now()))
        with suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._work.wait(), delay)
        self._work.clear()

    async def _commit(self, jobs: Sequence[_Job]) -> None:
        """Stages, stores and publishes; answers those who wait. Raises `LogUnusable`."""
        self._stage_wake()
        staged: list[tuple[_Job, object]] = []
        commits = self.runtime.commits
        for job in jobs:
            try:
                staged.append((job, job.stage()))
            except Exception as error:  # noqa: BLE001  (it goes to the one who asked)
                _fail(job, error)
        try:
            await asyncio.to_thread(self.runtime.store)
        except (LogFull, LogUnusable) as error:
            for job, _ in staged:
                _fail(job, error)
            if isinstance(error, LogUnusable):
                raise
            logger.error("%s", error)
            self._no_wake_before = after(self.now(), RETRY_AFTER)
            self._note_full(error, len(staged))
            self.runtime.reload()
            return
        self.runtime.publish()
        if self.runtime.commits > commits:
            self.log_full = None
        for job, result in staged:
            if not job.future.done():
                job.future.set_result(result)
        if self.runtime.wants_snapshot():
            # Effects and answers leave meanwhile; only the next commit waits for it.
            await asyncio.to_thread(self.runtime.save_snapshot)

    def _note_full(self, error: LogFull, refused: int) -> None:
        since, before = (self.log_full.since, self.log_full.refused) if self.log_full else (self.now(), 0)
        self.log_full = Full(since=since, refused=before + refused, sentence=f"{error.what}: {error.why}")

    def _stage_wake(self) -> None:
        now = self.now()
        event = self.runtime.due(now)
        if event is None or now < self._no_wake_before:
            return
        try:
            self.runtime.stage(event)
        except EventRefused:
            logger.exception("the engine could not be woken; trying again in %g s", in_seconds(RETRY_AFTER))
            self._no_wake_before = after(now, RETRY_AFTER)

    async def _queued(self, stage: Callable[[], T]) -> T:
        if self._stopping:
            raise ServiceStopped("the server stops")
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._queue.append(_Job(stage, future))
        self._work.set()
        return await future

    async def _tick(self) -> None:
        """Looks for the silent, four times a second; keeps watchers fresh and streams alive."""
        count = 0
        while not self._stopping:
            await asyncio.sleep(TICK_S)
            now = self._clock.elapsed()
            silent = [self._silent(host, silence) for host, silence in self._hearts.tardy(now)]
            deaf = [self._never_streamed(host) for host, _ in self._streams.tardy(now)]
            # Together, so that they share a commit: a whole rack may fall silent at once.
            await asyncio.gather(*silent, *deaf)
            count += 1
            if count % TICKS_A_SECOND == 0:
                self._tell()
                self.links.ping()

    async def _silent(self, host: HostId, silent: Duration) -> None:
        session = self.runtime.session(host)
        if session is None:
            return
        silent_s = in_seconds(silent)
        logger.warning("%s is silent for %.1f s", host, silent_s)
        self.links.drop(host)
        reached = self.live.reached(host)
        await self._part(
            host, lambda at: AgentSilent(at=at, host=host, session=session, silent_s=silent_s, reached=reached)
        )

    async def _never_streamed(self, host: HostId) -> None:
        session = self.runtime.session(host)
        if session is not None and not self.links.is_open(host):
            await self._left(host, session)

    async def _left(self, host: HostId, session: SessionId) -> None:
        reached = self.live.reached(host)
        await self._part(host, lambda at: AgentDisconnected(at=at, host=host, session=session, reached=reached))

    async def _part(self, host: HostId, event: Callable[[Instant], AnyEvent]) -> None:
        """The session is over: its agent has to register anew before it is heard."""
        self._hearts.forget(host)
        self._streams.forget(host)
        self.runtime.unregister(host)
        try:
            await self._queued(lambda: self.runtime.stage(event(self.now())))
        except (EventRefused, LogFull):
            logger.exception("could not note that %s left", host)

    def _tell(self) -> None:
        news, self.news = self.news, asyncio.Event()
        news.set()


def _fail(job: _Job, error: Exception) -> None:
    if not job.future.done():
        job.future.set_exception(error)
