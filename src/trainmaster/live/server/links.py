"""The open streams to the agents, one a host, and the questions that wait for an answer.

A stream is a queue of lines. What does not fit is not lost: the stream is closed, the agent comes back, and what is
pending goes out again. The newest stream of a host replaces an older one, whose end then means nothing.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from typing import Final

from trainmaster.core.agent.wire import Instruction, Query
from trainmaster.core.base.ids import HostId, SessionId
from trainmaster.core.base.value import encode
from trainmaster.core.effects import AnyEffect

LINES_WAITING_MAX: Final = 10_000
_PING: Final = encode(Instruction(ping=True)) + b"\n"


class Link:
    """One stream. `lines` ends after `close`."""

    def __init__(self, host: HostId, session: SessionId) -> None:
        self.host, self.session = host, session
        self._waiting: deque[bytes] = deque()
        self._news = asyncio.Event()
        self._closed = self._spoke = False

    def put(self, instruction: Instruction) -> None:
        if len(self._waiting) >= LINES_WAITING_MAX:
            self.close()
            return
        self._waiting.append(encode(instruction) + b"\n")
        self._spoke = True
        self._news.set()

    def close(self) -> None:
        self._closed = True
        self._news.set()

    async def lines(self) -> AsyncIterator[bytes]:
        """What waits, as it comes, and a ping at once so that the agent knows that the stream stands."""
        yield _PING
        while not self._closed:
            await self._news.wait()
            self._news.clear()
            if self._waiting:
                lines = b"".join(self._waiting)
                self._waiting.clear()
                yield lines

    def ping(self) -> None:
        """Gives a sign of life if nothing was said since the last call."""
        if not self._spoke:
            self._waiting.append(_PING)
            self._news.set()
        self._spoke = False


class AgentLinks:
    """All streams; the server's `EffectSender`."""

    def __init__(self) -> None:
        self._links: dict[HostId, Link] = {}
        self._questions: dict[str, tuple[HostId, asyncio.Future[bytes]]] = {}
        self._asked = 0

    def open(self, host: HostId, session: SessionId) -> Link:
        self.drop(host)
        link = self._links[host] = Link(host, session)
        return link

    def is_open(self, host: HostId) -> bool:
        return host in self._links

    def drop(self, host: HostId) -> None:
        """Ends the stream of a host, if there is one; its end is then no news."""
        link = self._links.pop(host, None)
        if link is not None:
            link.close()

    def ended(self, link: Link) -> bool:
        """The connection of this stream is gone. True if it was the host's present one."""
        if self._links.get(link.host) is not link:
            return False
        del self._links[link.host]
        return True

    def ping(self) -> None:
        """To be called each second: an agent that hears nothing for some seconds gives its stream up. One clock for all
        streams, since a deadline of its own for each line would cost more than the line."""
        for link in self._links.values():
            link.ping()

    def close(self) -> None:
        for host in tuple(self._links):
            self.drop(host)

    def send(self, host: HostId, lease: int, effect: AnyEffect) -> None:
        link = self._links.get(host)
        if link is not None:
            link.put(Instruction(lease=lease, effect=effect))

    async def ask(self, host: HostId, query: Query, timeout_s: float) -> bytes | None:
        """The agent's answer; None if it is not connected or gives none in time."""
        link = self._links.get(host)
        if link is None:
            return None
        self._asked += 1
        name = f"q{self._asked}"
        future: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._questions[name] = (host, future)
        try:
            link.put(Instruction(query=query.but(id=name)))
            return await asyncio.wait_for(future, timeout_s)
        except TimeoutError:
            return None
        finally:
            del self._questions[name]

    def answer(self, host: HostId, name: str, body: bytes) -> bool:
        """False if nobody (any longer) asked this host that."""
        asked, future = self._questions.get(name, (None, None))
        if asked != host or future is None or future.done():
            return False
        future.set_result(body)
        return True
