"""The door for callers without an event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from evsys_runtime.experiment.interrupts import Interruption, Terminated, interruptible

__all__ = ["run_to_end"]

LEAVE_SECONDS = 2.0
"""How long what is left after a second Ctrl-C may take to write down where it was."""


def run_to_end[T](start: Callable[[], Coroutine[Any, Any, T]], *, call: str, instead: str) -> T:
    """Run a coroutine in a loop of its own.

    Args:
        start: makes the coroutine.
        call: what was called, for the message.
        instead: what to write where a loop runs already.

    Raises:
        RuntimeError: an event loop runs in this thread already.
        KeyboardInterrupt: Ctrl-C, once the coroutine was cancelled.
        Abandoned: Ctrl-C once more, before it was; what it does is left where it is.
        Terminated: SIGTERM or SIGHUP, likewise.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        pass  # run below, so that no traceback of a failure begins with this one
    else:
        raise RuntimeError(f"{call} can't be called while an event loop runs; use: {instead}")

    by = Interruption()

    async def whole() -> T:
        with interruptible(by):
            return await start()

    runner = asyncio.Runner()
    try:
        return runner.run(whole())
    except asyncio.CancelledError:
        if not by.is_ctrl_c:
            raise Terminated(by.exit_code) from None
        if by.times:
            raise KeyboardInterrupt from None
        raise
    finally:
        if by.times < 2:
            runner.close()
        else:
            _leave(runner.get_loop())


def _leave(loop: asyncio.AbstractEventLoop) -> None:
    """Close a loop without waiting for those who don't end, as a runner would."""
    tasks = asyncio.all_tasks(loop)
    for task in tasks:
        task.cancel()
    if tasks:
        loop.run_until_complete(asyncio.wait(tasks, timeout=LEAVE_SECONDS))
    loop.close()
