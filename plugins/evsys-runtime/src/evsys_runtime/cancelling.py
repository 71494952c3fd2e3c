"""Cancellation: whether it is meant for this task or for something it awaits, and letting go of work whose outcome is not wanted."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable
from typing import Any

__all__ = ["abandon", "own_task_cancelled"]


def own_task_cancelled() -> bool:
    """True where someone cancelled this task; False where what it awaits, a plugin or a call, was cancelled by itself."""
    task = asyncio.current_task()
    return task is None or task.cancelling() > 0


def abandon(pending: Awaitable[Any]) -> None:
    """Let go of something submitted whose outcome no one will look at, so that nothing complains about it later."""
    if inspect.iscoroutine(pending):
        pending.close()
    elif isinstance(pending, asyncio.Future):
        pending.add_done_callback(lambda future: future.cancelled() or future.exception())
        pending.cancel()
