"""The routes that agents use (see `core/agent/wire.py`)."""

from starlette.responses import Response

import trainmaster
from trainmaster.core.agent.wire import Acknowledged, Heartbeat, Instruction, Register, Registered, Report
from trainmaster.core.base.ids import HostId, SessionId
from trainmaster.core.base.reasons import Token
from trainmaster.core.base.value import Value
from trainmaster.live.server.http import MIB, Call, Refusal, Route, Stream


class StreamQuery(Value):
    host: HostId
    session: SessionId


def own(call: Call, host: HostId) -> None:
    """The token's host must be the one that is spoken for."""
    if call.principal.host != host:
        sentence = f"the token is that of {call.principal.host}, and the request speaks for {host}"
        raise Refusal(403, Token.NOT_ALLOWED, sentence)


async def register(call: Call) -> Registered:
    body: Register = call.body
    own(call, body.host)
    if body.version != trainmaster.__version__:
        sentence = f"the agent is trainmaster {body.version}, the server {trainmaster.__version__}"
        raise Refusal(409, Token.BAD_REQUEST, sentence, "run the same version on both")
    async with call.service.settled() as runtime:
        known = body.host in runtime.engine.state.hosts
    if not known:
        raise Refusal(404, Token.NO_SUCH_HOST, f"{body.host} is not declared in the fleet")
    await call.service.register(body)
    return Registered(lease=call.service.runtime.lease, heartbeat_s=call.service.settings.heartbeat_s)


async def stream(call: Call) -> Response:
    query: StreamQuery = call.query
    own(call, query.host)
    link = await call.service.open_stream(query.host, query.session)
    return Stream(link.lines(), "application/x-ndjson", lambda: call.service.stream_ended(link))


async def report(call: Call) -> Acknowledged:
    body: Report = call.body
    own(call, body.host)
    if body.number < 1:
        raise Refusal(400, Token.BAD_REQUEST, f"reports are numbered from 1, not {body.number}")
    for event in body.events:
        own(call, event.host)
    result = await call.service.report(body)
    return Acknowledged(number=result.number)


async def heartbeat(call: Call) -> Response:
    body: Heartbeat = call.body
    own(call, body.host)
    call.service.heartbeat(body)
    return Response(status_code=204)


async def answer(call: Call) -> Response:
    if not call.service.links.answer(call.principal.host, call.name("query"), call.body):
        raise Refusal(404, Token.BAD_REQUEST, "nobody waits for this answer any more", "drop it")
    return Response(status_code=204)


ROUTES = (
    Route(
        method="POST",
        path="/v1/agent/heartbeat",
        access="agent",
        summary="Sign of life, with the progress of the ranks",
        handle=heartbeat,
        body=Heartbeat,
        body_limit=4 * MIB,
        errors=(409,),
    ),
    Route(
        method="POST",
        path="/v1/agent/report",
        access="agent",
        summary="What happened on the host; counts exactly once by its number",
        handle=report,
        body=Report,
        body_limit=4 * MIB,
        answer=Acknowledged,
        errors=(409, 507),
    ),
    Route(
        method="POST",
        path="/v1/agent/register",
        access="agent",
        summary="Begin a session, or come back",
        handle=register,
        body=Register,
        answer=Registered,
        errors=(404, 409, 507),
    ),
    Route(
        method="GET",
        path="/v1/agent/stream",
        access="agent",
        summary=f"Lines of {Instruction.__name__} as they come",
        handle=stream,
        query=StreamQuery,
        answer="application/x-ndjson",
        errors=(409,),
    ),
    Route(
        method="POST",
        path="/v1/agent/answer/{query}",
        access="agent",
        summary="Answer a query of the stream",
        handle=answer,
        body="raw",
        body_limit=16 * MIB,
        errors=(404,),
    ),
)
