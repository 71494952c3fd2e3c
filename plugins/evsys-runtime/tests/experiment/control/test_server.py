"""The server of the control channel alone: who may ask, how, and that no one is harmed by those who ask wrongly."""

from __future__ import annotations

import asyncio
import functools
import json
import os
import socket
import stat
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import attrs
import pytest

from evsys.errors import StoreError
from evsys_record.control import (
    CONTROL,
    MAX_REQUEST,
    Control,
    ControlError,
    read_address,
    send_request,
    write_address,
)
from evsys_record.lock import Holder
from evsys_runtime.experiment.control.listening import listen, runtime_directory
from evsys_runtime.experiment.control.server import ControlServer


def in_a_loop(test):
    @functools.wraps(test)
    def run(*args, **kwargs):
        asyncio.run(test(*args, **kwargs))

    return run


STATUS = b'{"ok":true,"step":3}\n'


@pytest.fixture(autouse=True)
def _runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with _short_folder() as folder:
        monkeypatch.setenv("XDG_RUNTIME_DIR", folder)
        yield


@contextmanager
def _short_folder() -> Iterator[str]:
    with tempfile.TemporaryDirectory() as folder:  # tmp_path is longer than the path of a socket may be
        yield folder


def modes(*paths: Path) -> list[int | None]:
    return [stat.S_IMODE(path.stat().st_mode) if path.exists() else None for path in paths]


@asynccontextmanager
async def served(directory: Path, *, unix: bool = True) -> AsyncIterator[list[object]]:
    """A server that replies to anything with what was asked, and keeps that."""
    asked: list[object] = []

    def act(request, peer):
        asked.append((request, peer))
        if request.get("request") == "break":
            raise RuntimeError("broken")
        return {"ok": True, "asked": request}

    listener = listen(directory, unix=unix)
    server = ControlServer(listener, loop=asyncio.get_running_loop(), status=lambda: STATUS, act=act)
    write_address(directory, listener.address)
    server.start()
    try:
        yield asked
    finally:
        server.close()


@pytest.mark.parametrize("unix", [True, False])
@in_a_loop
async def test_requests_are_answered_in_their_order(tmp_path: Path, unix: bool):
    async with served(tmp_path, unix=unix) as asked, await Control.open(tmp_path, by="me") as control:
        assert await control.request({"request": "status"}) == {"ok": True, "step": 3}
        replies = await asyncio.gather(*(control.request({"request": "x", "n": n}) for n in range(20)))
        assert [reply["asked"]["n"] for reply in replies] == list(range(20))
        assert {request["by"] for request, _ in asked} == {"me"}
        assert all("token" not in request for request, _ in asked)


@in_a_loop
async def test_the_kernel_says_which_process_asks(tmp_path: Path):
    async with served(tmp_path) as asked, await Control.open(tmp_path) as control:
        await control.request({"request": "x"})
    assert [(peer.pid, peer.uid) for _, peer in asked] == [(os.getpid(), os.getuid())]


@in_a_loop
async def test_a_blocking_client_asks_from_a_thread(tmp_path: Path):
    async with served(tmp_path):
        reply = await asyncio.to_thread(send_request, tmp_path, {"request": "x"}, by="me")
    assert reply["asked"] == {"request": "x", "by": "me"}


@in_a_loop
async def test_only_the_user_may_read_socket_and_address(tmp_path: Path):
    async with served(tmp_path):
        place = Path(read_address(tmp_path).socket)
        assert modes(place, place.parent, tmp_path / CONTROL) == [0o600, 0o700, 0o600]
    assert modes(place, tmp_path) == [None, modes(tmp_path)[0]]


@in_a_loop
async def test_a_port_wants_its_token(tmp_path: Path):
    async with served(tmp_path, unix=False) as asked:
        address = read_address(tmp_path)
        for token in (None, "", "wrong", 3):
            reader, writer = await asyncio.open_connection("127.0.0.1", address.port)
            writer.write(json.dumps({"request": "status", "token": token}).encode() + b"\n")
            assert json.loads(await reader.readline())["error"] == "the token is wrong"
            assert await reader.read() == b""
            writer.close()
    assert asked == []


@pytest.mark.parametrize(
    "line", [b"\n", b"nonsense\n", b"[1]\n", b"\xff\xfe\n", b"[" * 9000 + b"\n", b"null\n"]
)
@in_a_loop
async def test_a_malformed_request_is_refused_and_the_next_is_answered(tmp_path: Path, line: bytes):
    async with served(tmp_path):
        reader, writer = await asyncio.open_unix_connection(read_address(tmp_path).socket)
        writer.write(line + b'{"request": "x"}\n')
        first, second = [json.loads(await reader.readline()) for _ in range(2)]
        writer.close()
    assert (first["ok"], second["ok"]) == (False, True)


