"""Streams to agents and watchers: signs of life, and readers that take nothing."""

import asyncio
from collections.abc import AsyncIterator, MutableMapping
from typing import Any

import pytest

from trainmaster.core.agent.wire import Instruction, Query
from trainmaster.core.base.ids import AttemptId, HostId, SessionId
from trainmaster.core.base.value import decode
from trainmaster.live.server import http
from trainmaster.live.server.http import Stream
from trainmaster.live.server.links import AgentLinks

SCOPE: dict[str, Any] = {"type": "http"}


async def _never() -> dict[str, Any]:
    await asyncio.Event().wait()
    raise AssertionError


def test_a_silent_stream_gets_a_ping_and_a_busy_one_does_not() -> None:
    """1. A stream begins with a ping. 2. A second in which something was said brings nothing more. 3. A second in which
    nothing was said brings a ping."""

    async def run() -> None:
        links = AgentLinks()
        link = links.open(HostId("h0"), SessionId("s"))
        lines = link.lines()
        assert decode(await anext(lines), Instruction).ping
        link.put(Instruction(query=Query(id="q1", kind="log", attempt=AttemptId("job-1.a1"), rank=0)))
        links.ping()
        [only] = (await anext(lines)).splitlines()
        assert decode(only, Instruction).query is not None
        links.ping()
        async with asyncio.timeout(20):
            assert decode(await anext(lines), Instruction).ping

    asyncio.run(run())


def test_a_reader_that_takes_nothing_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    """1. The client takes two chunks and no third. 2. The stream ends, and who asked for that is told."""
    monkeypatch.setattr(http, "SEND_TIMEOUT_S", 0.05)
    sent: list[bytes] = []
    told: list[str] = []

    async def chunks() -> AsyncIterator[bytes]:
        while True:
            yield b"x"

    async def send(message: MutableMapping[str, Any]) -> None:
        if len(sent) == 2:
            await _never()
        if message.get("body"):
            sent.append(message["body"])

    async def ended() -> None:
        told.append("ended")

    async def run() -> None:
        async with asyncio.timeout(20):
            await Stream(chunks(), "text/plain", ended)(SCOPE, _never, send)

    asyncio.run(run())
    assert (sent, told) == ([b"x", b"x"], ["ended"])


def test_a_reader_that_has_nothing_to_take_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """1. Nothing is said for several times the limit. 2. The next chunk still arrives, and the body ends."""
    monkeypatch.setattr(http, "SEND_TIMEOUT_S", 0.02)
    sent: list[bytes] = []

    async def chunks() -> AsyncIterator[bytes]:
        yield b"first"
        await asyncio.sleep(0.1)
        yield b"second"

    async def send(message: MutableMapping[str, Any]) -> None:
        if message.get("body"):
            sent.append(message["body"])

    async def run() -> None:
        async with asyncio.timeout(20):
            await Stream(chunks(), "text/plain")(SCOPE, _never, send)

    asyncio.run(run())
    assert sent == [b"first", b"second"]
