"""The agent's end of the connection to a keeper."""

import asyncio
import contextlib
import itertools
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

from trainmaster.core.base.value import encode
from trainmaster.live.agent import talk

_CHUNK = 1 << 16


class KeeperGone(Exception):
    """The connection to the keeper closed while an answer was awaited."""


class KeeperLink:
    """One connection. `on_exit` is called for each worker that ends, `on_gone` once when the connection closes."""

    def __init__(self, on_exit: Callable[[talk.Exited], None], on_gone: Callable[[], None]) -> None:
        self._on_exit, self._on_gone = on_exit, on_gone
        self._numbers = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[talk.FromKeeper]] = {}
        self._socket: socket.socket | None = None
        self._reader: asyncio.Task[None] | None = None
        self._sending = asyncio.Lock()
        self.warm: asyncio.Future[talk.Status] = asyncio.get_running_loop().create_future()

    async def connect(self, path: Path) -> None:
        """Raises `FileNotFoundError` or `ConnectionRefusedError` while the keeper does not listen."""
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.setblocking(False)
        try:
            await asyncio.get_running_loop().sock_connect(connection, str(path))
        except BaseException:
            connection.close()
            raise
        self._socket = connection
        self._reader = asyncio.create_task(self._read(connection), name=f"link {path}")

    async def _read(self, connection: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        buffer = bytearray()
        with contextlib.suppress(OSError):  # a reset says the same as an end
            while data := await loop.sock_recv(connection, _CHUNK):
                buffer += data
                *lines, rest = bytes(buffer).split(b"\n")
                buffer[:] = rest
                for line in lines:
                    self._take(talk.from_keeper.decode(line))
        self._lose()

    def _take(self, message: talk.FromKeeper) -> None:
        match message:
            case talk.Status():
                if not self.warm.done():
                    self.warm.set_result(message)
            case talk.Exited():
                self._on_exit(message)
            case talk.Launched() | talk.Refused() | talk.Stopped():
                future = self._waiting.pop(message.number, None)
                if future is not None and not future.done():
                    future.set_result(message)

    def _lose(self) -> None:
        if self._socket is None:
            return
        self._socket.close()
        self._socket = None
        _fail(self.warm)
        for future in self._waiting.values():
            _fail(future)
        self._waiting.clear()
        self._on_gone()

    async def send(self, message: talk.ToKeeper, descriptor: int | None = None) -> None:
        """Raises `KeeperGone`."""
        line = encode(message) + b"\n"
        async with self._sending:
            if self._socket is None:
                raise KeeperGone("no connection to the keeper")
            try:
                if descriptor is not None:
                    sent = socket.send_fds(self._socket, [line], [descriptor])
                    line = line[sent:]
                await asyncio.get_running_loop().sock_sendall(self._socket, line)
            except OSError as error:
                raise KeeperGone(f"the keeper of the attempt ended: {error}") from error

    def number(self) -> int:
        return next(self._numbers)

    async def ask(self, message: talk.Launch | talk.Stop) -> talk.FromKeeper:
        """Sends and awaits the answer. Raises `KeeperGone`."""
        future: asyncio.Future[talk.FromKeeper] = asyncio.get_running_loop().create_future()
        self._waiting[message.number] = future
        await self.send(message)
        return await future

    async def close(self) -> None:
        """Closes without `on_gone`."""
        self._on_gone = _nothing
        if self._reader is not None:
            self._reader.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._reader
        self._lose()


def _fail(future: "asyncio.Future[Any]") -> None:
    if not future.done():
        future.set_exception(KeeperGone("the keeper of the attempt ended"))
        future.exception()  # whoever awaits it gets it; nobody has to


def _nothing() -> None:
    pass
