"""Blocking work alongside the event loop: that of plugins, which may be abandoned, and what must not be left half done.

Each call has a thread of its own. Those of the loop's executor (`asyncio.to_thread`) are few and shared by all runs: a plugin
that hangs in some of them would hold up the work of runs that have nothing to do with it.
"""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

__all__ = ["in_background", "to_the_end"]


async def in_background[**P, T](function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    """Like `asyncio.to_thread`, but a cancelled caller waits no longer: Ctrl-C ends a run whose transform hangs.

    The thread itself can't be ended. It continues until the process ends, and what it gives then is dropped.
    """
    loop = asyncio.get_running_loop()
    outcome: asyncio.Future[T] = loop.create_future()
    call = partial(contextvars.copy_context().run, function, *args, **kwargs)

    def settle(set_outcome: Callable[[Any], None], value: object) -> None:
        if not outcome.done():
            set_outcome(value)

    def work() -> None:
        try:
            told: tuple[Callable[[Any], None], object] = (outcome.set_result, call())
        except BaseException as exc:  # handed on to whoever waits, as an executor does
            told = (outcome.set_exception, exc)
        with suppress(RuntimeError):  # the loop is closed: no one waits any more
            loop.call_soon_threadsafe(settle, *told)

    threading.Thread(target=work, name=f"evsys {getattr(function, '__name__', 'work')}", daemon=True).start()
    return await outcome


async def to_the_end[**P, T](function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    """Like `asyncio.to_thread`, for short work whose result someone has to take care of.

    A cancellation meanwhile is put off: the result comes back all the same, and the next `await` is cancelled.
    """
    working = asyncio.create_task(in_background(function, *args, **kwargs))
    try:
        return await asyncio.shield(working)
    except asyncio.CancelledError:
        result = await working
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            task.uncancel()
            task.cancel()
        return result
