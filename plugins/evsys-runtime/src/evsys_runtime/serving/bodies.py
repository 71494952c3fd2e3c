"""Bodies of requests, read no further and waited for no longer than a server allows."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from aiohttp import web

__all__ = ["PART_SECONDS", "BodyError", "read_bytes"]

PART_SECONDS = 30.0
"""Longest silence within a body."""


class BodyError(Exception):
    """A body that can't be taken: the HTTP status, a message for the client, and as much of it as was read."""

    def __init__(self, status: int, message: str, beginning: bytes = b"") -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.beginning = beginning


async def read_bytes(request: web.Request, most: int, *, part_seconds: float = PART_SECONDS) -> bytes:
    """The body of a request, unpacked.

    Args:
        request: the request.
        most: longest body in bytes, regardless of the application allows.
        part_seconds: longest silence within it.

    Raises:
        BodyError: it is longer (413), stops coming (408), or isn't compressed as its headers say (400).
    """
    from aiohttp import web

    body, content = bytearray(), request.content
    try:
        while not content.is_eof():
            try:
                body += await asyncio.wait_for(content.readany(), part_seconds)
            except TimeoutError as exc:
                message = f"the body stopped coming: nothing within {part_seconds:g} seconds"
                raise BodyError(408, message, bytes(body)) from exc
            _check_length(body, most)
        body += content.read_nowait()  # a short body has come whole, with its headers: nothing to wait for
        _check_length(body, most)
        return bytes(body)
    except web.RequestPayloadError as exc:
        raise BodyError(400, "the body can't be read: it isn't compressed as stated in its headers") from exc


def _check_length(body: bytearray, most: int) -> None:
    if len(body) > most:
        raise BodyError(413, f"the body is longer than {most} bytes", bytes(body))
