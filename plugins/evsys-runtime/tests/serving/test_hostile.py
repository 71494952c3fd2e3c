"""Clients that guess keys, hold connections open, and never finish a body."""

import asyncio
import contextlib
import threading
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import make_mocked_request

from evsys_runtime.rendering.chat import ChatTemplateRenderer
from evsys_runtime.serving import routes, server, texts
from evsys_runtime.serving.bodies import BodyError, read_bytes
from evsys_runtime.serving.connections import most_connections
from evsys_runtime.serving.keys import ADDRESSES, FORGET_SECONDS, KeyCheck
from evsys_runtime.serving.server import listening


class _Log:
    def __init__(self) -> None:
        self.warnings: list[dict[str, Any]] = []

    def warning(self, event: str, **facts: Any) -> None:
        self.warnings.append({"event": event, **facts})


class _Wrong:
    """A key check, what it waited, and a clock to move."""

    def __init__(self, key: str | None = "right") -> None:
        self.log = _Log()
        self.now = 1000.0
        self.waits: list[float] = []
        self.check = KeyCheck(key, log=self.log, clock=lambda: self.now, sleep=self._sleep)

    async def _sleep(self, seconds: float) -> None:
        self.waits.append(seconds)

    def tries(self, *keys: str, address: str = "10.0.0.1") -> list[bool]:
        async def run() -> list[bool]:
            request = make_mocked_request("GET", "/v1/models").clone(remote=address)
            return [await self.check.accepts(request, key) for key in keys]

        return asyncio.run(run())

    def tries_from(self, *addresses: str) -> None:
        async def run() -> None:
            request = make_mocked_request("GET", "/v1/models")
            for address in addresses:
                await self.check.accepts(request.clone(remote=address), "no")

        asyncio.run(run())


def test_wrong_keys_wait_twice_as_long_each_time_after_three():
    wrong = _Wrong()
    assert not any(wrong.tries(*["no"] * 10))
    assert wrong.waits == [0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0]


def test_the_right_key_never_waits():
    wrong = _Wrong()
    wrong.tries(*["no"] * 10)
    waited = len(wrong.waits)
    assert wrong.tries("right") == [True]
    assert len(wrong.waits) == waited


def test_wrong_keys_are_logged_at_powers_of_two_with_their_address():
    wrong = _Wrong()
    wrong.tries(*["no"] * 100)
    assert [line["count"] for line in wrong.log.warnings] == [1, 2, 4, 8, 16, 32, 64]
    assert {line["address"] for line in wrong.log.warnings} == {"10.0.0.1"}


def test_wrong_keys_are_counted_by_address_and_forgotten_after_five_minutes():
    wrong = _Wrong()
    wrong.tries(*["no"] * 3)
    wrong.tries("no", address="10.0.0.2")
    wrong.now += FORGET_SECONDS + 1
    wrong.tries("no")
    assert wrong.waits == []


def test_addresses_are_counted_in_bounded_memory():
    wrong = _Wrong()
    wrong.tries_from(*map(str, range(ADDRESSES + 10)))
    assert len(wrong.check._wrong._failures) == ADDRESSES


@pytest.mark.parametrize("given", ["", "r\udcffght", "right ", "\udc80"])
def test_any_text_can_be_a_wrong_key(given):
    assert _Wrong().tries(given) == [False]


def test_a_server_without_a_key_accepts_everything():
    assert _Wrong(None).tries("", "\udcff") == [True, True]


async def _raw(address: str, text: bytes) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    host, _, port = address.removeprefix("http://").rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(text)
    await writer.drain()
    return reader, writer


def _app(handler: Any = None) -> web.Application:
    async def hello(_: web.Request) -> web.Response:
        return web.Response(text="hello")

    app = web.Application()
    app.router.add_route("*", "/", handler or hello)
    return app


