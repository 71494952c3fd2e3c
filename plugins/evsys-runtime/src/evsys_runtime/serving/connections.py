"""How many connections a server holds: fewer than the process has file descriptors, regardless of clients."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from aiohttp import web

__all__ = ["BACKLOG", "Connections", "most_connections"]

BACKLOG = 64
RESERVED = 2 * BACKLOG
"""Descriptors left for the files of the process, and for connections accepted in one go before others are closed."""

MOST = 4096

type _Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def most_connections() -> int:
    """How many connections this process can hold next to its files."""
    try:
        import resource
    except ImportError:  # Windows, whose sockets aren't file descriptors
        return MOST
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MOST if soft < 0 else max(16, min(MOST, soft - RESERVED))


class Connections:
    """The connections of a server.

    A full server makes room by closing the oldest connection that has no request in work, so half-open and idle ones keep
    no one out. If each has a request in work, the newcomer is closed.

    Args:
        most: how many are open at once.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._busy: set[asyncio.BaseProtocol] = set()

    def accept(self, server: web.Server) -> Callable[[], asyncio.BaseProtocol]:
        """The factory that an event loop calls for each connection."""

        def protocol() -> asyncio.BaseProtocol:
            if len(server.connections) >= self._most:
                current = [one for one in server.connections if one.transport is not None]
                if len(current) >= self._most:
                    idle = next((one for one in current if one not in self._busy), None)
                    if idle is None:
                        return _Closed()
                    idle.force_close()
            return server()

        return protocol

    def middleware(self) -> Any:
        """Marks a connection as busy while one of its requests is in work."""
        from aiohttp import web

        @web.middleware
        async def count(request: web.Request, handler: _Handler) -> web.StreamResponse:
            connection = request.protocol
            self._busy.add(connection)
            try:
                return await handler(request)
            finally:
                self._busy.discard(connection)

        return count


class _Closed(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport.close()
