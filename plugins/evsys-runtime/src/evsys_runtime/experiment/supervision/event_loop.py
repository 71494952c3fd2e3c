"""The door for callers without an event loop."""

from __future__ import annotations

import asyncio
import threading
import time
import warnings
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

from evsys_runtime.experiment.supervision.interrupts import (
    Interruption,
    TerminationRequest,
    handlers_put_back,
    interruptible,
)
from evsys_runtime.experiment.supervision.stacks import Stack, place_of, stack_of, thread_stack
from evsys_runtime.places import is_known

__all__ = ["keeps_process_alive", "run_to_end"]

LEAVE_SECONDS = 2.0
"""How long what is left after a second Ctrl-C may take to write down where it was."""

END_SECONDS = 5.0
"""How long tasks and threads left at the end may take to end, each of the two."""

MOST_THREADS = 256
"""Threads of `asyncio.to_thread` at once. Python's own few are soon all taken where calls of a plugin hang."""

_left_running: list[threading.Thread] = []
"""Threads left behind at the end of a call. Python itself waits for them before it exits."""


def keeps_process_alive() -> bool:
    """True where a thread was left running that the process would wait for at its exit, maybe for ever."""
    return any(thread.is_alive() for thread in _left_running)


def run_to_end[T](
    start: Callable[[], Coroutine[Any, Any, T]],
    *,
    call: str,
    instead: str,
    tell: Callable[[str], None] | None = None,
) -> T:
    """Run a coroutine in a loop of its own. Tasks left behind are cancelled, or after some seconds left running.

    Args:
        start: makes the coroutine.
        call: the called function, for the message.
        instead: the code to write if a loop runs already.
        tell: called with the tasks left running; by default that is a `RuntimeWarning`.

    Raises:
        RuntimeError: an event loop runs in this thread already.
        KeyboardInterrupt: Ctrl-C, once the coroutine was cancelled.
        Abandoned: Ctrl-C again, before it was; its work is left as it is.
        Terminated: SIGTERM or SIGHUP, likewise.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        pass  # run below, so that no traceback of a failure begins with this one
    else:
        raise RuntimeError(f"{call} can't be called while an event loop runs; use: {instead}")

    by = Interruption()
    threads: list[threading.Thread] = []
    executor = ThreadPoolExecutor(
        MOST_THREADS, "asyncio", initializer=lambda: threads.append(threading.current_thread())
    )

    async def whole() -> T:
        # One that is known here: a loop's own would be joined without a bound.
        asyncio.get_running_loop().set_default_executor(executor)
        with interruptible(by):
            return await start()

    with handlers_put_back():
        return _execute(whole, by, executor, threads, tell)


def _execute[T](
    whole: Callable[[], Coroutine[Any, Any, T]],
    by: Interruption,
    executor: ThreadPoolExecutor,
    threads: list[threading.Thread],
    tell: Callable[[str], None] | None,
) -> T:
    """Run a coroutine, and end what it leaves behind."""
    runner = asyncio.Runner()
    try:
        return runner.run(whole())
    except asyncio.CancelledError:
        if not by.is_ctrl_c:
            raise TerminationRequest(by.exit_code) from None
        if by.times:
            raise KeyboardInterrupt from None
        raise
    finally:
        at_once = by.times > 1
        try:
            left = _end_tasks(runner.get_loop(), LEAVE_SECONDS if at_once else END_SECONDS)
            executor.shutdown(wait=False)
            left += _join(threads, 0.0 if at_once else END_SECONDS)
        finally:
            _close(runner)
        if left and not at_once:
            _tell_left(left, tell)


def _end_tasks(loop: asyncio.AbstractEventLoop, seconds: float) -> list[str]:
    """Cancel what still runs in a loop, without waiting longer for those who don't end; returns what is left."""
    tasks = asyncio.all_tasks(loop)
    for task in tasks:
        task.cancel()
    left: set[asyncio.Task[Any]] = set()
    if tasks:
        waiting = loop.create_task(asyncio.wait(tasks, timeout=seconds))
        for _ in tasks:
            # A KeyboardInterrupt that ended one task comes up again in each that waited for it.
            with suppress(KeyboardInterrupt, SystemExit):
                loop.run_until_complete(waiting)
                break
        _, left = loop.run_until_complete(waiting)
    if left:
        # They are told of below; asyncio would do it again for each, and for what they hold, when it is thrown away.
        loop.set_exception_handler(lambda _loop, _context: None)
    generators = loop.create_task(loop.shutdown_asyncgens())
    loop.run_until_complete(asyncio.wait({generators}, timeout=seconds))
    if not generators.done():
        left.add(generators)
    return sorted(f"task {task.get_name()!r}{_place(stack_of(task))}" for task in left)


def _place(stack: Stack) -> str:
    place = place_of(stack, known=is_known)
    return f" (at {place})" if place else ""


def _join(threads: Sequence[threading.Thread], seconds: float) -> list[str]:
    """Wait for threads of a loop's executor, which is shut down, no longer than that; returns those left."""
    until = time.monotonic() + seconds
    for thread in threads:
        thread.join(max(0.0, until - time.monotonic()))
    left = [thread for thread in threads if thread.is_alive()]
    _left_running[:] = [*filter(threading.Thread.is_alive, _left_running), *left]
    return sorted(f"thread {thread.name!r}{_place(thread_stack(thread.ident or 0))}" for thread in left)


def _close(runner: asyncio.Runner) -> None:
    """Close a runner's loop, of which nothing is waited for any more."""
    runner.get_loop().close()
    asyncio.set_event_loop(None)


def _tell_left(left: list[str], tell: Callable[[str], None] | None) -> None:
    names = ", ".join(left)
    text = f"left running, since it didn't end when it was cancelled: {names}"
    if tell is None:
        warnings.warn(text, RuntimeWarning, stacklevel=5)
    else:
        tell(text)
