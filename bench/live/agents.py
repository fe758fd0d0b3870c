"""Agents of many hosts in one process, as `python -m bench.live.agents SPEC`.

Each host has a session, a stream, a journal and reports of its own, exactly as the protocol asks for, and carries out
what it is asked at once: what is measured is the server. What a real agent does beside it (processes, markers and
journal on a disk) is measured with real agents, apart. Of each operation the instants are kept at which its first
effect came and at which the server acknowledged its outcome, that is, had it on its disk.
"""

import asyncio
import os
import signal
import sys
import time
from collections import deque
from pathlib import Path
from typing import Final

import msgspec
import uvloop

import trainmaster
from bench.live.http import Connection
from trainmaster.core.agent.journal import Journal
from trainmaster.core.agent.wire import Acknowledged, Heartbeat, Instruction, Register, Registered, Report
from trainmaster.core.base.ids import BootId, HostId, SessionId
from trainmaster.core.base.time import Instant
from trainmaster.core.base.value import Value, decode, encode
from trainmaster.core.effects import AnyEffect, RunSteps
from trainmaster.core.events import AgentReport
from trainmaster.core.recovery.events import EffectEnded
from trainmaster.live.agent.outbox import BATCH
from trainmaster.live.server.tokens import agent_token

BOOT: Final = BootId("bench")
BEAT_S: Final = 1.0
_instructions: Final = msgspec.json.Decoder(Instruction)


class Spec(Value):
    """What the process is started with (a file)."""

    url: str
    secret: str
    hosts: tuple[HostId, ...]
    told: int
    """Descriptor to which a byte is written for each operation that is done."""
    result: str


class Result(Value):
    first: dict[str, int]
    """By operation: when its first effect came, in nanoseconds of the monotonic clock, which all processes share."""
    done: dict[str, int]
    """When its outcome was acknowledged."""
    reports: int


class Fleet:
    """What the hosts of this process have in common."""

    def __init__(self, spec: Spec) -> None:
        self.spec = spec
        self.first: dict[str, int] = {}
        self.done: dict[str, int] = {}
        self.reports = 0

    def save(self) -> None:
        result = Result(first=self.first, done=self.done, reports=self.reports)
        Path(self.spec.result).write_bytes(encode(result))


class BenchAgent:
    """One host."""

    def __init__(self, fleet: Fleet, host: HostId) -> None:
        self._fleet, self.host = fleet, host
        self._session = SessionId(f"bench-{host}")
        self._token = agent_token(fleet.spec.secret, host)
        self._journal = Journal(BOOT)
        self._operations: dict[str, str] = {}
        """Operations whose outcome is on its way, by effect."""
        self._outcomes: deque[AgentReport] = deque()
        self._news = asyncio.Event()

    async def run(self) -> None:
        url = self._fleet.spec.url
        reports = await Connection.open(url, self._token)
        stream = await Connection.open(url, self._token)
        register = Register(
            host=self.host, session=self._session, boot=BOOT, address="127.0.0.1", version=trainmaster.__version__,
            pid=os.getpid(), attempts=(),
        )  # fmt: skip
        registered = decode(await reports.post("/v1/agent/register", encode(register)), Registered)
        self._journal.see_lease(registered.lease)
        beats = await Connection.open(url, self._token)
        await asyncio.gather(self._listen(stream), self._report(reports), self._beat(beats))

    async def _listen(self, stream: Connection) -> None:
        async for lines in stream.stream(f"/v1/agent/stream?host={self.host}&session={self._session}"):
            came = time.monotonic_ns()
            for line in lines:
                instruction = _instructions.decode(line)
                if instruction.effect is not None:
                    self._carry_out(instruction.effect, instruction.lease, came)

    def _carry_out(self, effect: AnyEffect, lease: int, came: int) -> None:
        answer = self._journal.offer(effect, lease)
        if answer.verdict != "start":
            return
        numbers: dict[str, int | float | str] = {}
        if isinstance(effect, RunSteps):
            self._fleet.first.setdefault(effect.operation, came)
            self._operations[effect.id] = effect.operation
            numbers["step"] = len(effect.steps)
            if effect.observe is not None:
                numbers["version"] = effect.observe.wanted
        self._journal.ended(effect.id, "done", "", numbers)
        at = Instant(time.time_ns() // 1000)
        self._outcomes.append(EffectEnded(at=at, host=self.host, effect=effect.id, outcome="done", numbers=numbers))
        self._news.set()

    async def _report(self, connection: Connection) -> None:
        number = 0
        while True:
            await self._news.wait()
            number += 1
            events = tuple(self._outcomes.popleft() for _ in range(min(len(self._outcomes), BATCH)))
            report = Report(host=self.host, session=self._session, number=number, events=events)
            answer = decode(await connection.post("/v1/agent/report", encode(report)), Acknowledged)
            assert answer.number == number, (answer, number)
            self._acknowledged(events)
            if not self._outcomes:
                self._news.clear()

    def _acknowledged(self, events: tuple[AgentReport, ...]) -> None:
        now, done = time.monotonic_ns(), 0
        self._fleet.reports += 1
        for event in events:
            assert isinstance(event, EffectEnded)
            self._journal.acknowledged(event.effect)
            operation = self._operations.pop(event.effect, None)
            if operation is not None:
                self._fleet.done[operation] = now
                done += 1
        if done:
            os.write(self._fleet.spec.told, b"." * done)

    async def _beat(self, connection: Connection) -> None:
        while True:
            beat = Heartbeat(host=self.host, session=self._session, at=Instant(time.time_ns() // 1000), groups=())
            await connection.post("/v1/agent/heartbeat", encode(beat))
            await asyncio.sleep(BEAT_S)


async def main(spec: Spec) -> None:
    fleet, stop = Fleet(spec), asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    agents = [asyncio.create_task(BenchAgent(fleet, host).run()) for host in spec.hosts]
    stopped = asyncio.create_task(stop.wait())
    await asyncio.wait((*agents, stopped), return_when=asyncio.FIRST_COMPLETED)
    ended = [agent for agent in agents if agent.done()]
    for agent in agents:
        agent.cancel()
    await asyncio.gather(*agents, return_exceptions=True)
    for agent in ended[:1]:
        agent.result()
    fleet.save()


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main(decode(Path(sys.argv[1]).read_bytes(), Spec)))
