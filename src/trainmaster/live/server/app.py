"""The application: all routes, those of agents first because they are asked for most."""

from typing import Final

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route as StarletteRoute

from trainmaster.core.base.reasons import Token
from trainmaster.core.base.value import encode
from trainmaster.live.server import agents, changes, people
from trainmaster.live.server.http import Call, Endpoint, Refusal, Route, json_response, problem_response
from trainmaster.live.server.openapi import document
from trainmaster.live.server.service import Service
from trainmaster.live.server.tokens import Keys


async def openapi(call: Call) -> Response:
    return Response(encode(document(ROUTES)), media_type="application/json")


ROUTES: Final[tuple[Route, ...]] = (
    *agents.ROUTES,
    *people.ROUTES,
    *changes.ROUTES,
    Route(
        method="GET",
        path="/openapi.json",
        access="anyone",
        summary="This document",
        handle=openapi,
        answer="application/json",
    ),
)


def build(service: Service, keys: Keys) -> Starlette:
    """The ASGI application of this service."""
    rows = [
        StarletteRoute(route.path, Endpoint(route, service, keys).__call__, methods=[route.method]) for route in ROUTES
    ]
    handlers = {HTTPException: _refused, Exception: _failed}
    return Starlette(routes=rows, exception_handlers=handlers)  # type: ignore[arg-type]


async def _refused(request: Request, error: HTTPException) -> Response:
    """No such route, or not by this method."""
    sentence = f"{request.method} {request.url.path}: {error.detail}"
    problem = Refusal(error.status_code, Token.BAD_REQUEST, sentence, "see /openapi.json for what there is").problem
    return json_response(problem, error.status_code)


async def _failed(request: Request, error: Exception) -> Response:
    return problem_response(error, request.method, request.url.path)
