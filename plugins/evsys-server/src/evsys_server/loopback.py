"""A server without a key is this machine's alone: web pages that lead a browser to it are sent away."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from urllib.parse import urlsplit

from aiohttp import web

from evsys_runtime.serving.errors import ApiError, body_of
from evsys_runtime.serving.server import is_loopback
from evsys_server.responses import document_response

__all__ = ["loopback_only"]

type _Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@web.middleware
async def loopback_only(request: web.Request, handler: _Handler) -> web.StreamResponse:
    """Refuse what a web page of someone else may have sent.

    The listening address isn't enough: a page may post to it from the user's browser, which then names the page as the
    origin, or may let its own name lead to it, which then is in `Host`.
    """
    hosts = request.headers.getall("Host", [])
    if len(hosts) != 1 or not _is_loopback_url(f"//{hosts[0]}"):
        return _refused(request, "the Host is not a name or address of this machine")
    if not all(map(_is_loopback_url, request.headers.getall("Origin", []))):
        return _refused(request, "the Origin is not a page of this machine")
    return await handler(request)


def _is_loopback_url(url: str) -> bool:
    try:
        return is_loopback(urlsplit(url).hostname or "")
    except ValueError:
        return False


def _refused(request: web.Request, why: str) -> web.Response:
    message = f"{why}, and the server has no key; call it by localhost, or start it with a key"
    if request.path.startswith("/v1/"):  # OpenAI clients read another form
        return document_response(body_of(ApiError(403, message, code="forbidden")), status=403)
    return document_response({"error": message, "category": "user"}, status=403)
