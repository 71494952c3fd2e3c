"""The control channel of a running experiment: the address of its process, and clients for it.

Requests and replies are JSON objects, one line each; replies come in the order of the requests. The address is in
`.control.json` of the experiment's folder while a process holds the experiment, readable by its user alone.
"""

from __future__ import annotations

import asyncio
import contextlib
import getpass
import json
import os
import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import attrs

from evsys.errors import EvsysError, StoreError
from evsys_record.encoding import encode_record, utf8
from evsys_record.files import FORMAT, read_json, write_atomic
from evsys_record.lock import Holder

__all__ = [
    "CONTROL",
    "FRESH_SECONDS",
    "MAX_REPLY",
    "MAX_REQUEST",
    "REPLY_SECONDS",
    "Address",
    "Control",
    "ControlError",
    "read_address",
    "remove_address",
    "send_request",
    "user_name",
    "write_address",
]

CONTROL = ".control.json"
"""The file of an experiment with the address of its process."""

MAX_REQUEST = 1 << 16
"""Bytes of the longest request, its line feed included."""

MAX_REPLY = 1 << 24
"""Bytes of the longest reply."""

FRESH_SECONDS = 0.1
"""The age that a status may have."""

REPLY_SECONDS = 10.0
"""How long a client waits for a reply."""


class ControlError(EvsysError):
    """No process listens, or it did not reply."""


@attrs.frozen(kw_only=True)
class Address:
    """Where an experiment's process listens.

    Attributes:
        experiment_id: the experiment.
        holder: the process; its `token` is empty.
        socket: the path of its Unix socket, or None.
        port: otherwise its port on 127.0.0.1.
        token: expected in every request to that port; None for a socket, which the file system protects.
    """

    experiment_id: str
    holder: Holder
    socket: str | None = None
    port: int | None = None
    token: str | None = None

    @property
    def pid(self) -> int:
        """The process."""
        return self.holder.pid


def write_address(directory: Path, address: Address) -> None:
    """Put an address on record, readable by its user alone.

    Raises:
        StoreError: the file can't be written.
    """
    tree = {
        "format": FORMAT,
        "experiment_id": address.experiment_id,
        "socket": address.socket,
        "port": address.port,
        "token": address.token,
        "pid": address.pid,
        **{name: getattr(address.holder, name) for name in ("host", "boot", "process_started", "since")},
    }
    write_atomic(directory / CONTROL, encode_record(tree) + "\n", mode=0o600)


def read_address(directory: Path) -> Address:
    """Where the process of an experiment listens.

    Args:
        directory: the experiment's folder.

    Raises:
        ControlError: no process holds the experiment, it is on another machine, or it has died.
        StoreError: the file can't be read.
    """
    name = directory.absolute().name
    if not (directory / CONTROL).exists():
        raise ControlError(
            f"{name} is not running", hint=f"if it is incomplete, `evsys resume {name}` continues it"
        )
    tree = read_json(directory / CONTROL)
    try:
        holder = Holder(**{key: tree[key] for key in ("pid", "host", "since", "boot", "process_started")})
        own = {key: tree[key] for key in ("experiment_id", "socket", "port", "token")}
        address = Address(holder=holder, **own)
    except (KeyError, TypeError) as error:
        raise StoreError(f"{directory / CONTROL} lacks {error}", hint="remove it") from error
    if holder.dead:
        raise ControlError(
            f"the process of {name} is gone: {holder}", hint=f"to continue it: evsys resume {name}"
        )
    if not holder.same_machine:
        raise ControlError(f"{name} runs on {holder.host}", hint="send the request from that machine")
    return address