def test_half_open_connections_keep_nobody_out(monkeypatch):
    monkeypatch.setattr(server, "most_connections", lambda: 8)

    async def main() -> tuple[str, int]:
        async with listening(_app(), "127.0.0.1", 0) as address:
            held = [await _raw(address, b"GET / HTTP/1.1\r\nHost: x\r\n") for _ in range(40)]
            async with aiohttp.ClientSession() as session, session.get(address) as response:
                text = await response.text()
            closed = 0
            for reader, _ in held[:30]:
                with contextlib.suppress(ConnectionError):
                    await reader.read()
                closed += 1
            for _, writer in held:
                writer.close()
            return text, closed

    assert asyncio.run(asyncio.wait_for(main(), 30)) == ("hello", 30)


def test_connections_with_a_request_in_work_are_kept_and_the_newcomer_is_closed(monkeypatch):
    monkeypatch.setattr(server, "most_connections", lambda: 3)

    async def main() -> tuple[list[str], bytes]:
        release, begun = asyncio.Event(), asyncio.Semaphore(0)

        async def slow(_: web.Request) -> web.Response:
            begun.release()
            await release.wait()
            return web.Response(text="done")

        async with (
            listening(_app(slow), "127.0.0.1", 0) as address,
            aiohttp.ClientSession() as session,
        ):

            async def get() -> str:
                async with session.get(address) as response:
                    return await response.text()

            under_way = [asyncio.create_task(get()) for _ in range(3)]
            for _ in under_way:
                await begun.acquire()
            reader, writer = await _raw(address, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            refused = b""
            with contextlib.suppress(ConnectionError):
                refused = await reader.read()
            writer.close()
            release.set()
            return await asyncio.gather(*under_way), refused

    assert asyncio.run(asyncio.wait_for(main(), 30)) == (["done"] * 3, b"")


def test_a_process_holds_fewer_connections_than_it_has_descriptors(monkeypatch):
    resource = pytest.importorskip("resource")
    monkeypatch.setattr(resource, "getrlimit", lambda _: (256, 4096))
    assert 16 <= most_connections() <= 256 - 2 * 64


def test_a_body_that_stops_coming_is_refused():
    async def main() -> bytes:
        async def read(request: web.Request) -> web.Response:
            try:
                await read_bytes(request, 100, part_seconds=0.01)
            except BodyError as exc:
                return web.Response(status=exc.status, text=f"{exc.message}|{exc.beginning.decode()}")
            return web.Response()

        async with listening(_app(read), "127.0.0.1", 0) as address:
            reader, writer = await _raw(
                address, b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 90\r\n\r\nbeginning"
            )
            answer = await reader.readuntil(b"|beginning")
            writer.close()
            return answer

    answer = asyncio.run(asyncio.wait_for(main(), 30))
    assert answer.startswith(b"HTTP/1.1 408")
    assert b"nothing within 0.01 seconds" in answer


class _Threads:
    """Which thread ran what a module or a class calls by a name."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._monkeypatch = monkeypatch
        self.seen: dict[str, int] = {}

    def watch(self, owner: Any, name: str) -> None:
        work = getattr(owner, name)

        def watched(*args: Any) -> Any:
            self.seen[name] = threading.get_ident()
            return work(*args)

        self._monkeypatch.setattr(owner, name, watched)


LONG = {
    "messages": ("chat/completions", {"messages": [{"role": "user", "content": "x"}] * 4000}),
    "text": ("chat/completions", {"messages": [{"role": "user", "content": "x" * 60_000}]}),
    "prompt": ("completions", {"prompt": "x" * 60_000, "logprobs": 1}),
    "tokens": ("completions", {"prompt": [1] * 40_000}),
}


@pytest.mark.parametrize("name", LONG)
def test_long_requests_are_read_and_rendered_off_the_event_loop(name, served, with_server, monkeypatch):
    path, body = LONG[name]
    threads = _Threads(monkeypatch)
    if path == "completions":
        threads.watch(routes, "read_text_request")
        threads.watch(texts, "_tokens")
    else:
        threads.watch(routes, "read_request")
        threads.watch(ChatTemplateRenderer, "render_prompt")

    async def work(server):
        sent = {"model": "m", "max_tokens": 2, **body}
        async with server.session.post(f"{server.url}/{path}", json=sent) as response:
            return response.status

    assert with_server(served(), work, texts=True) == 200
    assert len(threads.seen) == 2
    assert threading.get_ident() not in threads.seen.values()
