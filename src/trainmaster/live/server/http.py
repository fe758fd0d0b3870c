"""Requests and answers: one row a route, one shape of error, nothing unread.

A route says who may call it, what it reads and what it answers; dispatch, checks and the OpenAPI document all come
from that row. Bodies are limited and decoded strictly (an unknown field is an error, as is a value of another type), so
a typing mistake never passes for a default. Every error is a `Problem`; an unexpected exception becomes one with an
incident number, under which the server's own log has the traceback, and the caller sees none of it.
"""

import asyncio
import itertools
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Final, Literal, TypeVar

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from trainmaster.core.base.reasons import Reason, Token, because
from trainmaster.core.base.value import Value, encode
from trainmaster.live.server.resources import Problem
from trainmaster.live.server.runtime import EventRefused, SessionOver
from trainmaster.live.server.service import Service, ServiceStopped
from trainmaster.live.server.tokens import Keys, Principal
from trainmaster.ports.event_log import LogFull, LogUnusable

MIB: Final = 1 << 20
SEND_TIMEOUT_S: Final = 10.0
"""A reader that takes nothing for this long is dropped."""

Access = Literal["anyone", "viewer", "operator", "agent"]
Body = TypeVar("Body", bound=Value)
logger = logging.getLogger(__name__)
_incidents = itertools.count(1)


class Refusal(Exception):
    """Ends a request with this status and problem."""

    def __init__(self, status: int, token: Token, sentence: str, fix: str = "", **numbers: int | float | str) -> None:
        super().__init__(sentence)
        self.status = status
        self.problem = Problem(reason=because(token, sentence, **numbers), fix=fix or token.advice)

    @classmethod
    def of(cls, status: int, reason: Reason) -> "Refusal":
        """The same, from a reason that the core gave."""
        refusal = cls(status, reason.token, reason.sentence)
        refusal.problem = Problem(reason=reason, fix=reason.token.advice)
        return refusal


class Call:
    """One request, checked: who calls, the path's names, the query and the body."""

    def __init__(self, request: Request, service: Service, principal: Principal, query: Any, body: Any) -> None:
        self.request, self.service, self.principal = request, service, principal
        self.query, self.body = query, body

    def name(self, key: str) -> str:
        """A name in the path."""
        return str(self.request.path_params[key])


class Route(msgspec.Struct, frozen=True, kw_only=True):
    method: Literal["GET", "POST"]
    path: str
    """As Starlette and OpenAPI write it: `/v1/hosts/{host}`."""
    access: Access
    summary: str
    handle: Callable[[Call], Awaitable[Value | Response]]
    query: type[Value] | None = None
    body: type[Value] | Literal["raw"] | None = None
    body_limit: int = MIB
    answer: type[Value] | str | None = None
    """A type of JSON, a media type, or nothing (204)."""
    errors: tuple[int, ...] = ()


def json_response(value: object, status: int = 200) -> Response:
    return Response(encode(value), status, media_type="application/json")


class Endpoint:
    """What answers the requests of a route."""

    def __init__(self, route: Route, service: Service, keys: Keys) -> None:
        self.route, self.service, self.keys = route, service, keys

    async def __call__(self, request: Request) -> Response:
        try:
            principal = self._admit(request)
            query = _query(request, self.route.query)
            body = await self._body(request)
            answer = await self.route.handle(Call(request, self.service, principal, query, body))
            return answer if isinstance(answer, Response) else json_response(answer)
        except Exception as error:  # noqa: BLE001  (the edge: whatever it is becomes a Problem)
            return problem_response(error, request.method, request.url.path)

    def _admit(self, request: Request) -> Principal:
        if self.route.access == "anyone":
            return Principal(role="viewer")
        principal = self.keys.principal(_header(request, b"authorization"))
        if principal is None:
            raise Refusal(401, Token.NOT_ALLOWED, "no token was sent, or one that this server does not know")
        if principal.role != self.route.access and (principal.role, self.route.access) != ("operator", "viewer"):
            sentence = f"this needs the role {self.route.access}, and the token's role is {principal.role}"
            raise Refusal(403, Token.NOT_ALLOWED, sentence)
        return principal

    async def _body(self, request: Request) -> object:
        kind = self.route.body
        if kind is None:
            return None
        data = await _read(request.receive, self.route.body_limit)
        return data if kind == "raw" else _decoded(data, kind)


