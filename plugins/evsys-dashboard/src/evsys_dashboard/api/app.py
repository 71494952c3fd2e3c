"""The server: its endpoints below /api/v1, and the pages."""

from __future__ import annotations

import json
import mimetypes
from collections.abc import Awaitable, Callable
from importlib.resources import files
from typing import Any

from aiohttp import web

from evsys.errors import ConfigError, EvsysError
from evsys_dashboard.api import (
    administration,
    commands,
    comparison,
    control,
    data,
    experiments,
    memory,
    records,
    runs,
    stream,
)
from evsys_dashboard.api.access import KeyGate, LocalGate
from evsys_dashboard.api.endpoints import EVERY, Call, Endpoint, read_query
from evsys_dashboard.api.errors import RefusedError
from evsys_dashboard.api.openapi import openapi
from evsys_dashboard.api.service import Service
from evsys_record.encoding import encode_record, utf8
from evsys_record.result_trees import read_as
from evsys_runtime.serving.bodies import BodyError, read_bytes

__all__ = ["PREFIX", "all_endpoints", "application"]

PREFIX = "/api/v1"

_LONG = 1024
"""Bytes of an answer from which on it is compressed."""

type _Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}


def all_endpoints() -> list[Endpoint]:
    """Every endpoint of the server."""
    return [
        each
        for room in (
            experiments,
            runs,
            comparison,
            control,
            memory,
            commands,
            stream,
            records,
            data,
            administration,
        )
        for each in room.endpoints.all()
    ]


def application(service: Service) -> web.Application:
    """The routes of a service."""
    gate = LocalGate() if service.keys is None else KeyGate(service.keys, service.wrong_keys)
    app = web.Application(middlewares=[_answers(gate)])
    found = all_endpoints()
    for endpoint in found:
        app.router.add_route(endpoint.method, PREFIX + endpoint.path, _handler(endpoint, service, gate))
    document = json.dumps(openapi(found, PREFIX))

    async def describe(_: web.Request) -> web.Response:
        return web.Response(text=document, content_type="application/json")

    app.router.add_get(f"{PREFIX}/openapi.json", describe)
    app.router.add_get("/", _page)
    app.router.add_get("/{name:[A-Za-z0-9_./-]+}", _page)

    async def end_streams(_: web.Application) -> None:
        service.closing.set()
        service.changes.tell()

    app.on_shutdown.append(end_streams)
    return app


def _handler(endpoint: Endpoint, service: Service, gate: LocalGate | KeyGate) -> _Handler:
    async def handle(request: web.Request) -> web.StreamResponse:
        access = await gate.access(request, required=endpoint.scope is not None)
        if service.keys is not None:
            service.rates.count(access.name or request.remote or "unknown")
        project = request.match_info.get("project")
        if not access.may(endpoint.scope, None if endpoint.across and project == EVERY else project):
            raise RefusedError(403, f"the key doesn't grant {endpoint.scope!r} here")
        arguments: dict[str, Any] = {}
        if endpoint.query is not None:
            arguments["query"] = read_query(endpoint.query, request.query, request.query.getall)
        elif request.query:
            raise RefusedError(400, f"unknown parameter {next(iter(request.query))!r}")
        if endpoint.body is not None:
            arguments["body"] = await _body(request, endpoint.body, endpoint.most_body)
        answer = await endpoint.function(Call(request=request, service=service, access=access), **arguments)
        if isinstance(answer, web.StreamResponse):
            return answer
        body = utf8(encode_record(answer))
        response = web.Response(
            body=body,
            content_type="application/json",
            charset="utf-8",
            headers={"Cache-Control": "no-store"},
        )
        if len(body) > _LONG:
            response.enable_compression()
        return response

    return handle


async def _body(request: web.Request, cls: type, most: int) -> Any:
    """The body of a request as an object."""
    if request.content_type != "application/json":
        raise RefusedError(415, "the body isn't JSON", hint="send it with Content-Type: application/json")
    try:
        tree = json.loads(await read_bytes(request, most))
    except BodyError as exc:
        raise RefusedError(exc.status, exc.message) from exc
    except (ValueError, RecursionError) as exc:
        raise RefusedError(400, f"the body isn't JSON: {exc}") from exc
    if not isinstance(tree, dict):
        raise RefusedError(400, f"the body holds a JSON {type(tree).__name__}, expected an object")
    return read_as(cls, tree)


def _answers(gate: LocalGate | KeyGate) -> Any:
    """A middleware for all requests: checks the sender, sets headers that protect the pages, and answers errors as JSON."""

    @web.middleware
    async def answer(request: web.Request, handler: _Handler) -> web.StreamResponse:
        try:
            gate.refuse_foreign(request)
            response = await handler(request)
        except RefusedError as exc:
            response = _refusal_response(exc)
        except ConfigError as exc:
            response = _refusal_response(RefusedError(400, exc.message, hint=exc.hint))
        except EvsysError as exc:
            response = _refusal_response(RefusedError(500, exc.message, hint=exc.hint))
        except web.HTTPException as exc:
            response = _refusal_response(RefusedError(exc.status, exc.reason))
        if not response.prepared:
            response.headers.update(_HEADERS)
        return response

    return answer


def _refusal_response(refusal: RefusedError) -> web.Response:
    headers = {"Cache-Control": "no-store"}
    if refusal.retry_after is not None:
        headers["Retry-After"] = str(refusal.retry_after)
    return web.json_response(refusal.document, status=refusal.status, headers=headers)


async def _page(request: web.Request) -> web.Response:
    """A file of the pages; nothing of this distribution but what lies in `pages/`."""
    parts = (request.match_info.get("name") or "index.html").split("/")
    place = files("evsys_dashboard.pages")
    for part in parts:
        if part in {"", ".", ".."} or part.startswith((".", "_")):
            raise RefusedError(404, "there is no such page")
        place = place.joinpath(part)
    kind, _ = mimetypes.guess_type(parts[-1])
    if not place.is_file() or parts[-1].endswith(".py"):
        raise RefusedError(404, "there is no such page")
    return web.Response(
        body=place.read_bytes(),
        content_type=kind or "text/plain",
        charset="utf-8",
        headers={"Cache-Control": "no-cache"},
    )
