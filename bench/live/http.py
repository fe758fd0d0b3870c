"""As much of HTTP as the bench needs, so that its own ends cost little beside the server that is measured."""

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Final
from urllib.parse import urlsplit

CHUNK: Final = 1 << 16
IDLE_S: Final = 2.0
"""The server closes what was idle for a few seconds; past this a new connection is made."""


class Connection:
    """One kept-alive connection; one request at a time."""

    def __init__(self, url: str, token: str) -> None:
        self._place = urlsplit(url)
        self._headers = f"Host: bench\r\nAuthorization: Bearer {token}\r\n"
        self._reader: asyncio.StreamReader
        self._writer: asyncio.StreamWriter
        self._used_at = 0.0

    @classmethod
    async def open(cls, url: str, token: str) -> "Connection":
        connection = cls(url, token)
        await connection._connect()
        return connection

    async def _connect(self) -> None:
        place = self._place
        self._reader, self._writer = await asyncio.open_connection(place.hostname, place.port, limit=1 << 24)
        self._used_at = time.monotonic()

    async def post(self, path: str, body: bytes) -> bytes:
        """The answer's body. Raises `RuntimeError` for a status that is no success."""
        if time.monotonic() - self._used_at > IDLE_S:
            self._writer.close()
            await self._connect()
        self._used_at = time.monotonic()
        head = f"POST {path} HTTP/1.1\r\n{self._headers}Content-Length: {len(body)}\r\n\r\n"
        self._writer.write(head.encode() + body)
        status, lengths = await self._head()
        answer = await self._reader.readexactly(int(lengths.get(b"content-length", b"0")))
        if not 200 <= status < 300:
            raise RuntimeError(f"{path} was answered with {status}: {answer[:500].decode()}")
        return answer

    async def stream(self, path: str) -> AsyncIterator[list[bytes]]:
        """Whole lines of a body without an end, those of one read together."""
        self._writer.write(f"GET {path} HTTP/1.1\r\n{self._headers}\r\n".encode())
        status, _ = await self._head()
        if status != 200:
            raise RuntimeError(f"{path} was answered with {status}")
        rest = b""
        while data := await self._reader.read(CHUNK):
            # A line of JSON is longer than any line of the chunked coding, and begins with a brace.
            *lines, rest = (rest + data).split(b"\n")
            yield [line for line in lines if line.startswith(b"{")]

    async def _head(self) -> tuple[int, dict[bytes, bytes]]:
        first, *lines = (await self._reader.readuntil(b"\r\n\r\n")).split(b"\r\n")
        fields = (line.partition(b":") for line in lines if line)
        return int(first.split(b" ")[1]), {name.lower(): value.strip() for name, _, value in fields}
