"""A chat-completions server on this machine, for as long as someone needs it."""

from __future__ import annotations

import asyncio
import ipaddress
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from evsys.errors import ConfigError
from evsys_runtime.serving.connections import BACKLOG, Connections, most_connections
from evsys_runtime.serving.models import Catalogue
from evsys_runtime.serving.routes import chat_routes

if TYPE_CHECKING:
    from aiohttp import web

__all__ = ["SHUTDOWN_SECONDS", "chat_server", "is_loopback", "listening", "require_key"]

SHUTDOWN_SECONDS = 5.0
"""How long requests under way may take once a server stops."""

IDLE_SECONDS = 75.0
"""How long a connection may stay without a whole request head."""


@asynccontextmanager
async def chat_server(
    catalogue: Catalogue,
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    prefix: str = "/v1",
    key: str | None = None,
    **options: Any,
) -> AsyncIterator[str]:
    """Serve models while inside; gives the address that clients call `base_url`.

    A client that goes away cancels its request.

    Args:
        catalogue: the models.
        host: address to listen on. One that other machines reach needs a key.
        port: port to listen on; 0 takes a free one.
        prefix: see `chat_routes`.
        key: see `chat_routes`.
        options: `record`, `bounds` and `log` of `chat_routes`.

    Raises:
        ConfigError: a host that other machines reach, without a key; or the port is taken.
    """
    from aiohttp import web

    require_key(host, key)
    app = web.Application()
    app.add_routes(chat_routes(catalogue, prefix=prefix, key=key, **options))
    async with listening(app, host, port) as address:
        yield f"{address}{prefix}"


def require_key(host: str, key: str | None) -> None:
    """See that a server has a key where other machines reach it.

    Raises:
        ConfigError: they do, and it has none.
    """
    if key is None and not is_loopback(host):
        raise ConfigError(
            f"{host} can be reached from other machines, and there is no key",
            hint="set a key, or listen on 127.0.0.1",
        )


@asynccontextmanager
async def listening(app: web.Application, host: str, port: int) -> AsyncIterator[str]:
    """Serve an application while inside; gives its address, `http://host:port`.

    A client that goes away cancels its request.

    Args:
        app: what is served.
        host: address to listen on.
        port: port to listen on; 0 takes a free one.

    Raises:
        ConfigError: the address can't be listened on.
    """
    from aiohttp import web

    connections = Connections(most_connections())
    app.middlewares.insert(0, connections.middleware())
    runner = web.AppRunner(
        app,
        handler_cancellation=True,
        shutdown_timeout=SHUTDOWN_SECONDS,
        keepalive_timeout=IDLE_SECONDS,
        access_log=None,
    )
    await runner.setup()
    server = None
    try:
        assert runner.server is not None  # set up above
        try:
            server = await asyncio.get_running_loop().create_server(
                connections.accept(runner.server), host, port, backlog=BACKLOG
            )
        except OSError as exc:
            # The event loop's own words have the address and the number of the error, twice each.
            why = exc if exc.errno is None or exc.errno <= 0 else os.strerror(exc.errno)
            raise ConfigError(f"can't listen on {host}:{port}: {why}", hint="choose another port") from exc
        address = server.sockets[0].getsockname()
        shown = f"[{address[0]}]" if ":" in address[0] else address[0]
        yield f"http://{shown}:{address[1]}"
    finally:
        if server is not None:
            server.close()
        await runner.cleanup()


def is_loopback(host: str) -> bool:
    """Whether a name or an address is this machine's own, which no other machine reaches."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
