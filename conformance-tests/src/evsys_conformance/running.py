"""Running what may be async, and cancelling what ought to end."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Coroutine
from typing import Any

__all__ = ["cancelled_within", "finished", "run"]


def run[T](work: Coroutine[Any, Any, T]) -> T:
    """The outcome of a coroutine, in an event loop of its own."""
    return asyncio.run(work)


def finished(value: Any) -> Any:
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
