"""A server for the length of a test, and a client of it."""

import asyncio
import json
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from http.client import HTTPConnection
from typing import Any
from urllib.parse import urlsplit

import aiohttp


class Client:
    """Asks a server; `key` is sent with each request."""

    def __init__(self, address: str, session: aiohttp.ClientSession, key: str | None = None) -> None:
        self.address = address
        self.session = session
        self.headers = {} if key is None else {"Authorization": f"Bearer {key}"}

    async def ask(
        self, path: str, *, method: str = "GET", status: int = 200, headers: Any = None, **options: Any
    ) -> Any:
        """The JSON answer, whose status is to be this one."""
        url = self.address + (path if path.startswith("/api") or path == "/" else f"/api/v1{path}")
        async with self.session.request(
            method, url, headers={**self.headers, **(headers or {})}, **options
        ) as response:
            assert response.status == status, (response.status, await response.text())
            return await response.json()


def served[T](serving: AbstractAsyncContextManager[str], work: Callable[[Client], Awaitable[T]]) -> T:
    """The result of `work(client)` while a server runs."""

    async def main() -> T:
        jar = aiohttp.CookieJar(unsafe=True)  # keeps cookies of an address without a name
        async with serving as address, aiohttp.ClientSession(cookie_jar=jar) as session:
            return await work(Client(address, session))

    return asyncio.run(main())


class Asking:
    """Asks a server that runs in another thread."""

    def __init__(self, address: str) -> None:
        self.address = address

    def __call__(self, path: str, *, status: int = 200, **headers: str) -> Any:
        connection = HTTPConnection(urlsplit(self.address).netloc, timeout=30)
        try:
            connection.request("GET", f"/api/v1{path}", headers=headers)
            response = connection.getresponse()
            body = response.read()
        finally:
            connection.close()
        assert response.status == status, (response.status, body)
        return json.loads(body)


@contextmanager
def running(serving: Callable[[], AbstractAsyncContextManager[str]]) -> Iterator[Asking]:
    """A server in a thread of its own, for many tests."""
    ready: list[str] = []
    up = threading.Event()
    loop = asyncio.new_event_loop()
    stop = asyncio.Event()

    async def main() -> None:
        async with serving() as address:
            ready.append(address)
            up.set()
            await stop.wait()

    thread = threading.Thread(target=lambda: loop.run_until_complete(main()))
    thread.start()
    try:
        assert up.wait(60)
        yield Asking(ready[0])
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join()
        loop.close()
