"""Whose a `CancelledError` is: somebody's who ends this task, or that of what it awaits."""

from __future__ import annotations

import asyncio

__all__ = ["own_task_cancelled"]


def own_task_cancelled() -> bool:
    """True where somebody cancelled this task; False where what it awaits, a plugin or a call, was cancelled by itself."""
    task = asyncio.current_task()
    return task is None or task.cancelling() > 0
