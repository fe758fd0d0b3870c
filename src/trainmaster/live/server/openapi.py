"""The OpenAPI document, made from the rows of the routes and from the types of the bodies, so it can't disagree with
what the server does."""

import re
from collections.abc import Sequence
from http import HTTPStatus
from typing import Any

import msgspec

import trainmaster
from trainmaster.live.server.http import Route
from trainmaster.live.server.resources import Problem

_REF = "#/components/schemas/{name}"


def document(routes: Sequence[Route]) -> dict[str, Any]:
    """OpenAPI 3.1."""
    types = [kind for route in routes for kind in (route.body, route.answer) if isinstance(kind, type)]
    _, schemas = msgspec.json.schema_components([*types, Problem], ref_template=_REF)
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route)
    bearer = {"type": "http", "scheme": "bearer", "description": "Token of a viewer, an operator or a host's agent"}
    return {
        "openapi": "3.1.0",
        "info": {"title": "Trainmaster", "version": trainmaster.__version__},
        "paths": paths,
        "components": {"schemas": schemas, "securitySchemes": {"bearer": bearer}},
    }


def _operation(route: Route) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": route.handle.__name__,
        "summary": route.summary,
        "parameters": [*_path_parameters(route.path), *_query_parameters(route)],
        "responses": _responses(route),
    }
    if route.access != "anyone":
        operation["security"] = [{"bearer": []}]
        operation["description"] = f"Needs the role {route.access}."
    if route.body is not None:
        media = "application/octet-stream" if route.body == "raw" else "application/json"
        operation["requestBody"] = {"required": True, "content": {media: {"schema": _schema(route.body)}}}
    return operation


def _path_parameters(path: str) -> list[dict[str, Any]]:
    names = re.findall(r"\{(\w+)\}", path)
    return [{"name": name, "in": "path", "required": True, "schema": {"type": "string"}} for name in names]


def _query_parameters(route: Route) -> list[dict[str, Any]]:
    if route.query is None:
        return []
    schema = msgspec.json.schema_components([route.query], ref_template=_REF)[1][route.query.__name__]
    required = schema.get("required", [])
    return [
        {"name": name, "in": "query", "required": name in required, "schema": value}
        for name, value in schema["properties"].items()
    ]


def _responses(route: Route) -> dict[str, Any]:
    if route.answer is None:
        responses: dict[str, Any] = {"204": {"description": "Done"}}
    elif isinstance(route.answer, str):
        responses = {"200": {"description": "Done", "content": {route.answer: {"schema": {"type": "string"}}}}}
    else:
        responses = {"200": {"description": "Done", "content": {"application/json": {"schema": _schema(route.answer)}}}}
    common = () if route.access == "anyone" else (401, 403)
    bad = (400,) if route.query or route.body else ()
    for status in sorted({*bad, *common, *route.errors, 500}):
        content = {"application/json": {"schema": _schema(Problem)}}
        responses[str(status)] = {"description": HTTPStatus(status).phrase, "content": content}
    return responses


def _schema(kind: type | str) -> dict[str, Any]:
    return {"$ref": _REF.format(name=kind.__name__)} if isinstance(kind, type) else {"type": "string"}
