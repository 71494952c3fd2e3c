"""No network while checks run. Loopback and local sockets aren't network."""

from __future__ import annotations

import errno
import ipaddress
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["block_network"]


@contextmanager
def block_network() -> Iterator[list[str]]:  # noqa: C901 - one guard for each way out of the machine
    """Refuse connections and look-ups that leave this machine; yields the list of those tried."""
    tried: list[str] = []
    connect, connect_ex, send_to = socket.socket.connect, socket.socket.connect_ex, socket.socket.sendto
    look_up, look_up_name = socket.getaddrinfo, socket.gethostbyname

    def refuse(address: Any) -> OSError:
        place = ":".join(map(str, address[:2])) if isinstance(address, tuple) else str(address)
        tried.append(place)
        return OSError(
            errno.ENETUNREACH, f"the network is closed while conformance checks run (asked for {place})"
        )

    def guarded_connect(self: socket.socket, address: Any) -> None:
        if not _is_local(self, address):
            raise refuse(address)
        connect(self, address)

    def guarded_connect_ex(self: socket.socket, address: Any) -> int:
        if not _is_local(self, address):
            raise refuse(address)
        return connect_ex(self, address)

    def guarded_send_to(self: socket.socket, data: Any, *rest: Any) -> int:
        if not _is_local(self, rest[-1]):
            raise refuse(rest[-1])
        sent: int = send_to(self, data, *rest)
        return sent

    def guarded_look_up_name(host: str) -> str:
        if not _is_local_host(host):
            raise refuse(host)
        return look_up_name(host)

    def guarded_look_up(host: Any, *rest: Any, **options: Any) -> Any:
        if not _is_local_host(host):
            raise refuse(host)
        return look_up(host, *rest, **options)

    hub_was = os.environ.get("HF_HUB_OFFLINE")
    guards: Any = [
        (socket.socket, "connect", connect, guarded_connect),
        (socket.socket, "connect_ex", connect_ex, guarded_connect_ex),
        (socket.socket, "sendto", send_to, guarded_send_to),
        (socket, "getaddrinfo", look_up, guarded_look_up),
        (socket, "gethostbyname", look_up_name, guarded_look_up_name),
    ]
    os.environ["HF_HUB_OFFLINE"] = "1"  # else it tries again for half a minute
    for owner, name, _, guard in guards:
        setattr(owner, name, guard)
    try:
        yield tried
    finally:
        for owner, name, open_again, _ in guards:
            setattr(owner, name, open_again)
        os.environ.pop("HF_HUB_OFFLINE")
        if hub_was is not None:
            os.environ["HF_HUB_OFFLINE"] = hub_was


def _is_local(sock: socket.socket, address: Any) -> bool:
    internet = sock.family in {socket.AF_INET, socket.AF_INET6}
    return not internet or (isinstance(address, tuple) and _is_local_host(address[0]))


def _is_local_host(host: Any) -> bool:
    if isinstance(host, bytes):
        host = host.decode("ascii", "replace")
    if host in {None, "", "localhost"}:
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
