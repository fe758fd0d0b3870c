"""The application: all routes.

A path without names in it is looked up; Starlette's table, which tries one pattern after the other below two layers of
its own, has the rest. What agents ask for most is of the first kind, and this saves a third of what a report costs.
"""

from typing import Final

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route as StarletteRoute
from starlette.types import Receive, Scope, Send

from trainmaster.core.base.reasons import Token
from trainmaster.core.base.value import encode
from trainmaster.live.server import (
    accounts,
    agents,
    changes,
    diagnosis,
    health_routes,
    maintenance,
    maintenance_changes,
    maintenance_plans,
    people,
)
from trainmaster.live.server.http import Call, Endpoint, Refusal, Route, json_response, problem_response
from trainmaster.live.server.openapi import document
from trainmaster.live.server.service import Service
from trainmaster.live.server.tokens import Keys


async def openapi(call: Call) -> Response:
    return Response(encode(document(ROUTES)), media_type="application/json")


ROUTES: Final[tuple[Route, ...]] = (
    *agents.ROUTES,
    *people.ROUTES,
    *accounts.ROUTES,
    *diagnosis.ROUTES,
    *changes.ROUTES,
    *maintenance.ROUTES,
    *maintenance_changes.ROUTES,
    *maintenance_plans.ROUTES,
    *health_routes.ROUTES,
    Route(
        method="GET",
        path="/openapi.json",
        access="anyone",
        summary="This document",
        handle=openapi,
        answer="application/json",
    ),
)


class Application:
    """The ASGI application of a service."""

    def __init__(self, service: Service, keys: Keys) -> None:
        endpoints = [Endpoint(route, service, keys) for route in ROUTES]
        rows = [StarletteRoute(one.route.path, one.__call__, methods=[one.route.method]) for one in endpoints]
        handlers = {HTTPException: _refused, Exception: _failed}
        self._table = Starlette(routes=rows, exception_handlers=handlers)  # type: ignore[arg-type]
        self._known = {(one.route.method, one.route.path): one for one in endpoints if "{" not in one.route.path}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        endpoint = self._known.get((scope["method"], scope["path"])) if scope["type"] == "http" else None
        if endpoint is None:
            await self._table(scope, receive, send)
            return
        answer = await endpoint(Request(scope, receive))
        await answer(scope, receive, send)


def build(service: Service, keys: Keys) -> Application:
    """The ASGI application of this service."""
    return Application(service, keys)


async def _refused(request: Request, error: HTTPException) -> Response:
    """No such route, or not by this method."""
    sentence = f"{request.method} {request.url.path}: {error.detail}"
    problem = Refusal(error.status_code, Token.BAD_REQUEST, sentence, "see /openapi.json for what there is").problem
    return json_response(problem, error.status_code)


async def _failed(request: Request, error: Exception) -> Response:
    return problem_response(error, request.method, request.url.path)
