"""The client that asks for operations, as `python -m bench.live.client SPEC`.

Paced (`rate` above 0): batches leave by the clock, whatever became of earlier ones, and the latency of each counts from
the instant at which it should have left, so that a server that stalls is not spared. In a closed loop (`window` above
0): as many operations are under way as the window says; one that is done makes room for another.
"""

import asyncio
import os
import sys
import time
from pathlib import Path
from typing import Final

import uvloop

from bench.live.http import Connection
from trainmaster.core.base.ids import ComponentName, HostId, KindName
from trainmaster.core.base.value import Value, decode, encode
from trainmaster.core.maintenance.events import OperationSpec
from trainmaster.live.server.maintenance_resources import OperationAsk, OperationsReport, OperationsRequest

TICK_S: Final = 0.02
CONNECTIONS: Final = 8
BATCH_LEAST: Final = 16
"""In a closed loop: rooms that are gathered into one request."""
DEADLINE_S: Final = 60.0
VERSIONS: Final = ("1.0", "1.1")


class Spec(Value):
    """What the process is started with (a file)."""

    url: str
    token: str
    hosts: tuple[HostId, ...]
    works: tuple[tuple[KindName, ComponentName], ...]
    rate: float
    window: int
    duration_s: float
    done: int
    """Descriptor from which a byte comes for each operation that is done."""
    result: str


class Result(Value):
    asked: dict[str, int]
    """By operation: when its request left, or should have left, in nanoseconds of the monotonic clock."""
    began: int
    ended: int
    """When no further request left."""


class Client:
    def __init__(self, spec: Spec, connections: list[Connection]) -> None:
        self.spec = spec
        self._free: asyncio.Queue[Connection] = asyncio.Queue()
        for connection in connections:
            self._free.put_nowait(connection)
        self._made = 0
        self.asked: dict[str, int] = {}
        self._room = asyncio.Event()
        self._done = 0
        self._posts: set[asyncio.Task[None]] = set()
        self._failed: list[asyncio.Task[None]] = []

    def _next(self) -> OperationSpec:
        """The hosts in turn; at each turn the next work."""
        turn, place = divmod(self._made, len(self.spec.hosts))
        kind, component = self.spec.works[(turn + place) % len(self.spec.works)]
        self._made += 1
        version = VERSIONS[turn // len(self.spec.works) % len(VERSIONS)] if component else ""
        scope = (f"host/{self.spec.hosts[place]}",)
        return OperationSpec(kind=kind, scope=scope, component=component, version=version, reason="bench")

    async def _post(self, specs: tuple[OperationSpec, ...], due: int) -> None:
        connection = await self._free.get()
        body = encode(OperationsRequest(operations=tuple(OperationAsk(spec=spec) for spec in specs)))
        answer = decode(await connection.post("/v1/operations", body), OperationsReport)
        self._free.put_nowait(connection)
        assert len(answer.items) == len(specs)
        for item in answer.items:
            self.asked[item.operation] = due

    def _start(self, count: int, due: int) -> None:
        specs = tuple(self._next() for _ in range(count))
        task = asyncio.create_task(self._post(specs, due))
        self._posts.add(task)
        task.add_done_callback(self._posted)

    def _posted(self, task: asyncio.Task[None]) -> None:
        self._posts.discard(task)
        if task.exception() is not None:
            self._failed.append(task)
        self._room.set()

    async def paced(self) -> None:
        start, sent = time.monotonic(), 0
        for tick in range(1, round(self.spec.duration_s / TICK_S) + 1):
            due = start + tick * TICK_S
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            count = round(self.spec.rate * tick * TICK_S) - sent
            sent += count
            if count:
                self._start(count, round(due * 1e9))

    async def closed(self) -> None:
        end = time.monotonic() + self.spec.duration_s
        while time.monotonic() < end and not self._failed:
            room = self.spec.window - (self._made - self._done)
            if room >= BATCH_LEAST:
                self._start(room, time.monotonic_ns())
            self._room.clear()
            await self._room.wait()

    def told(self) -> None:
        self._done += len(os.read(self.spec.done, 1 << 16))
        self._room.set()

    async def finish(self) -> None:
        """Until all is done. Raises `TimeoutError`, and what a request ended with."""
        async with asyncio.timeout(DEADLINE_S):
            while (self._posts or self._done < self._made) and not self._failed:
                self._room.clear()
                await self._room.wait()
        for task in self._failed:
            task.result()


async def main(spec: Spec) -> None:
    connections = [await Connection.open(spec.url, spec.token) for _ in range(CONNECTIONS)]
    client = Client(spec, connections)
    asyncio.get_running_loop().add_reader(spec.done, client.told)
    began = time.monotonic_ns()
    await (client.closed() if spec.window else client.paced())
    ended = time.monotonic_ns()
    await client.finish()
    Path(spec.result).write_bytes(encode(Result(asked=client.asked, began=began, ended=ended)))


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main(decode(Path(sys.argv[1]).read_bytes(), Spec)))
