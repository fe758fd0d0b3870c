"""A server that only speaks `core/agent/wire.py`: it sends what a test tells it to and keeps what agents report."""

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable
from typing import Any, TypeVar

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from trainmaster.core.agent.wire import Acknowledged, Heartbeat, Instruction, Query, Register, Registered, Report
from trainmaster.core.base.value import decode, encode
from trainmaster.core.effects import AnyEffect
from trainmaster.core.events import AgentReport
from trainmaster.core.recovery.events import EffectEnded

T = TypeVar("T")
TOKEN = "token-of-a-test"


class FakeServer:
    """Runs in a thread. `start` and `stop` may be called again and again; the port stays."""

    def __init__(self, heartbeat_s: float = 0.2) -> None:
        self.lease, self.heartbeat_s = 1, heartbeat_s
        self.token = TOKEN
        self.registers: list[Register] = []
        self.events: list[AgentReport] = []
        self.arrived: list[float] = []
        self.heartbeats: list[Heartbeat] = []
        self.answers: dict[str, bytes] = {}
        self.port = 0
        self.lose_acknowledgements = 0
        self._numbers: dict[str, int] = {}
        self._sent: list[Instruction] = []
        self._streams: list[asyncio.Queue[bytes]] = []
        self._changed = threading.Condition()

    # --- for tests ---

    def start(self) -> None:
        routes = [
            Route("/v1/agent/register", self._register, methods=["POST"]),
            Route("/v1/agent/stream", self._stream),
            Route("/v1/agent/report", self._report, methods=["POST"]),
            Route("/v1/agent/heartbeat", self._heartbeat, methods=["POST"]),
            Route("/v1/agent/answer/{query}", self._answer, methods=["POST"]),
        ]
        config = uvicorn.Config(
            Starlette(routes=routes), host="127.0.0.1", port=self.port, log_level="critical", lifespan="off"
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        deadline = time.monotonic() + 20
        while not self._server.started:
            assert time.monotonic() < deadline, "the fake server does not start"
            time.sleep(0.01)
        self.port = self._server.servers[0].sockets[0].getsockname()[1]

    def _run(self) -> None:
        async def serve() -> None:
            self._loop = asyncio.get_running_loop()
            await self._server.serve()
            for connection in tuple(self._server.server_state.connections):  # a forced exit leaves them open
                connection.transport.abort()  # type: ignore[union-attr]

        asyncio.run(serve())  # ends what the streams left

    def stop(self) -> None:
        self._server.should_exit = True
        self._server.force_exit = True
        self._thread.join(20)
        assert not self._thread.is_alive()
        self._streams.clear()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def send(self, effect: AnyEffect, lease: int | None = None) -> None:
        instruction = Instruction(lease=self.lease if lease is None else lease, effect=effect)
        self._put(instruction)
        self._sent.append(instruction)

    def ask(self, query: Query) -> bytes:
        self._put(Instruction(query=query))
        self.wait(lambda: query.id in self.answers)
        return self.answers[query.id]

    def _put(self, instruction: Instruction) -> None:
        self.wait(lambda: self._streams)
        line = encode(instruction) + b"\n"
        self._loop.call_soon_threadsafe(self._streams[-1].put_nowait, line)

    def wait(self, look: Callable[[], T | None], timeout_s: float = 30.0) -> T:
        """The first true value of `look`, which is tried whenever something arrives."""
        with self._changed:
            found = self._changed.wait_for(look, timeout_s)
        assert found, f"nothing came in {timeout_s} s; events: {self.events}"
        return found  # type: ignore[return-value]

    def outcome(self, effect: AnyEffect, timeout_s: float = 30.0) -> EffectEnded:
        return self.wait(lambda: next(iter(self.outcomes(effect)), None), timeout_s)

    def outcomes(self, effect: AnyEffect) -> list[EffectEnded]:
        return [event for event in self.events if isinstance(event, EffectEnded) and event.effect == effect.id]

    def do(self, effect: AnyEffect, timeout_s: float = 30.0) -> EffectEnded:
        self.send(effect)
        return self.outcome(effect, timeout_s)

    def of(self, kind: type[T]) -> list[T]:
        return [event for event in self.events if isinstance(event, kind)]

    # --- routes ---

    def _refuses(self, request: Request) -> bool:
        return request.headers.get("authorization") != f"Bearer {self.token}"

    def _tell(self, change: Callable[[], Any]) -> None:
        with self._changed:
            change()
            self._changed.notify_all()

    async def _register(self, request: Request) -> Response:
        if self._refuses(request):
            return Response(status_code=401)
        register = decode(await request.body(), Register)
        self._streams.clear()  # what is sent from now on is for the new stream
        self._tell(lambda: self.registers.append(register))
        return Response(encode(Registered(lease=self.lease, heartbeat_s=self.heartbeat_s)))

    async def _stream(self, request: Request) -> Response:
        queue: asyncio.Queue[bytes] = asyncio.Queue()
        for instruction in tuple(self._sent):  # as the real one: what has no outcome goes out again
            if instruction.effect is not None and not self.outcomes(instruction.effect):
                queue.put_nowait(encode(instruction) + b"\n")
        self._tell(lambda: self._streams.append(queue))

        async def lines() -> AsyncIterator[bytes]:
            while True:
                try:
                    yield await asyncio.wait_for(queue.get(), 1.0)
                except TimeoutError:
                    yield encode(Instruction(ping=True)) + b"\n"

        return StreamingResponse(lines())

    async def _report(self, request: Request) -> Response:
        report = decode(await request.body(), Report)
        seen = self._numbers.get(report.session, 0)
        if report.number > seen:
            self._numbers[report.session] = report.number
            at = time.time()
            self._tell(lambda: (self.events.extend(report.events), self.arrived.extend([at] * len(report.events))))
        if self.lose_acknowledgements:
            self.lose_acknowledgements -= 1
            return Response(status_code=503)
        return Response(encode(Acknowledged(number=report.number)))

    async def _heartbeat(self, request: Request) -> Response:
        beat = decode(await request.body(), Heartbeat)
        self._tell(lambda: self.heartbeats.append(beat))
        return Response(status_code=204)

    async def _answer(self, request: Request) -> Response:
        name, body = request.path_params["query"], await request.body()
        self._tell(lambda: self.answers.update({name: body}))
        return Response(status_code=204)
