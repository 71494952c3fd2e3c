"""A team's server over HTTP: requests with a key, and answers as JSON or bytes."""

from __future__ import annotations

import http.client
import json
import os
import ssl
from collections.abc import Mapping, Sequence
from typing import Any, Self
from urllib.parse import quote, urlencode, urlsplit

from evsys.errors import ConfigError, StoreError

__all__ = ["KEY", "PROJECT", "URL", "Remote", "RemoteRefusedError"]

URL, KEY, PROJECT = "EVSYS_API_URL", "EVSYS_API_KEY", "EVSYS_API_PROJECT"

SECONDS = 30.0
"""How long one answer may take."""

_REFUSED = frozenset({400, 401, 403, 404, 409, 413, 415, 507})


class RemoteRefusedError(ConfigError):
    """A request that the server refuses, and will refuse again. `status` is that of HTTP."""

    def __init__(self, message: str, *, hint: str | None = None, status: int = 400) -> None:
        super().__init__(message, hint=hint)
        self.status = status


class Remote:
    """A team's server. Not for threads at once.

    Args:
        url: its address, without `/api/v1`.
        key: a key.
        project: the project that requests are about; by default the one that the key is for.

    Raises:
        ConfigError: the address isn't one.
    """

    def __init__(self, url: str, key: str, project: str | None = None) -> None:
        parts = urlsplit(url if "//" in url else f"//{url}")
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            raise ConfigError(
                f"{url!r} is not the address of a server", hint="write https://HOST or http://HOST:PORT"
            )
        if parts.username or parts.query:
            raise ConfigError("the address of a server holds no key", hint="put the key into EVSYS_API_KEY")
        self.shown = f"{parts.scheme}://{parts.netloc}"
        self._secure = parts.scheme == "https"
        self._netloc = parts.netloc
        self._path = parts.path.rstrip("/") + "/api/v1"
        self._headers = {"Authorization": f"Bearer {key}"}
        self._project = project
        self._connection: http.client.HTTPConnection | None = None

    @classmethod
    def from_environment(
        cls, url: str | None = None, project: str | None = None, *, key_env: str = KEY
    ) -> Self:
        """The server that the environment names, or that of `url`.

        Raises:
            ConfigError: the environment lacks its address or the key.
        """
        url, key = url or os.environ.get(URL), os.environ.get(key_env)
        if not url or not key:
            raise ConfigError(
                f"{key_env if url else URL} isn't set",
                hint=f"set {URL} and {key_env} to the address and a key of your team's server",
            )
        return cls(url, key, project or os.environ.get(PROJECT) or None)

    @property
    def project(self) -> str:
        """The project that requests are about.

        Raises:
            ConfigError: the key is for all projects, and none was named.
        """
        if self._project is None:
            found = self.ask("GET", "/whoami")["project"]
            if found is None:
                raise ConfigError("the key is for all projects, and none is named", hint="name one")
            self._project = str(found)
        return self._project

    def of_project(self, *parts: str) -> str:
        """The path of something in the project."""
        return "/projects/" + "/".join(quote(part, safe="") for part in (self.project, *parts))

    def ask(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        *,
        json_body: Mapping[str, Any] | None = None,
        query: Mapping[str, str | int | Sequence[str]] | None = None,
        seconds: float = SECONDS,
    ) -> Any:
        """The JSON answer to a request; its body is bytes or JSON.

        Raises:
            RemoteRefusedError: the server refuses it, and will again.
            ConfigError: another kind of server answers.
            StoreError: the server can't be reached, or fails; another try may succeed.
        """
        text = self.fetch(method, path, body, json_body=json_body, query=query, seconds=seconds)
        try:
            return json.loads(text)
        except ValueError:
            raise ConfigError(
                f"{self.shown} doesn't answer as an evsys dashboard does", hint="check its address"
            ) from None

    def fetch(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        *,
        json_body: Mapping[str, Any] | None = None,
        query: Mapping[str, str | int | Sequence[str]] | None = None,
        seconds: float = SECONDS,
    ) -> bytes:
        """The bytes of an answer; see `ask`."""
        headers = dict(self._headers)
        if json_body is not None:
            body, headers["Content-Type"] = json.dumps(json_body).encode(), "application/json"
        elif body is not None:
            headers["Content-Type"] = "application/octet-stream"
        address = self._path + path + (f"?{urlencode(query, doseq=True)}" if query else "")
        try:
            if self._connection is None:
                self._connection = self._connect()
            self._connection.timeout = seconds
            if self._connection.sock is not None:
                self._connection.sock.settimeout(seconds)
            self._connection.request(method, address, body=body, headers=headers)
            response = self._connection.getresponse()
            text = response.read()
        except (OSError, http.client.HTTPException) as exc:
            self.close()
            reason = str(exc) or type(exc).__name__
            raise StoreError(f"{self.shown} can't be reached: {reason}", reachable=False) from exc
        if response.status == 200:
            return text
        message, hint = _refusal(text)
        message = f"{self.shown} answers {response.status}: {message}"
        if response.status in _REFUSED:
            raise RemoteRefusedError(message, hint=hint, status=response.status)
        raise StoreError(message, hint=hint, reachable=False)

    def close(self) -> None:
        """Close the connection. Safe to call twice."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _connect(self) -> http.client.HTTPConnection:
        if self._secure:
            return http.client.HTTPSConnection(self._netloc, context=ssl.create_default_context())
        return http.client.HTTPConnection(self._netloc)


def _refusal(text: bytes) -> tuple[str, str | None]:
    """The message and hint of a refused request."""
    try:
        error = json.loads(text)["error"]
        return str(error["message"]), error.get("hint")
    except (ValueError, TypeError, KeyError, AttributeError):
        return text[:200].decode("utf-8", "replace") or "nothing", None
