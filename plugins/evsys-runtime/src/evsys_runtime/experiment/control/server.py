"""Answers requests in a thread of its own, so that a status is known also while the event loop is busy.

Requests with an effect are carried out in the experiment's event loop, one after the other.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import hmac
import json
import os
import selectors
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

import attrs

from evsys_record.control import MAX_REQUEST
from evsys_record.encoding import encode_record, utf8
from evsys_runtime.experiment.control.listening import Listener, Peer, peer_of

__all__ = ["ControlServer", "Reply", "refusal"]

MOST_CONNECTIONS = 128
"""Connections at once; the one idle for the longest is closed for another."""

KNOWN_LINES = 64
"""Status requests recognised by their bytes, without being parsed again."""

FULL_SECONDS = 0.1
"""How long to wait where no file descriptor is free."""

_READ = 1 << 12

type Reply = Mapping[str, Any]


def refusal(error: str, hint: str | None = None) -> dict[str, Any]:
    """The reply to a refused request."""
    return {"ok": False, "error": error, "hint": hint}


@attrs.define(eq=False)
class _Connection:
    socket: socket.socket
    peer: Peer
    incoming: bytearray = attrs.field(factory=bytearray)
    outgoing: bytearray = attrs.field(factory=bytearray)
    waits: bool = False
    leaves: bool = False
    open: bool = True
    events: int = selectors.EVENT_READ


class ControlServer:
    """Listens from `start` to `close`.

    Args:
        listener: the bound socket.
        loop: carries out requests with an effect.
        status: the reply to `status` as a line; called in the server's thread, so it may only read what other threads write.
        act: carries out any other request; called in the loop.
    """

    def __init__(
        self,
        listener: Listener,
        *,
        loop: asyncio.AbstractEventLoop,
        status: Callable[[], bytes],
        act: Callable[[Mapping[str, Any], Peer], Reply],
    ) -> None:
        self._listener = listener
        self._loop = loop
        self._status = status
        self._act = act
        self._token = listener.address.token
        self._selector = selectors.DefaultSelector()
        self._connections: dict[_Connection, None] = {}  # by when they were last heard of
        self._status_lines: set[bytes] = set()
        self._replies: deque[tuple[_Connection, Reply]] = deque()
        self._wake_read, self._wake_write = socket.socketpair()
        self._closing = False
        self._thread = threading.Thread(target=self._serve, name="evsys-control", daemon=True)

    def start(self) -> None:
        """Answer from now on."""
        for one in (self._listener.socket, self._wake_read, self._wake_write):
            one.setblocking(False)
        self._selector.register(self._listener.socket, selectors.EVENT_READ, None)
        self._selector.register(self._wake_read, selectors.EVENT_READ, None)
        self._thread.start()

    def close(self) -> None:
        """Stop answering; finished replies are sent if their clients read them."""
        self._closing = True
        self._wake()
        self._thread.join()
        self._listener.close()
        self._wake_read.close()
        self._wake_write.close()
        self._selector.close()

    def _wake(self) -> None:
        with contextlib.suppress(OSError):  # full: it is about to wake up; closed: nothing is left to do
            self._wake_write.send(b"\0")

    # --- the thread -----------------------------------------------------------------------------------------------

    def _serve(self) -> None:
        try:
            while not self._closing:
                for key, events in self._selector.select():
                    if key.data is not None:
                        self._serve_connection(key.data, events)
                    elif key.fileobj is self._wake_read:
                        self._take_replies()
                    else:
                        self._accept()
            self._take_replies()
        finally:
            for connection in list(self._connections):
                self._drop(connection)

    def _accept(self) -> None:
        try:
            accepted, _ = self._listener.socket.accept()
        except OSError as error:  # it has left again, or no descriptor is free
            if error.errno in (errno.EMFILE, errno.ENFILE):
                time.sleep(FULL_SECONDS)
            return
        accepted.setblocking(False)
        peer = peer_of(accepted)
        if peer.uid is not None and peer.uid not in (0, os.getuid()):
            accepted.close()
            return
        if len(self._connections) >= MOST_CONNECTIONS:
            self._drop(next(iter(self._connections)))
        connection = _Connection(accepted, peer)
        self._connections[connection] = None
        self._selector.register(accepted, selectors.EVENT_READ, connection)

    def _take_replies(self) -> None:
        with contextlib.suppress(OSError):
            self._wake_read.recv(_READ)
        while self._replies:
            connection, reply = self._replies.popleft()
            connection.waits = False
            self._send(connection, utf8(encode_record(reply) + "\n"))
            self._answer_lines(connection)

    def _serve_connection(self, connection: _Connection, events: int) -> None:
        if events & selectors.EVENT_WRITE and connection.open:
            self._send(connection, b"")
            self._answer_lines(connection)
        if not events & selectors.EVENT_READ or not connection.open:  # maybe dropped since it was selected
            return
        try:
            received = connection.socket.recv(_READ)
        except BlockingIOError:
            return
        except OSError:
            received = b""
        if not received:
            self._drop(connection)
            return
        if received in self._status_lines and not connection.incoming:  # the usual request, at the least cost
            self._send(connection, self._status())
            return
        connection.incoming += received
        if len(self._connections) > 1:
            self._connections[connection] = self._connections.pop(connection)
        self._answer_lines(connection)

    def _answer_lines(self, connection: _Connection) -> None:
        """Answer whole lines in their order, each once the previous one has its reply."""
        while connection.open and not (connection.waits or connection.leaves or connection.outgoing):
            end = connection.incoming.find(b"\n")
            if end < 0:
                break
            line = bytes(connection.incoming[: end + 1])
            del connection.incoming[: end + 1]
            self._answer(connection, line)
        if b"\n" not in connection.incoming and len(connection.incoming) >= MAX_REQUEST:
            connection.incoming.clear()
            self._leave(connection, refusal(f"a request has at most {MAX_REQUEST} bytes"))
        self._select(connection)

    def _answer(self, connection: _Connection, line: bytes) -> None:
        if line in self._status_lines:
            self._send(connection, self._status())
            return
        if len(line) > MAX_REQUEST:
            self._leave(connection, refusal(f"a request has at most {MAX_REQUEST} bytes"))
            return
        try:
            request = json.loads(line)
        except (ValueError, RecursionError):
            request = None
        if not isinstance(request, dict):
            self._send(connection, _line(refusal("a request is a JSON object on one line")))
            return
        token = request.pop("token", None)
        if self._token is not None and not _same(token, self._token):
            self._leave(connection, refusal("the token is wrong"))
            return
        if request.get("request") == "status":
            if len(self._status_lines) < KNOWN_LINES:
                self._status_lines.add(line)
            self._send(connection, self._status())
            return
        connection.waits = True
        try:
            self._loop.call_soon_threadsafe(self._carry_out, connection, request)
        except RuntimeError:  # the loop is closed
            connection.waits = False
            self._leave(connection, refusal("the experiment has ended"))

    def _leave(self, connection: _Connection, reply: Reply) -> None:
        """Send a last reply."""
        connection.leaves = True
        self._send(connection, _line(reply))

    def _send(self, connection: _Connection, line: bytes) -> None:
        if not connection.open:
            return
        if connection.outgoing:
            connection.outgoing += line
            line = bytes(connection.outgoing)
        try:
            sent = connection.socket.send(line) if line else 0
        except BlockingIOError:
            sent = 0
        except OSError:
            self._drop(connection)
            return
        if sent < len(line) or connection.outgoing:
            connection.outgoing[:] = line[sent:]
            self._select(connection)
        if connection.leaves and not connection.outgoing:
            self._drop(connection)

    def _select(self, connection: _Connection) -> None:
        """Read only from clients whose requests are answered and whose replies are read."""
        if not connection.open:
            return
        events = selectors.EVENT_WRITE if connection.outgoing else 0
        if not (connection.waits or connection.leaves or connection.outgoing):
            events |= selectors.EVENT_READ
        if events == connection.events:
            return
        if not connection.events:
            self._selector.register(connection.socket, events, connection)
        elif events:
            self._selector.modify(connection.socket, events, connection)
        else:
            self._selector.unregister(connection.socket)
        connection.events = events

    def _drop(self, connection: _Connection) -> None:
        if not connection.open:
            return
        connection.open = False
        self._connections.pop(connection, None)
        if connection.events:
            self._selector.unregister(connection.socket)
        connection.socket.close()

    # --- the loop -------------------------------------------------------------------------------------------------

    def _carry_out(self, connection: _Connection, request: Mapping[str, Any]) -> None:
        try:
            reply = self._act(request, connection.peer)
        except Exception as error:  # the asker learns of it, and the experiment continues
            reply = refusal(f"{type(error).__name__}: {error}")
        self._replies.append((connection, reply))
        self._wake()


def _line(reply: Reply) -> bytes:
    return utf8(encode_record(reply) + "\n")


def _same(token: object, expected: str) -> bool:
    return isinstance(token, str) and hmac.compare_digest(utf8(token), utf8(expected))
