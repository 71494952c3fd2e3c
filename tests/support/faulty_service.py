"""A service of completions that misbehaves as it is told, and servers that run beside a test."""

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from typing import Any

from aiohttp import web


def completion(text: str = "hello", **fields: Any) -> dict[str, Any]:
    """The body of an answer."""
    choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
    usage = {"prompt_tokens": 10, "completion_tokens": 4, "total_tokens": 14}
    return {"object": "chat.completion", "choices": [choice], "usage": usage, **fields}


class Faulty:
    """A service that gives the answers it is told, the last of them again and again: a body, or a response."""

    def __init__(self, *answers: Any) -> None:
        self.answers: Sequence[Any] = answers or (completion(),)
        self.bodies: list[Any] = []
        self.headers: list[Any] = []

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.bodies.append(await request.json())
        self.headers.append(request.headers)
        found = self.answers[min(len(self.bodies), len(self.answers)) - 1]
        if found == "drop":
            assert request.transport is not None
            request.transport.close()
            return web.Response()
        if callable(found):
            return found()
        return web.json_response(found)

    def running(self) -> contextlib.AbstractAsyncContextManager[str]:
        """The service's address, while inside."""
        return served(self.answer)


@contextlib.asynccontextmanager
async def served(answer: Callable[[web.Request], Awaitable[web.StreamResponse]]) -> AsyncIterator[str]:
    """The address of a server whose completions, of conversations and of texts, are what `answer` says, while inside."""
    app = web.Application()
    for path in ("/v1/chat/completions", "/v1/completions"):
        app.router.add_post(path, answer)
    runner = web.AppRunner(app, shutdown_timeout=1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
    finally:
        await runner.cleanup()


def answering(
    answer: Callable[[web.Request], Awaitable[web.StreamResponse]],
) -> contextlib.AbstractContextManager[str]:
    """`served`, beside a test that has no event loop."""
    return in_a_thread(lambda: served(answer))


@contextlib.contextmanager
def in_a_thread(serve: Callable[[], Any]) -> Iterator[str]:
    """The address of a server that runs beside the test, for clients that start event loops of their own."""
    ready, address, ends = threading.Event(), [], []

    async def main() -> None:
        async with serve() as url:
            end = asyncio.Event()
            address.append(url)
            ends.append((asyncio.get_running_loop(), end))
            ready.set()
            await end.wait()

    thread = threading.Thread(target=lambda: asyncio.run(main()))
    thread.start()
    assert ready.wait(10)
    try:
        yield address[0]
    finally:
        loop, end = ends[0]
        loop.call_soon_threadsafe(end.set)
        thread.join(10)