class Control:
    """A connection to a running experiment, for asyncio. Requests are sent one at a time, in the order of the calls."""

    def __init__(
        self, address: Address, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, by: str | None
    ) -> None:
        """Use `Control.open`."""
        self.address = address
        self._reader = reader
        self._writer = writer
        self._by = by or user_name()
        self._turn = asyncio.Lock()
        self._status: dict[str, Any] | None = None
        self._fresh_until = 0.0

    @classmethod
    async def open(cls, directory: str | Path, *, by: str | None = None) -> Self:
        """Connect to the process of an experiment.

        Args:
            directory: the experiment's folder.
            by: who asks, for the record; by default the name of the user.

        Raises:
            ControlError: no process listens.
            StoreError: the address can't be read.
        """
        folder = Path(directory)
        address = await asyncio.to_thread(read_address, folder)
        with _unreachable(address):
            if address.socket is not None:
                reader, writer = await asyncio.open_unix_connection(address.socket, limit=MAX_REPLY)
            else:
                reader, writer = await asyncio.open_connection("127.0.0.1", address.port, limit=MAX_REPLY)
        return cls(address, reader, writer, by)

    async def request(self, request: Mapping[str, Any], *, seconds: float = REPLY_SECONDS) -> dict[str, Any]:
        """Send a request, and return the reply; its `ok` says whether it was carried out.

        A status asked for again within `FRESH_SECONDS` is the same one, unless something else was requested in between.

        Args:
            request: `{"request": "status"}` and so on; see docs/reference/control.md.
            seconds: to wait for the reply.

        Raises:
            ControlError: no reply came. The request may have been carried out all the same. Close the connection then.
        """
        asks_status = request.get("request") == "status"
        if asks_status and self._status is not None and time.monotonic() < self._fresh_until:
            return self._status
        line = _line(request, self.address, self._by)
        async with self._turn:
            self._status = None
            with _unreachable(self.address):
                async with asyncio.timeout(seconds):
                    self._writer.write(line)
                    await self._writer.drain()
                    found = _reply(await self._reader.readline(), self.address)
            if asks_status:
                self._status, self._fresh_until = found, time.monotonic() + FRESH_SECONDS
        return found

    async def close(self) -> None:
        """Disconnect. Safe to call twice."""
        self._writer.close()
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


def send_request(
    directory: str | Path,
    request: Mapping[str, Any],
    *,
    by: str | None = None,
    seconds: float = REPLY_SECONDS,
) -> dict[str, Any]:
    """Send one request to the process of an experiment, and return the reply. Blocking.

    Args:
        directory: the experiment's folder.
        request: as for `Control.request`.
        by: who asks, for the record; by default the name of the user.
        seconds: to wait for the reply.

    Raises:
        ControlError: no process listens, or no reply came.
        StoreError: the address can't be read.
    """
    address = read_address(Path(directory))
    line = _line(request, address, by or user_name())
    with _unreachable(address), _connect(address, seconds) as connection:
        connection.sendall(line)
        with connection.makefile("rb") as stream:
            reply = stream.readline(MAX_REPLY)
    return _reply(reply, address)


def user_name() -> str:
    """The name of the user, for requests; `unknown` where the system has none."""
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return "unknown"


def _connect(address: Address, seconds: float) -> socket.socket:
    if address.socket is None:
        return socket.create_connection(("127.0.0.1", address.port or 0), timeout=seconds)
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.settimeout(seconds)
        connection.connect(address.socket)
    except BaseException:
        connection.close()
        raise
    return connection


@contextmanager
def _unreachable(address: Address) -> Iterator[None]:
    try:
        yield
    except PermissionError as error:
        raise ControlError(
            f"{address.experiment_id} belongs to another user", hint="send the request as that user"
        ) from error
    except (OSError, ValueError) as error:
        timed_out = isinstance(error, TimeoutError)
        words = "did not reply in time" if timed_out else f"does not reply ({error})"
        raise ControlError(
            f"the process of {address.experiment_id}, {address.pid}, {words}",
            hint="see its log; the request may have been carried out" if timed_out else None,
        ) from error


def _line(request: Mapping[str, Any], address: Address, by: str) -> bytes:
    own = {} if address.token is None else {"token": address.token}
    line = utf8(encode_record({"by": by, **request, **own}) + "\n")
    if len(line) > MAX_REQUEST:
        raise ControlError(f"the request has {len(line)} bytes; at most {MAX_REQUEST} are sent")
    return line


def _reply(line: bytes, address: Address) -> dict[str, Any]:
    try:
        reply = json.loads(line) if line.endswith(b"\n") else None
    except ValueError:
        reply = None
    if not isinstance(reply, dict):
        raise ControlError(
            f"the process of {address.experiment_id}, {address.pid}, ended before it replied",
            hint="the request may have been carried out",
        )
    return reply


def remove_address(directory: Path) -> None:
    """Take the address off record, if this process wrote it."""
    with contextlib.suppress(OSError, StoreError):
        if read_json(directory / CONTROL).get("pid") == os.getpid():
            (directory / CONTROL).unlink()
