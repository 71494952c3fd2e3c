"""The door for callers without an event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from evsys_runtime.experiment.interrupts import Interruption, Terminated, interruptible

__all__ = ["run_to_end"]


def run_to_end[T](start: Callable[[], Coroutine[Any, Any, T]], *, call: str, instead: str) -> T:
    """Run a coroutine in a loop of its own.

    Args:
        start: makes the coroutine.
        call: what was called, for the message.
        instead: what to write where a loop runs already.

    Raises:
        RuntimeError: an event loop runs in this thread already.
        KeyboardInterrupt: Ctrl-C, once the coroutine was cancelled.
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

    try:
        return asyncio.run(whole())
    except asyncio.CancelledError:
        if by.is_ctrl_c:
            raise
        raise Terminated(by.exit_code) from None
