"""Work alongside the training: so many at once, waited for or ended, and never left behind."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

__all__ = ["InFlight"]


class InFlight:
    """Tasks of one owner, at most `limit` at once."""

    def __init__(self, limit: int) -> None:
        self._room = asyncio.Semaphore(limit)
        self._tasks: set[asyncio.Task[None]] = set()
        self._error: BaseException | None = None

    async def start(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Start some work and return; where `limit` are under way, once one of them has ended.

        Raises:
            BaseException: what earlier work failed with; this one isn't started.
        """
        await self._room.acquire()
        try:
            self._check()
            task = asyncio.create_task(work())
        except BaseException:
            self._room.release()
            raise
        self._tasks.add(task)
        task.add_done_callback(self._on_task_end)

    async def wait(self) -> None:
        """Wait until nothing is under way; a cancellation of this call ends none of it.

        Raises:
            BaseException: what some of the work failed with, as soon as it did.
        """
        self._check()
        while self._tasks:
            await asyncio.wait(self._tasks, return_when=asyncio.FIRST_COMPLETED)
            self._check()

    async def end(self, seconds: float) -> int:
        """Cancel what is under way, wait for it, and say how much of it still continues after `seconds`."""
        tasks = set(self._tasks)
        for task in tasks:
            task.cancel()
        if not tasks:
            return 0
        _, left = await asyncio.wait(tasks, timeout=seconds)
        return len(left)

    def _on_task_end(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._room.release()
        error = (
            None if task.cancelled() else task.exception()
        )  # of each, or asyncio prints that no one asked for it
        self._error = self._error or error

    def _check(self) -> None:
        if self._error is not None:
            raise self._error
