"""Waiting for an awaitable from plain code, whether or not an event loop runs in this thread."""

from __future__ import annotations

import contextvars
import inspect
from typing import Any

__all__ = ["wait_for"]


def wait_for(value: Any) -> Any:
    """The result of an awaitable; any other value as it is.

    If a loop runs already, the awaitable gets a loop and a thread of its own, and this thread waits for it.
    """
    if not inspect.isawaitable(value):
        return value
    import asyncio

    async def awaited() -> Any:
        return await value

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(awaited())
    from concurrent.futures import ThreadPoolExecutor

    context = contextvars.copy_context()
    with ThreadPoolExecutor(max_workers=1) as thread:
        return thread.submit(context.run, asyncio.run, awaited()).result()
