"""A server without sockets: the real engine, a log on the disk, and hosts whose agents say at once that all is well.

Requests go through the whole application (roles, decoding, problems). Agents answer when the test lets them, so that
what waits can be looked at.
"""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import httpx
from tests.unit.core.maintenance.planner_world import CATALOGUE

from trainmaster.core.base.ids import BootId, ClusterId, HostId, Owner, PodId, RackId, SessionId
from trainmaster.core.base.value import Value, decode, encode
from trainmaster.core.effects import AnyEffect, RunSteps
from trainmaster.core.engine import Engine
from trainmaster.core.events import AgentRegistered, AnyEvent, CapacityDeclared, CatalogueDeclared, FleetDeclared
from trainmaster.core.fleet.inventory import HostSpec
from trainmaster.core.maintenance.capacity import Book, Buffers, CapacityPolicy, Share
from trainmaster.core.recovery.events import EffectEnded
from trainmaster.live.adapters.sqlite_log import SqliteLog
from trainmaster.live.adapters.system_clock import SystemClock
from trainmaster.live.server.app import build
from trainmaster.live.server.links import AgentLinks
from trainmaster.live.server.resources import Problem
from trainmaster.live.server.runtime import Runtime
from trainmaster.live.server.service import Service, Settings
from trainmaster.live.server.tokens import Keys, load_or_make

ME = Owner("person:test")
V = TypeVar("V", bound=Value)


class MaintenanceHouse:
    """Hosts h0 to h5, two to a rack, with a maintenance buffer of two; made inside of a running loop."""

    def __init__(self, service: Service, keys: Keys, tokens: Path) -> None:
        self.service, self.runtime = service, service.runtime
        self.hosts = [HostId(f"h{number}") for number in range(6)]
        self._tokens = tokens
        self.http = httpx.AsyncClient(
            transport=httpx.ASGITransport(app=build(service, keys)), base_url="http://server.test"
        )

    def declare(self) -> None:
        now = self.runtime.now
        specs = tuple(
            HostSpec(
                id=name,
                cluster=ClusterId("c"),
                pod=PodId("p"),
                rack=RackId(f"r{number // 2}"),
                platform="laptop",
                gpus=8,
            )
            for number, name in enumerate(self.hosts)
        )
        buffers = Buffers(maintenance=Share(hosts=2), failure=Share(hosts=2))
        policy = CapacityPolicy(books=(Book(name="c", cluster="c", buffers=buffers),))
        self.runtime.submit(
            (
                FleetDeclared(at=now(), hosts=specs, by=ME),
                CatalogueDeclared(at=now(), catalogue=CATALOGUE, by=ME),
                CapacityDeclared(at=now(), capacity=policy, by=ME),
            )
        )
        for name in self.hosts:
            event = AgentRegistered(
                at=now(), host=name, session=SessionId("s"), boot=BootId("b1"), address="x", attempts=()
            )
            self.runtime.submit((event,))
        self._let()

    async def let(self) -> list[AnyEffect]:
        """Agents carry out what they were asked for, until nothing is left; what that was."""
        async with self.service.gate:
            return self._let()

    async def submit(self, *events: AnyEvent) -> None:
        async with self.service.gate:
            self.runtime.submit(events)

    def _let(self) -> list[AnyEffect]:
        done: list[AnyEffect] = []
        while effects := self.runtime.engine.pending():
            for effect in effects:
                numbers: dict[str, int | float | str] = {}
                if isinstance(effect, RunSteps) and effect.observe is not None:
                    numbers["version"] = effect.observe.wanted
                event = EffectEnded(
                    at=self.runtime.now(), host=effect.hosts[0], effect=effect.id, outcome="done", numbers=numbers
                )
                self.runtime.submit((event,))
                done.append(effect)
        return done

    async def get(self, path: str, kind: type[V], **query: str | int) -> V:
        return self._answer(await self.http.get(path, params=query, headers=self.headers("viewer")), kind)

    async def post(self, path: str, body: Value, kind: type[V], role: str = "operator") -> V:
        return self._answer(await self.http.post(path, content=encode(body), headers=self.headers(role)), kind)

    async def refused(self, path: str, body: Value | bytes, role: str = "operator") -> tuple[int, Problem]:
        """The status and the problem of a request that is to be refused."""
        content = body if isinstance(body, bytes) else encode(body)
        answer = await self.http.post(path, content=content, headers=self.headers(role))
        assert answer.status_code >= 400, answer.text
        return answer.status_code, decode(answer.content, Problem)

    async def missing(self, path: str) -> tuple[int, str]:
        answer = await self.http.get(path, headers=self.headers("viewer"))
        return answer.status_code, str(decode(answer.content, Problem).reason.token)

    def _answer(self, answer: httpx.Response, kind: type[V]) -> V:
        assert answer.status_code == 200, answer.text
        return decode(answer.content, kind)

    def headers(self, role: str) -> dict[str, str]:
        token = (self._tokens / f"{role}.token").read_text().strip()
        return {"Authorization": f"Bearer {token}", "Trainmaster-User": "kim"}


def during(directory: Path, act: Callable[[MaintenanceHouse], Awaitable[None]]) -> None:
    """Runs a server, does something with it, and ends it."""

    async def run() -> None:
        clock, links = SystemClock(), AgentLinks()
        log = SqliteLog(directory / "log.sqlite", clock.now())
        keys = load_or_make(directory / "tokens")
        service = Service(Runtime(log, Engine, links, clock), links, clock, Settings(heartbeat_timeout_s=60.0))
        house = MaintenanceHouse(service, keys, directory / "tokens")
        house.declare()
        running = asyncio.create_task(service.run())
        try:
            async with asyncio.timeout(60):
                await act(house)
        finally:
            service.stop()
            await running
            await house.http.aclose()
            log.close()

    asyncio.run(run())
