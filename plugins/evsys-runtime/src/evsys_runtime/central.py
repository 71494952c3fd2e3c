"""A team's server, as the commands on past experiments ask it with `--central`.

Its HTTP API is documented and versioned, so nothing of the server need be installed.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import ssl
import time
import zlib
from collections.abc import Mapping
from pathlib import Path
from threading import Thread
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode, urlsplit

import attrs

from evsys.errors import ConfigError, StoreError
from evsys_record import make_directory
from evsys_record.files import storing
from evsys_record.past import RecordFile
from evsys_runtime.proxies import proxy_of

__all__ = ["KEY", "PROJECT", "URL", "CentralStore", "RecordListing", "central_store"]

URL, KEY, PROJECT = "EVSYS_API_URL", "EVSYS_API_KEY", "EVSYS_API_PROJECT"

SECONDS = 60.0
"""Longest wait for an answer."""

MOST_BYTES = 128 << 20
"""Longest answer, unpacked."""

_EVERY = "-"
_BLOCK = 1 << 16
_PLACES = ("directory", "records", "index")
"""Fields of answers with a path from the project's folder."""


_MOST_PART = 8 << 20
"""Bytes of a file in one answer."""


@attrs.frozen(kw_only=True)
class RecordListing:
    """The files of a record that its plots are made of: paths from the experiment's folder."""

    experiment_id: str
    files: tuple[RecordFile, ...]


class _Response(NamedTuple):
    status: int
    kind: str
    body: bytes
    elsewhere: str | None


def central_store(records: Path | None) -> CentralStore:
    """The server that the environment names.

    Args:
        records: the folder given with `--records`, which `--central` excludes.

    Raises:
        ConfigError: there is a folder; or the address or the key isn't set, or the address isn't one.
    """
    if records is not None:
        raise ConfigError("--central and --records exclude each other")
    found = CentralStore.from_environment()
    if found is None:
        absent = " and ".join(name for name in (URL, KEY) if not os.environ.get(name))
        raise ConfigError(
            f"--central: {absent} {'are' if ' and ' in absent else 'is'} not set",
            hint=f"set {URL} and {KEY} to the address and a key of your team's server",
        )
    return found


