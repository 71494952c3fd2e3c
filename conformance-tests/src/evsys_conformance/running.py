"""Running what may be async, and cancelling what ought to end."""

from __future__ import annotations

import asyncio
import inspect
import socket
from collections.abc import Awaitable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["cancelled_within", "closed_address", "run", "run_to_end", "silent_address"]


def run[T](work: Coroutine[Any, Any, T]) -> T:
    """The outcome of a coroutine, in an event loop of its own."""
    return asyncio.run(work)


def run_to_end(value: Any) -> Any:
    """A value as it is, or what an awaitable gives."""
    if not inspect.isawaitable(value):
        return value

    async def wait(awaitable: Awaitable[Any]) -> Any:
        return await awaitable

    return run(wait(value))


async def cancelled_within(task: asyncio.Task[Any], seconds: float) -> bool:
    """Cancel a task and say whether it ended as cancelled in time."""
    task.cancel()
    done, _ = await asyncio.wait([task], timeout=seconds)
    return bool(done) and task.cancelled()


@contextmanager
def silent_address() -> Iterator[str]:
    """The address of a service on loopback that takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}"


def closed_address() -> str:
    """An address on loopback at which no one listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return f"http://127.0.0.1:{server.getsockname()[1]}"
