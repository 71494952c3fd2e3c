"""From one event loop to another: run a coroutine there, wait for it here, and let a cancellation cross over."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextvars import Context, copy_context
from typing import Any

from evsys.errors import RolloutError

__all__ = ["OtherLoop", "retrieve"]

GRACE_SECONDS = 5.0
"""How long a cancelled coroutine on the other loop is waited for."""


class OtherLoop:
    """An event loop of another thread.

    Args:
        loop: the loop.
        context: the context variables that coroutines see there; by default those of here and now.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, context: Context | None = None) -> None:
        self.loop = loop
        self._context = context or copy_context()

    async def run[T](self, make: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run the coroutine that `make` creates there: returns or raises as it does. One cancelled here is
        cancelled there, and its end is waited for.

        Raises:
            RolloutError: it was cancelled by itself, or the loop is gone.
        """
        crossing = _Crossing(make, asyncio.get_running_loop(), self.loop, self._context.copy())
        self._call(crossing.begin)
        try:
            result: T = await asyncio.shield(crossing.outcome)
        except asyncio.CancelledError:
            self._call(crossing.cancel)
            await asyncio.wait([crossing.outcome], timeout=GRACE_SECONDS)
            raise
        return result

    def _call(self, function: Callable[[], None]) -> None:
        try:
            self.loop.call_soon_threadsafe(function)
        except RuntimeError as exc:
            raise RolloutError("the event loop that should run this is closed") from exc


class _Crossing:
    """One coroutine on its way. `begin`, `cancel` and `_on_task_end` run on the other loop, `_settle` on the own one."""

    def __init__(
        self,
        make: Callable[[], Coroutine[Any, Any, Any]],
        own: asyncio.AbstractEventLoop,
        other: asyncio.AbstractEventLoop,
        context: Context,
    ) -> None:
        self._make, self._own, self._other, self._context = make, own, other, context
        self._task: asyncio.Task[Any] | None = None
        self._unwanted = False
        self.outcome: asyncio.Future[Any] = own.create_future()
        self.outcome.add_done_callback(retrieve)

    def begin(self) -> None:
        if self._unwanted:
            self._own.call_soon_threadsafe(self._settle, RolloutError("cancelled before it began"), None)
            return
        self._task = self._other.create_task(self._make(), context=self._context)
        self._task.add_done_callback(self._on_task_end)

    def cancel(self) -> None:
        self._unwanted = True
        if self._task is not None:
            self._task.cancel()

    def _on_task_end(self, task: asyncio.Task[Any]) -> None:
        if task.cancelled():
            failure: BaseException | None = RolloutError("it was cancelled from inside")
        else:
            failure = task.exception()
        try:
            self._own.call_soon_threadsafe(
                self._settle, failure, None if failure is not None else task.result()
            )
        except RuntimeError:  # the loop that waited is closed, so no one does
            return

    def _settle(self, failure: BaseException | None, result: Any) -> None:
        if self.outcome.done():
            return
        if failure is not None:
            self.outcome.set_exception(failure)
        else:
            self.outcome.set_result(result)


def retrieve(outcome: asyncio.Future[Any]) -> None:
    """Look at the exception, so that asyncio doesn't report one whose waiter has left."""
    if not outcome.cancelled():
        outcome.exception()
