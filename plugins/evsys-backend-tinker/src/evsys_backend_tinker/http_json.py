"""The few plain HTTP calls that evsys makes itself: is the server there, what does it offer, how long does it keep
a state.

They are kept apart from the official client, which retries for minutes where an answer within seconds is wanted. A
redirect is followed by none of them: a key goes to the address given and nowhere else. Proxies of the environment
are used, as the client uses them.
"""

from __future__ import annotations

import http.client
import json
import socket
import ssl
import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

import attrs

__all__ = ["Answer", "JsonApi", "UnreachableError", "error_in_body"]

_MOST = 64 << 20  # bytes of an answer: a tokenizer may have some megabytes


class UnreachableError(Exception):
    """No HTTP answer came; the text says why."""


@attrs.frozen(kw_only=True)
class Answer:
    """Status and body of an answer."""

    status: int
    body: bytes

    @property
    def ok(self) -> bool:
        """True for the 200s."""
        return 200 <= self.status < 300

    def json(self) -> Any:
        """The body as JSON; None where it is none."""
        try:
            return json.loads(self.body)
        except ValueError:
            return None

    @property
    def reason(self) -> str:
        """The status, and what the server says is wrong."""
        wrong = error_in_body(self.json())
        return str(self.status) if wrong is None else f"{self.status}: {wrong}"


def error_in_body(tree: Any) -> str | None:
    """The error in the JSON body of an answer; None if there isn't one."""
    if not isinstance(tree, Mapping):
        return None
    return next((tree[key] for key in ("error", "detail", "message") if isinstance(tree.get(key), str)), None)


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        """Follow none: the answer is the redirect itself."""


@attrs.frozen(kw_only=True)
class JsonApi:
    """A server's HTTP interface. Calls block; each opens a connection of its own, so any thread may make one.

    `base_url` ends before `/api/v1`; `key` goes along as `X-API-Key` where there is one.
    """

    base_url: str
    key: str | None = attrs.field(default=None, repr=False)

    def get(self, path: str, *, seconds: float) -> Answer:
        """GET `path`, such as `/api/v1/healthz`."""
        return self.call("GET", path, seconds=seconds)

    def post(self, path: str, tree: Any, *, seconds: float) -> Answer:
        """POST a JSON body."""
        return self.call("POST", path, tree, seconds=seconds)

    def call(self, method: str, path: str, tree: Any = None, *, seconds: float) -> Answer:
        """Make a call. `seconds` bounds the connection and each wait for bytes.

        Raises:
            UnreachableError: there was no HTTP answer.
        """
        parts = urlsplit(self.base_url)
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            raise UnreachableError("it is not an address that starts with http:// or https://")
        headers = {"Accept": "application/json"}
        body = None
        if tree is not None:
            body = json.dumps(tree).encode()
            headers["Content-Type"] = "application/json"
        if self.key is not None:
            headers["X-API-Key"] = self.key
        request = urllib.request.Request(  # noqa: S310 - the scheme is looked at above
            self.base_url.rstrip("/") + path, data=body, headers=headers, method=method
        )
        opener = urllib.request.build_opener(_NoRedirects)
        try:
            with opener.open(request, timeout=seconds) as response:
                return Answer(status=response.status, body=response.read(_MOST))
        except urllib.error.HTTPError as error:
            with error:
                return Answer(status=error.code, body=error.read(_MOST))
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise UnreachableError(_reason(error)) from error


def _reason(error: Exception) -> str:
    cause = error.reason if isinstance(error, urllib.error.URLError) else error
    if isinstance(cause, TimeoutError):
        return "it doesn't answer"
    if isinstance(cause, ConnectionRefusedError):
        return "nothing listens there"
    if isinstance(cause, socket.gaierror):
        return "its name isn't known"
    if isinstance(cause, ssl.SSLError):
        return f"its certificate or its TLS isn't accepted ({cause.reason or cause})"
    return f"{type(cause).__name__}: {cause}" if str(cause) else type(cause).__name__
