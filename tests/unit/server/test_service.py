"""The owner of the log: many at once share commits, the engine is woken, a broken log ends the server."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest
from tests.fakes.decider import FakeEngine

from trainmaster.core.agent.wire import Register
from trainmaster.core.base.ids import BootId, HostId, SessionId
from trainmaster.core.base.reasons import Token
from trainmaster.core.base.time import after, seconds
from trainmaster.live.adapters.sqlite_log import SqliteLog
from trainmaster.live.adapters.system_clock import SystemClock
from trainmaster.live.server.links import AgentLinks
from trainmaster.live.server.runtime import Runtime
from trainmaster.live.server.service import Service, ServiceStopped, Settings
from trainmaster.live.server.views import log_full
from trainmaster.ports.event_log import Batch, LogFull, LogUnusable

HOSTS = 200
SETTINGS = Settings(heartbeat_s=0.2, heartbeat_timeout_s=0.6)


class CountingLog(SqliteLog):
    """Counts commits, and breaks when it is told to."""

    commits = 0
    broken = full = False

    def append(self, batch: Batch) -> None:
        if self.broken:
            raise LogUnusable("the log can't be used", "disk I/O error", "look at the disk")
        if self.full:
            raise LogFull("no space left for the log", "the disk is full", "free some space")
        self.commits += 1
        super().append(batch)


@pytest.fixture
def log(tmp_path: Path) -> Iterator[CountingLog]:
    opened = CountingLog(tmp_path / "log.sqlite", SystemClock().now())
    yield opened
    opened.close()


def during(log: CountingLog, act: Callable[[Service], Awaitable[None]]) -> FakeEngine:
    """Runs a service, does something with it, stops it; the engine at the end."""

    async def run() -> FakeEngine:
        clock, links = SystemClock(), AgentLinks()
        service = Service(Runtime(log, FakeEngine, links, clock), links, clock, SETTINGS)
        running = asyncio.create_task(service.run())
        try:
            async with asyncio.timeout(20):
                await act(service)
        finally:
            service.stop()
            await running
        return service.runtime.engine

    return asyncio.run(run())


def register(host: str) -> Register:
    return Register(
        host=HostId(host), session=SessionId("s"), boot=BootId("b"), address="::1", version="1", pid=1, attempts=()
    )


def test_a_rack_that_falls_silent_costs_a_few_commits(log: CountingLog) -> None:
    """1. 200 hosts register at once, and never again say anything. 2. All are found silent. 3. Both took a few commits,
    not 200. 4. The engine asked to be woken a second later, and is."""

    async def act(service: Service) -> None:
        await asyncio.gather(*(service.register(register(f"n{number}")) for number in range(HOSTS)))
        counts = service.runtime.engine.state.counts
        while not counts.get("TimePassed"):
            await service.news.wait()

    engine = during(log, act)
    assert engine.state.counts["AgentRegistered"] == HOSTS
    assert engine.state.counts["AgentSilent"] == HOSTS
    assert log.commits < 20


def test_a_log_that_breaks_ends_the_server(log: CountingLog) -> None:
    """1. The disk fails. 2. Who waits is told, the server ends with the reason, and later requests are refused."""
    refusals: list[Exception] = []

    async def act(service: Service) -> None:
        log.broken = True
        for host in ("n1", "n2"):
            try:
                await service.register(register(host))
            except (LogUnusable, ServiceStopped) as error:
                refusals.append(error)
            while not service.stopping:
                await service.news.wait()

    with pytest.raises(LogUnusable, match="disk I/O error"):
        during(log, act)
    assert [type(refusal) for refusal in refusals] == [LogUnusable, ServiceStopped]


def test_a_full_disk_is_shown_until_there_is_room(log: CountingLog) -> None:
    """1. The disk is full: two requests are refused. 2. The service knows since when, and how many were refused; the
    status says so with a token and numbers. 3. With room again the next request is stored, and nothing is said."""

    async def act(service: Service) -> None:
        log.full = True
        for host in ("n1", "n2"):
            with pytest.raises(LogFull):
                await service.register(register(host))
        assert service.log_full is not None
        (reason,) = log_full(service.log_full, after(service.log_full.since, seconds(90)))
        assert (reason.token, reason.numbers) == (Token.DISK_FULL, {"since_s": 90.0, "refused": 2})
        assert reason.sentence == "no space left for the log: the disk is full; since 90 s, refused: 2"
        log.full = False
        await service.register(register("n1"))
        assert log_full(service.log_full, service.now()) == ()

    during(log, act)
