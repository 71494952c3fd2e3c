"""The proxy that the environment names for an address."""

from __future__ import annotations

import base64
from urllib.parse import unquote, urlsplit, urlunsplit

__all__ = ["proxy_of"]


def proxy_of(url: str) -> tuple[str | None, str | None]:
    """The proxy for an address by `HTTP_PROXY`, `HTTPS_PROXY`, `ALL_PROXY` and `NO_PROXY`, and the header value with its credentials.

    `.netrc` isn't read, as libraries do on their own: its password would replace a key.
    """
    from urllib.request import getproxies, proxy_bypass

    parts = urlsplit(url)
    proxies = getproxies()
    proxy = proxies.get(parts.scheme) or proxies.get("all")
    if not proxy or proxy_bypass(parts.hostname or ""):
        return None, None
    address = urlsplit(proxy if "://" in proxy else f"http://{proxy}")
    credentials = None
    if address.username is not None:
        text = f"{unquote(address.username)}:{unquote(address.password or '')}"
        credentials = "Basic " + base64.b64encode(text.encode()).decode()
    return urlunsplit(address._replace(netloc=address.netloc.rpartition("@")[2])), credentials
