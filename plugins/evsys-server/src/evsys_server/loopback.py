"""A server without a key is this machine's alone: web pages that lead a browser to it are sent away."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from aiohttp import web

from evsys_runtime.serving.errors import ApiError, body_of
from evsys_runtime.serving.origins import foreign_page
from evsys_server.responses import document_response

__all__ = ["loopback_only"]

type _Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@web.middleware
async def loopback_only(request: web.Request, handler: _Handler) -> web.StreamResponse:
    """Refuse what a web page of someone else may have sent."""
    why = foreign_page(request)
    return await handler(request) if why is None else _refuse(request, why)


def _refuse(request: web.Request, why: str) -> web.Response:
    message = f"{why}, and the server has no key; call it by localhost, or start it with a key"
    if request.path.startswith("/v1/"):  # OpenAI clients read another form
        return document_response(body_of(ApiError(403, message, code="forbidden")), status=403)
    return document_response({"error": message, "category": "user"}, status=403)
