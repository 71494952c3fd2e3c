"""A proxy on loopback between a client and a server, which breaks chosen calls in chosen ways."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Literal

import aiohttp
import attrs
from aiohttp import web

How = Literal["status", "drop_before", "drop_after", "delay", "answer"]
_HOP = {"content-length", "transfer-encoding", "connection", "content-encoding", "host"}


@attrs.define(kw_only=True)
class Fault:
    """Break the calls of a path, `times` times, after `skip` that go through."""

    path: str
    how: How
    times: int = 1
    skip: int = 0
    status: int = 500
    seconds: float = 0.0
    headers: dict[str, str] = attrs.field(factory=dict)
    body: Any = None
    met: int = 0
    struck: asyncio.Event = attrs.field(factory=asyncio.Event)

    def applies(self, path: str) -> bool:
        """Count a call; true where it is to be broken."""
        if not path.endswith(self.path):
            return False
        if self.skip > 0:
            self.skip -= 1
            return False
        if self.met >= self.times:
            return False
        self.met += 1
        self.struck.set()
        return True


@attrs.define(kw_only=True)
class Proxy:
    """Where it listens, and what it breaks; both may change on the way. `calls` counts calls by the end of their path, `bodies` keeps the last, `reached` is set by
    the call that is `wanted`.
    """

    base_url: str = ""
    target: str
    faults: list[Fault] = attrs.field(factory=list)
    calls: dict[str, int] = attrs.field(factory=dict)
    bodies: dict[str, bytes] = attrs.field(factory=dict)
    wanted: str = ""
    reached: threading.Event = attrs.field(factory=threading.Event)


@asynccontextmanager
async def proxy_to(target: str) -> AsyncIterator[Proxy]:
    """Listen, and pass calls on."""
    proxy = Proxy(target=target)
    async with aiohttp.ClientSession(
        auto_decompress=False, timeout=aiohttp.ClientTimeout(total=120)
    ) as session:

        async def handle(request: web.Request) -> web.StreamResponse:
            name = request.path.rpartition("/")[2]
            proxy.calls[name] = proxy.calls.get(name, 0) + 1
            fault = next((one for one in proxy.faults if one.applies(request.path)), None)
            if name == proxy.wanted:
                proxy.reached.set()
            body = proxy.bodies[name] = await request.read()
            if fault is not None:
                if fault.how == "status":
                    return web.json_response(
                        {"error": "injected"} if fault.body is None else fault.body,
                        status=fault.status,
                        headers=fault.headers,
                    )
                if fault.how == "answer":
                    return web.Response(body=json.dumps(fault.body).encode(), content_type="application/json")
                if fault.how == "drop_before":
                    return _dropped(request)
                if fault.how == "delay":
                    await asyncio.sleep(fault.seconds)
            headers = {key: value for key, value in request.headers.items() if key.lower() not in _HOP}
            try:
                async with session.request(
                    request.method, proxy.target + request.path_qs, data=body, headers=headers
                ) as answer:
                    content = await answer.read()
            except aiohttp.ClientError:
                return _dropped(request)
            if fault is not None and fault.how == "drop_after":
                return _dropped(request)
            kept = {key: value for key, value in answer.headers.items() if key.lower() not in _HOP}
            return web.Response(status=answer.status, body=content, headers=kept)

        app = web.Application(client_max_size=1 << 28)
        app.router.add_route("*", "/{tail:.*}", handle)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        proxy.base_url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        try:
            yield proxy
        finally:
            await runner.cleanup()


def _dropped(request: web.Request) -> web.StreamResponse:
    if request.transport is not None:
        request.transport.abort()
    return web.Response()