@attrs.frozen(kw_only=True)
class CentralStore:
    """A team's server.

    Attributes:
        url: its address, without `/api/v1`.
        key: with the scope `read`; never part of a message.
        project: the one asked about; all that the key may read without it.
    """

    url: str
    key: str = attrs.field(repr=False)
    project: str | None = None

    @classmethod
    def from_environment(cls) -> CentralStore | None:
        """The server of `EVSYS_API_URL`, `EVSYS_API_KEY` and `EVSYS_API_PROJECT`; None without the first two.

        Raises:
            ConfigError: the address isn't one, or the key can't be sent.
        """
        url, key = os.environ.get(URL), os.environ.get(KEY)
        if not url or not key:
            return None
        parts = urlsplit(url if "//" in url else f"//{url}")
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            raise ConfigError(
                f"{URL}: {url!r} is not the address of a server",
                hint="write https://HOST or http://HOST:PORT",
            )
        if parts.username or parts.query or parts.fragment:
            raise ConfigError(f"{URL} holds no key", hint=f"put the key into {KEY}")
        if not (key.isascii() and key.isprintable()):
            raise ConfigError(f"{KEY} has characters that no key has", hint="copy the key again")
        return cls(url=url.rstrip("/"), key=key.strip(), project=os.environ.get(PROJECT) or None)

    def ask[T](
        self,
        cls: type[T],
        question: str,
        parameters: Mapping[str, Any] | None = None,
        *,
        body: Mapping[str, Any] | None = None,
        seconds: float | None = None,
    ) -> T:
        """The answer of an endpoint below `/memory`, as an object.

        Args:
            cls: of the object.
            question: the endpoint's name.
            parameters: of the address; those that are None, False or empty are left out.
            body: sent as JSON, by POST.
            seconds: longest wait.

        Raises:
            ConfigError: the server refuses the question, and will again.
            StoreError: it can't be reached, takes too long, or answers something else.
        """
        from evsys_record.result_trees import read_as

        tree = self._tree(question, parameters or {}, body, seconds or SECONDS)
        for name in _PLACES:
            if isinstance(tree.get(name), str):
                tree[name] = _place_here(tree[name])
        try:
            return read_as(cls, tree)
        except ConfigError as exc:
            raise StoreError(
                f"{self.url} answers {question!r} in a form that this version doesn't read: {exc.message}",
                hint=self._versions(),
            ) from exc

    def fetch(self, experiment: str, experiments: Path) -> Path:
        """Fetch the files of a record that its plots are made of.

        Args:
            experiment: named as for the commands.
            experiments: a folder that the experiment's own is made in.

        Returns:
            The experiment's folder.

        Raises:
            ConfigError, StoreError: as for `ask`; or the server names a file outside of the record.
        """
        found = self.ask(RecordListing, "record", {"experiment": experiment})
        folder = experiments / _safe(found.experiment_id, self.url)
        for file in found.files:
            path = make_directory((folder / _safe(file.path, self.url)).parent) / Path(file.path).name
            with storing(path), path.open("wb") as stream:
                while left := file.bytes - stream.tell():
                    asked = {
                        "experiment": found.experiment_id,
                        "file": file.path,
                        "place": stream.tell(),
                        "size": min(left, _MOST_PART),
                    }
                    data = self._checked("record/file", asked, None, SECONDS).body
                    if not 0 < len(data) <= left:
                        raise StoreError(
                            f"{self.url} sends another part of {file.path} than it was asked for"
                        )
                    stream.write(data)
        return folder

    def _tree(
        self, question: str, parameters: Mapping[str, Any], body: Mapping[str, Any] | None, seconds: float
    ) -> dict[str, Any]:
        response = self._checked(question, parameters, body, seconds)
        tree = _tree_of(response)
        if tree is None:
            raise self._not_a_dashboard(response)
        return tree

    def _checked(
        self, question: str, parameters: Mapping[str, Any], body: Mapping[str, Any] | None, seconds: float
    ) -> _Response:
        """A response of status 200."""
        plain = {
            name: "true" if value is True else value
            for name, value in parameters.items()
            if value is not None and value is not False and value != ()
        }
        path = f"/projects/{quote(self.project or _EVERY, safe='')}/memory/{question}"
        if plain:
            path += "?" + urlencode(plain, doseq=True, errors="replace")
        response = self._request(path, body, seconds)
        if response.status == 200:
            return response
        error = (_tree_of(response) or {}).get("error")
        if not isinstance(error, dict):
            raise self._not_a_dashboard(response)
        message, hint = str(error.get("message")), error.get("hint")
        if response.status == 401:
            raise ConfigError(f"{self.url} refuses the key in {KEY}: {message}", hint=hint)
        if response.status == 403:
            raise ConfigError(
                f"{self.url}: {message}", hint=hint or f"use a key with the scope `read` in {KEY}"
            )
        if response.status in {404, 405}:
            raise ConfigError(f"{self.url} can't answer {question!r}: {message}", hint=self._versions())
        if response.status < 500 and response.status != 429:
            raise ConfigError(message, hint=hint)
        raise StoreError(f"{self.url} answers {response.status}: {message}", hint=hint)

    def _versions(self) -> str:
        """A hint with the versions of both sides."""
        from importlib.metadata import version

        try:
            found = (_tree_of(self._request("/health", None, 5.0)) or {}).get("version")
        except StoreError:
            found = None
        return f"the server has version {found or 'unknown'}, this is version {version('evsys-runtime')}"

    def _not_a_dashboard(self, response: _Response) -> StoreError:
        what = f"{response.status}, {response.kind or 'without a type'}"
        if response.elsewhere is not None:
            return StoreError(
                f"{self.url} sends elsewhere ({what}), which isn't followed with a key",
                hint=f"set {URL} to the address of the server itself: it names {response.elsewhere}",
            )
        return StoreError(
            f"{self.url} doesn't answer as an evsys dashboard does ({what})",
            hint=f"check {URL}, and any proxy in between",
        )

    def _request(self, path: str, body: Mapping[str, Any] | None, seconds: float) -> _Response:
        """A response, within so many seconds in all.

        Raises:
            StoreError: there is none, or it is too long.
        """
        found: list[_Response | Exception] = []
        connection, target, headers = self._connection(path, seconds)
        sent = None if body is None else json.dumps(body).encode()
        if sent is not None:
            headers["Content-Type"] = "application/json"

        def exchange() -> None:
            try:
                found.append(_exchange(connection, target, headers, sent, time.monotonic() + seconds))
            except (OSError, http.client.HTTPException, ValueError, zlib.error) as exc:
                found.append(exc)

        # In a thread of its own, since neither the search for the host's address nor slow headers have a deadline.
        thread = Thread(target=exchange, name="evsys-central", daemon=True)
        thread.start()
        thread.join(seconds)
        if not found or isinstance(found[0], TimeoutError):
            raise StoreError(f"{self.url} doesn't answer within {seconds:g} seconds", hint="try again later")
        outcome = found[0]
        if isinstance(outcome, Exception):
            reason = str(outcome) or type(outcome).__name__
            raise StoreError(f"{self.url} can't be reached: {reason}", hint=f"check {URL}") from outcome
        return outcome

    def _connection(
        self, path: str, seconds: float
    ) -> tuple[http.client.HTTPConnection, str, dict[str, str]]:
        """A connection, maybe to a proxy, with the target and the headers of a request."""
        parts = urlsplit(self.url)
        target = f"{parts.path}/api/v1{path}"
        headers = {
            "Authorization": f"Bearer {self.key}",
            "Accept": "application/json",
            "Accept-Encoding": "gzip, deflate",
            "Connection": "close",
        }
        proxy, credentials = proxy_of(self.url)
        if proxy is None:
            return _connect(parts.scheme, parts.netloc, seconds), target, headers
        connection = _connect(urlsplit(proxy).scheme, urlsplit(proxy).netloc, seconds)
        own = {} if credentials is None else {"Proxy-Authorization": credentials}
        if parts.scheme == "http":
            return connection, f"http://{parts.netloc}{target}", {**headers, **own}
        secure = _connect("https", urlsplit(proxy).netloc, seconds)
        secure.set_tunnel(parts.hostname or "", parts.port or 443, headers=own)
        return secure, target, headers


