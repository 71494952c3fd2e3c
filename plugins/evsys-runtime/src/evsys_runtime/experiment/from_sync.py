"""The door for callers without an event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

__all__ = ["run_to_end"]


def run_to_end[T](start: Callable[[], Coroutine[Any, Any, T]], *, call: str, instead: str) -> T:
    """Run a coroutine in a loop of its own.

    Args:
        start: makes the coroutine.
        call: what was called, for the message.
        instead: what to write where a loop runs already.

    Raises:
        RuntimeError: an event loop runs in this thread already.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        pass  # run below, so that no traceback of a failure begins with this one
    else:
        raise RuntimeError(f"{call} can't be called while an event loop runs; use: {instead}")
    return asyncio.run(start())
