"""Requests that a web page of someone else may have sent."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from evsys_runtime.serving.server import is_loopback

if TYPE_CHECKING:
    from aiohttp import web

__all__ = ["foreign_page"]


def foreign_page(request: web.Request) -> str | None:
    """Why a request to a server of this machine alone may come from someone else's web page; None if it can't.

    The listening address isn't enough: a page may post to it from the user's browser, which then names the page as the
    origin, or may let its own name lead to it, which then is in `Host`.
    """
    hosts = request.headers.getall("Host", [])
    if len(hosts) != 1 or not _is_loopback_url(f"//{hosts[0]}"):
        return "the Host is not a name or address of this machine"
    if not all(map(_is_loopback_url, request.headers.getall("Origin", []))):
        return "the Origin is not a page of this machine"
    return None


@lru_cache(maxsize=128)
def _is_loopback_url(url: str) -> bool:
    try:
        return is_loopback(urlsplit(url).hostname or "")
    except ValueError:
        return False