@pytest.mark.parametrize("ending", [b"", b"\n"])
@in_a_loop
async def test_a_request_without_end_is_cut_off(tmp_path: Path, ending: bytes):
    async with served(tmp_path) as asked:
        reader, writer = await asyncio.open_unix_connection(read_address(tmp_path).socket)
        writer.write(b'{"a":"' + b"x" * 2 * MAX_REQUEST + b'"}' + ending)
        assert "at most" in json.loads(await reader.readline())["error"]
        writer.close()
    assert asked == []


@in_a_loop
async def test_lines_that_come_in_pieces_and_together_are_all_answered(tmp_path: Path):
    async with served(tmp_path) as asked:
        reader, writer = await asyncio.open_unix_connection(read_address(tmp_path).socket)
        for byte in b'{"request": "x", "n": 0}\n':
            writer.write(bytes([byte]))
            await writer.drain()
        writer.write(
            b"".join(b'{"request": "x", "n": %d}\n{"request": "status"}\n' % n for n in range(1, 50))
        )
        replies = [json.loads(await reader.readline()) for _ in range(99)]
        writer.close()
    assert [reply["asked"]["n"] for reply in replies if "asked" in reply] == list(range(50))
    assert len(asked) == 50


@in_a_loop
async def test_a_client_that_reads_nothing_holds_no_one_up(tmp_path: Path):
    async with served(tmp_path), await Control.open(tmp_path) as other:
        with socket.socket(socket.AF_UNIX) as greedy:
            greedy.connect(read_address(tmp_path).socket)
            greedy.setblocking(False)
            sent = 0
            with pytest.raises(BlockingIOError):
                while sent < 1 << 28:
                    sent += greedy.send(b'{"request": "status"}\n' * 100)
            assert (await other.request({"request": "status"}))["ok"]


@in_a_loop
async def test_a_fault_of_a_request_is_its_reply(tmp_path: Path):
    async with served(tmp_path), await Control.open(tmp_path) as control:
        assert (await control.request({"request": "break"}))["error"] == "RuntimeError: broken"
        assert (await control.request({"request": "x"}))["ok"]


@in_a_loop
async def test_a_status_is_known_while_the_loop_is_busy(tmp_path: Path):
    async with served(tmp_path):  # this call blocks the loop of the experiment
        assert send_request(tmp_path, {"request": "status"})["step"] == 3


@in_a_loop
async def test_an_end_is_reported_to_those_who_wait(tmp_path: Path):
    async with served(tmp_path):
        control = await Control.open(tmp_path)
    with pytest.raises(ControlError):
        await control.request({"request": "status"})
    await control.close()
    with pytest.raises(ControlError, match="does not reply"):
        await Control.open(tmp_path)


@in_a_loop
async def test_more_connections_than_there_may_be_close_the_oldest(tmp_path: Path):
    async with served(tmp_path):
        first = await Control.open(tmp_path)
        others = [await Control.open(tmp_path) for _ in range(128)]
        assert (await others[-1].request({"request": "status"}))["ok"]
        with pytest.raises(ControlError):
            await first.request({"request": "status"})
        for control in (first, *others):
            await control.close()


def test_without_a_process_there_is_no_address(tmp_path: Path):
    with pytest.raises(ControlError, match=f"{tmp_path.name} is not running"):
        read_address(tmp_path)


def test_a_dead_process_is_recognised_and_its_socket_removed(tmp_path: Path):
    left = listen(tmp_path)
    left.socket.close()  # as a kill does it: the file stays
    dead = attrs.evolve(left.address.holder, pid=2**22 + 1, process_started="1")
    write_address(tmp_path, attrs.evolve(left.address, holder=dead))
    with pytest.raises(ControlError, match="is gone"):
        read_address(tmp_path)
    fresh = listen(tmp_path)
    assert not Path(left.address.socket).exists()
    assert not (tmp_path / CONTROL).exists()
    fresh.close()


def test_another_machine_is_named(tmp_path: Path):
    listener = listen(tmp_path)
    there = attrs.evolve(Holder.here(), host="elsewhere", boot="another")
    write_address(tmp_path, attrs.evolve(listener.address, holder=there))
    listener.close()
    with pytest.raises(ControlError, match="runs on elsewhere"):
        read_address(tmp_path)


def test_a_damaged_address_is_reported(tmp_path: Path):
    (tmp_path / CONTROL).write_text('{"format": 1}', encoding="utf-8")
    with pytest.raises(StoreError, match="lacks"):
        read_address(tmp_path)


def test_a_long_path_is_replaced_by_a_port(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    long = tmp_path / ("x" * 120)
    long.mkdir()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(long))
    listener = listen(tmp_path)
    assert listener.address.socket is None
    assert len(listener.address.token) >= 32
    listener.close()


def test_a_folder_that_another_user_prepared_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    runtime_directory()
    monkeypatch.setattr(os, "getuid", lambda: 12345)
    with pytest.raises(OSError, match="another user"):
        runtime_directory()


def test_a_folder_open_to_others_is_closed(tmp_path: Path):
    folder = runtime_directory()
    folder.chmod(0o777)
    assert stat.S_IMODE(runtime_directory().stat().st_mode) == 0o700