def _header(request: Request, name: bytes) -> str:
    """As it came: a mapping of all headers, as Starlette makes it, costs more than the rest of the check."""
    return next((value.decode("latin-1") for key, value in request.scope["headers"] if key == name), "")


async def _read(receive: Receive, limit: int) -> bytes:
    """The whole body. Refuses more than `limit` bytes without reading them all."""
    chunks, size, more = [], 0, True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        chunk, more = message.get("body", b""), message.get("more_body", False)
        size += len(chunk)
        if size > limit:
            raise Refusal(413, Token.BAD_REQUEST, f"the body is larger than {limit} bytes", limit_bytes=limit)
        chunks.append(chunk)
    return b"".join(chunks)


def _decoded(data: bytes, kind: type[Body]) -> Body:
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Refusal(400, Token.BAD_REQUEST, f"the body is no {kind.__name__}: {error}") from error


def _query(request: Request, kind: type[Value] | None) -> Value | None:
    if kind is None and not request.scope["query_string"]:
        return None
    try:
        return msgspec.convert(dict(request.query_params), kind or NoQuery, strict=False)
    except msgspec.ValidationError as error:
        raise Refusal(400, Token.BAD_REQUEST, f"the query of the address is wrong: {error}") from error


class NoQuery(Value):
    """No parameters."""


def problem_response(error: Exception, method: str, path: str) -> Response:
    """The answer to a request that ended with this exception."""
    if isinstance(error, Refusal):
        headers = {"WWW-Authenticate": "Bearer"} if error.status == 401 else None
        return Response(encode(error.problem), error.status, headers, "application/json")
    if isinstance(error, SessionOver):
        return json_response(Refusal(409, Token.REGISTER_FIRST, str(error)).problem, 409)
    if isinstance(error, LogFull):
        return json_response(Refusal(507, Token.DISK_FULL, f"{error.what}: {error.why}", error.fix).problem, 507)
    if isinstance(error, (ServiceStopped, LogUnusable)):
        return json_response(Refusal(503, Token.SERVER_UNREACHABLE, "the server is stopping", "ask again").problem, 503)
    return _incident(error, method, path)


def _incident(error: Exception, method: str, path: str) -> Response:
    """A defect of ours. Numbers count from the start of the server, beside whose log they make sense."""
    number = next(_incidents)
    logger.error("incident %d in %s %s", number, method, path, exc_info=error)
    outcome = "it was not carried out" if isinstance(error, EventRefused) else "its outcome is unknown"
    sentence = f"the server met an error of its own with this request ({outcome}); incident {number}"
    return json_response(Refusal(500, Token.SERVER_FAULT, sentence, incident=number).problem, 500)


class Stream(Response):
    """A body without an end: sends what `chunks` yields until it ends, the client leaves, or takes nothing for
    `SEND_TIMEOUT_S` to twice that; then `ended` is awaited, whatever happened."""

    def __init__(
        self, chunks: AsyncIterator[bytes], media_type: str, ended: Callable[[], Awaitable[None]] | None = None
    ) -> None:
        super().__init__(media_type=media_type, headers={"Cache-Control": "no-store"})
        del self.headers["content-length"]
        self._chunks, self._ended = chunks, ended
        self._taken = 0
        """Chunks that the client took."""
        self._is_sending = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        start = {"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers}
        body = asyncio.ensure_future(self._send(start, send))
        gone = asyncio.ensure_future(_until_gone(receive))
        try:
            while not body.done() and not gone.done() and not await self._is_stuck(body, gone):
                pass
        finally:
            for task in (body, gone):
                task.cancel()
            results = await asyncio.gather(body, gone, return_exceptions=True)
            if self._ended is not None:
                await self._ended()
        for result in results:
            if isinstance(result, Exception):
                logger.error("a stream to %s broke", scope.get("client"), exc_info=result)

    async def _send(self, start: dict[str, Any], send: Send) -> None:
        await send(start)
        async for chunk in self._chunks:
            self._is_sending = True
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
            self._is_sending = False
            self._taken += 1
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _is_stuck(self, body: "asyncio.Future[None]", gone: "asyncio.Future[None]") -> bool:
        """Waits; true if the client took nothing meanwhile. Looked at from beside, so chunks need no deadlines."""
        taken = self._taken
        await asyncio.wait((body, gone), timeout=SEND_TIMEOUT_S, return_when=asyncio.FIRST_COMPLETED)
        return self._is_sending and self._taken == taken


async def _until_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