def _connect(scheme: str, netloc: str, seconds: float) -> http.client.HTTPConnection:
    try:
        if scheme == "https":
            return http.client.HTTPSConnection(netloc, timeout=seconds, context=ssl.create_default_context())
        return http.client.HTTPConnection(netloc, timeout=seconds)
    except (http.client.InvalidURL, ValueError) as exc:
        raise ConfigError(f"{netloc!r} is not the address of a server: {exc}") from exc


def _exchange(
    connection: http.client.HTTPConnection,
    target: str,
    headers: Mapping[str, str],
    body: bytes | None,
    until: float,
) -> _Response:
    with contextlib.closing(connection):
        connection.request("GET" if body is None else "POST", target, body=body, headers=dict(headers))
        with contextlib.closing(connection.getresponse()) as response:
            return _read(response, until)


def _read(response: http.client.HTTPResponse, until: float) -> _Response:
    packed = response.headers.get("Content-Encoding", "identity") != "identity"
    unpacking = zlib.decompressobj(zlib.MAX_WBITS | 32) if packed else None  # gzip or zlib, as its head says
    parts: list[bytes] = []
    left = MOST_BYTES
    while data := response.read1(_BLOCK):
        part = data if unpacking is None else unpacking.decompress(data, left + 1)
        left -= len(part)
        if left < 0 or (unpacking is not None and unpacking.unconsumed_tail):
            raise ValueError(f"its answer has more than {MOST_BYTES >> 20} MiB")
        if time.monotonic() > until:
            raise TimeoutError
        parts.append(part)
    if unpacking is not None and not unpacking.eof:
        raise http.client.IncompleteRead(b"".join(parts[:1]))
    if not packed and response.length:
        raise http.client.IncompleteRead(b"", response.length)
    kind = response.headers.get_content_type() if "Content-Type" in response.headers else ""
    return _Response(response.status, kind, b"".join(parts), response.headers.get("Location"))


def _tree_of(response: _Response) -> dict[str, Any] | None:
    """The JSON object that a response holds."""
    if response.kind != "application/json":
        return None
    try:
        tree = json.loads(response.body)
    except (ValueError, RecursionError):
        return None
    return tree if isinstance(tree, dict) else None


def _safe(path: str, url: str) -> str:
    """A path from a folder that leads into it."""
    parts = path.split("/")
    if any(part in {"", ".", ".."} or part[0] == "." or "\\" in part or "\0" in part for part in parts):
        raise StoreError(f"{url} names {path!r}, which isn't a file of a record", hint=f"check {URL}")
    return path


def _place_here(path: str) -> str:
    """A path from the project's folder as one of this machine, if it is there."""
    from evsys_runtime.command_records import project_folder

    place = project_folder() / path
    return str(place) if place.exists() else path
