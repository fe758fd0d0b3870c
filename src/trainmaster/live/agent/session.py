"""The conversation with the server: register, listen, report, send heartbeats; again and again.

Whatever breaks, breaks the whole round, and the agent registers anew after a short wait: one way back instead of one
for each kind of trouble. A round is never ended by what happens on the host, and the workers do not depend on it. Only
a refused token ends the agent, since trying again can't help.

The stream is silent for more than `SILENCE_S` only if the server hangs: it sends a ping each second.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from typing import Final, Protocol

import httpx
import msgspec

from trainmaster.core.agent.wire import Acknowledged, Heartbeat, Instruction, Query, Register, Registered, Report
from trainmaster.core.base.ids import HostId, SessionId
from trainmaster.core.base.value import encode
from trainmaster.core.events import AgentReport
from trainmaster.live.agent.outbox import Outbox

_log = logging.getLogger(__name__)
_instruction = msgspec.json.Decoder(Instruction)
_registered = msgspec.json.Decoder(Registered)
_acknowledged = msgspec.json.Decoder(Acknowledged)

SILENCE_S: Final = 5.0
FIRST_WAIT_S: Final = 0.1
LONGEST_WAIT_S: Final = 1.0
"""A server that was restarted should have its fleet back within about a second."""
TIMEOUT: Final = httpx.Timeout(5.0, connect=2.0)


class NotAdmitted(Exception):
    """The server does not know our token. For the operator."""


class Trouble(Exception):
    """The round is over: an answer that is not the one that was agreed."""


class Host(Protocol):
    """What the conversation is about."""

    def registration(self) -> Register: ...

    def welcomed(self, registered: Registered) -> None: ...

    def instructed(self, instruction: Instruction) -> None: ...

    def heartbeat(self) -> Heartbeat: ...

    def acknowledged(self, events: tuple[AgentReport, ...]) -> None: ...


class Session:
    def __init__(
        self, server: Callable[[], str], token: str, host: HostId, session: SessionId, outbox: Outbox, subject: Host
    ) -> None:
        """`server` gives the present URL; a local server may come back on another port. It raises `OSError` if
        unknown."""
        self._server, self._token, self.host, self.id = server, token, host, session
        self._outbox, self._subject = outbox, subject
        self._number = 1
        self._in_flight: tuple[int, tuple[AgentReport, ...]] | None = None
        """The batch that has the present number: a repeat must carry the same events."""
        self.registered_count = 0

    async def run(self) -> None:
        """Raises `NotAdmitted`; ends otherwise only by being cancelled."""
        wait_s = FIRST_WAIT_S
        said = ""
        while True:
            registered_before = self.registered_count
            try:
                await self._round()
            except (httpx.HTTPError, Trouble, msgspec.DecodeError, OSError) as error:
                trouble = f"{type(error).__name__}: {error}"
            if self.registered_count > registered_before:
                wait_s, said = FIRST_WAIT_S, ""
            if trouble != said:
                _log.warning("server: %s; trying again", trouble)
                said = trouble
            await asyncio.sleep(wait_s)
            wait_s = min(2 * wait_s, LONGEST_WAIT_S)

    async def _round(self) -> None:
        """One registration and what follows from it, until something breaks."""
        headers = {"Authorization": f"Bearer {self._token}"}
        async with httpx.AsyncClient(
            base_url=self._server(), headers=headers, timeout=TIMEOUT, trust_env=False
        ) as client:
            body = await self._post(client, "register", encode(self._subject.registration()))
            registered = _registered.decode(body)
            self.registered_count += 1
            self._subject.welcomed(registered)
            _log.info("registered, lease %d", registered.lease)
            parts = (self._listen(client), self._report(client), self._beat(client, registered.heartbeat_s))
            tasks = [asyncio.create_task(part) for part in parts]
            try:
                done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    task.result()
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)

    async def _post(self, client: httpx.AsyncClient, what: str, body: bytes, kind: str = "application/json") -> bytes:
        answer = await client.post(f"/v1/agent/{what}", content=body, headers={"Content-Type": kind})
        _check(answer.status_code, what)
        return answer.content

    async def _listen(self, client: httpx.AsyncClient) -> None:
        query = {"host": self.host, "session": self.id}
        timeout = httpx.Timeout(SILENCE_S, connect=TIMEOUT.connect)
        async with client.stream("GET", "/v1/agent/stream", params=query, timeout=timeout) as answer:
            _check(answer.status_code, "stream")
            async for line in _lines(answer.aiter_raw()):
                self._subject.instructed(_instruction.decode(line))
        raise Trouble("the stream ended")

    async def _report(self, client: httpx.AsyncClient) -> None:
        while True:
            if self._in_flight is None:
                self._in_flight = await self._outbox.next_batch()
            place, events = self._in_flight
            report = Report(host=self.host, session=self.id, number=self._number, events=events)
            answer = _acknowledged.decode(await self._post(client, "report", encode(report)))
            if answer.number < self._number:
                raise Trouble(f"report {self._number} was answered with {answer.number}")
            self._number = answer.number + 1
            self._in_flight = None
            self._outbox.acknowledge(place)
            self._subject.acknowledged(events)

    async def _beat(self, client: httpx.AsyncClient, every_s: float) -> None:
        while True:
            await self._post(client, "heartbeat", encode(self._subject.heartbeat()))
            await asyncio.sleep(every_s)

    async def answer(self, query: Query, body: bytes) -> None:
        """Answers a question. Trouble is logged: who asked has a deadline."""
        headers = {"Authorization": f"Bearer {self._token}"}
        try:
            async with httpx.AsyncClient(
                base_url=self._server(), headers=headers, timeout=TIMEOUT, trust_env=False
            ) as client:
                await self._post(client, f"answer/{query.id}", body, "application/octet-stream")
        except (httpx.HTTPError, Trouble, OSError) as error:
            _log.warning("answer to query %s: %s", query.id, error)


def _check(status: int, what: str) -> None:
    if status in (401, 403):
        raise NotAdmitted(f"the server refused the token of this host ({what}: status {status})")
    if not 200 <= status < 300:
        raise Trouble(f"{what}: status {status}")


async def _lines(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    buffer = b""
    async for chunk in chunks:
        *lines, buffer = (buffer + chunk).split(b"\n")
        for line in lines:
            if line:
                yield line
