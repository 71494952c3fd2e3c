"""The network is closed; loopback isn't network."""

import asyncio
import socket

import pytest

from evsys_conformance.offline import block_network

FAR = "192.0.2.1"


def closed(call):
    with block_network() as tried:
        with pytest.raises(OSError, match="the network is closed while conformance checks run"):
            call()
    return tried


def test_a_connection_is_refused_and_noted():
    assert closed(lambda: socket.create_connection((FAR, 80))) == [FAR]


def test_connect_ex_is_refused():
    with socket.socket() as sock:
        assert closed(lambda: sock.connect_ex((FAR, 80))) == [f"{FAR}:80"]


def test_a_datagram_is_refused():
    with socket.socket(type=socket.SOCK_DGRAM) as sock:
        assert closed(lambda: sock.sendto(b"hello", (FAR, 53))) == [f"{FAR}:53"]


@pytest.mark.parametrize(
    "look_up", [lambda host: socket.getaddrinfo(host, 80), lambda host: socket.gethostbyname(host)]
)
def test_a_name_is_not_looked_up(look_up):
    assert closed(lambda: look_up("example.org")) == ["example.org"]


def test_asyncio_is_refused_too():
    async def connect():
        await asyncio.open_connection(FAR, 80)

    assert closed(lambda: asyncio.run(connect())) == [f"{FAR}:80"]


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_loopback_is_open(host):
    with socket.create_server(("127.0.0.1", 0)) as server, block_network() as tried:
        with socket.create_connection((host, server.getsockname()[1])):
            pass
    assert tried == []


def test_local_sockets_are_open(tmp_path):
    with socket.socket(socket.AF_UNIX) as server, block_network():
        server.bind(str(tmp_path / "s"))
        server.listen()
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(tmp_path / "s"))


def test_afterwards_everything_is_as_it_was():
    before = socket.socket.connect, socket.socket.sendto, socket.getaddrinfo
    with block_network():
        assert socket.socket.connect is not before[0]
    assert (socket.socket.connect, socket.socket.sendto, socket.getaddrinfo) == before
