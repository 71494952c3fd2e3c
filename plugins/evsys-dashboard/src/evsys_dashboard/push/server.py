"""A server as the target of records, over HTTP."""

from __future__ import annotations

import contextlib
import http.client
import json
import ssl
from collections.abc import Sequence
from typing import Any
from urllib.parse import quote, urlsplit

from evsys.errors import ConfigError, StoreError
from evsys_dashboard.ingest.pieces import Held, Piece, pack

__all__ = ["ServerTarget"]

_SECONDS = 30.0
_REFUSED = frozenset({400, 401, 403, 404, 409, 413, 415})


class ServerTarget:
    """A team's server. Not for threads at once.

    Args:
        url: its address, without `/api/v1`.
        key: a key with the scope `write`.
        project: the project that records go into; by default the one that the key is for.

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

    @property
    def project(self) -> str:
        """The project that records go into.

        Raises:
            ConfigError: the key is for all projects, and none was named.
        """
        if self._project is None:
            found = self._ask("GET", "/whoami")["project"]
            if found is None:
                raise ConfigError("the key is for all projects, and none is named", hint="name one")
            self._project = str(found)
        return self._project

    def held(self, experiment: str) -> Sequence[Held]:
        """The part it has of each file of an experiment."""
        return _held_parts(self._ask("GET", self._of(experiment, "files")))

    def take(self, experiment: str, pieces: Sequence[Piece]) -> Sequence[Held]:
        """Send it a batch."""
        return _held_parts(self._ask("POST", self._of(experiment, "batch"), pack(pieces)))

    def close(self) -> None:
        """Close the connection. Safe to call twice."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _of(self, experiment: str, what: str) -> str:
        return f"/projects/{quote(self.project, safe='')}/experiments/{quote(experiment, safe='')}/{what}"

    def _ask(self, method: str, path: str, body: bytes | None = None) -> Any:
        """The answer to a request.

        Raises:
            ConfigError: the server refuses it, and will again.
            StoreError: the server can't be reached, or fails; another try may succeed.
        """
        headers = dict(self._headers)
        if body is not None:
            headers["Content-Type"] = "application/octet-stream"
        try:
            if self._connection is None:
                self._connection = self._connect()
            self._connection.request(method, self._path + path, body=body, headers=headers)
            response = self._connection.getresponse()
            text = response.read()
        except (OSError, http.client.HTTPException) as exc:
            self.close()
            raise StoreError(f"{self.shown} can't be reached: {str(exc) or type(exc).__name__}") from exc
        if response.status == 200:
            with contextlib.suppress(ValueError):
                return json.loads(text)
            raise ConfigError(
                f"{self.shown} doesn't answer as an evsys dashboard does", hint="check its address"
            )
        message = f"{self.shown} answers {response.status}: {_message(text)}"
        if response.status in _REFUSED:
            raise ConfigError(message)
        raise StoreError(message)

    def _connect(self) -> http.client.HTTPConnection:
        if self._secure:
            return http.client.HTTPSConnection(
                self._netloc, timeout=_SECONDS, context=ssl.create_default_context()
            )
        return http.client.HTTPConnection(self._netloc, timeout=_SECONDS)


def _held_parts(answer: Any) -> list[Held]:
    return [Held(file=each["file"], size=each["size"], digest=each["digest"]) for each in answer["files"]]


def _message(text: bytes) -> str:
    try:
        return str(json.loads(text)["error"]["message"])
    except (ValueError, TypeError, KeyError):
        return text[:200].decode("utf-8", "replace") or "nothing"
