"""The server over HTTP: one key in the `Authorization` header, and no request from someone else's web page."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

import attrs
from mcp.server.lowlevel import Server
from mcp.server.transport_security import TransportSecuritySettings

from evsys_runtime.serving.keys import KeyCheck
from evsys_runtime.serving.server import is_loopback

__all__ = ["PATH", "http_app"]

PATH = "/mcp"

_BEARER = "bearer "
_UNAUTHORIZED = 401

type Scope = MutableMapping[str, Any]
type Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
type Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
type App = Callable[[Scope, Receive, Send], Awaitable[None]]


@attrs.frozen(kw_only=True)
class _Caller:
    """Who sent a request, as `KeyCheck` counts it."""

    remote: str | None
    path: str


def http_app(server: Server[Any], *, host: str, key: str, names: tuple[str, ...] = ()) -> App:
    """The ASGI application of a server.

    Args:
        server: of a project.
        host: the address that it listens on.
        key: expected from every request as `Authorization: Bearer KEY`.
        names: other names of this machine that clients may write into `Host`.
    """
    loopback = ("127.0.0.1", "localhost", "[::1]")
    hosts = (*(loopback if is_loopback(host) else (host,)), *names)
    security = TransportSecuritySettings(
        enable_dns_rebinding_protection=True,
        allowed_hosts=[each for name in hosts for each in (name, f"{name}:*")],
        allowed_origins=[f"http://{name}{port}" for name in hosts for port in ("", ":*")],
    )
    app = server.streamable_http_app(streamable_http_path=PATH, host=host, transport_security=security)
    return _Guarded(app, KeyCheck(key))


class _Guarded:
    """Lets requests with the key through; wrong ones wait longer and longer for their refusal."""

    def __init__(self, app: App, keys: KeyCheck) -> None:
        self._app = app
        self._keys = keys

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        given = [value for name, value in scope.get("headers", ()) if name.lower() == b"authorization"]
        text = given[0].decode("utf-8", "surrogateescape") if len(given) == 1 else ""
        key = text[len(_BEARER) :] if text.lower().startswith(_BEARER) else ""
        client = scope.get("client")
        caller = _Caller(remote=client[0] if client else None, path=str(scope.get("path", "")))
        if scope["type"] == "http" and await self._keys.accepts(caller, key):
            await self._app(scope, receive, send)
            return
        headers = [(b"www-authenticate", b"Bearer"), (b"content-type", b"text/plain; charset=utf-8")]
        await send({"type": "http.response.start", "status": _UNAUTHORIZED, "headers": headers})
        body = b"the key is missing or wrong: send it as 'Authorization: Bearer KEY'\n"
        await send({"type": "http.response.body", "body": body})
