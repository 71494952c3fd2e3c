"""Treats requests to end the process (a closed terminal, a scheduler, `kill`) like Ctrl-C: the run stops, and its
record says so.
"""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from types import FrameType

import attrs

from evsys_runtime.cancelling import own_task_cancelled

__all__ = [
    "AbandonRequest",
    "Interruption",
    "TerminationRequest",
    "asked_to_stop",
    "handlers_put_back",
    "interruptible",
    "interruption",
]

TERMINATING = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name))


class TerminationRequest(SystemExit):
    """A signal asked the process to end. No one who catches it needs to do more than let it pass."""

    def __init__(self, exit_code: int) -> None:
        super().__init__(exit_code)
        self.exit_code = exit_code


class AbandonRequest(KeyboardInterrupt):
    """Ctrl-C came again while the work was being ended: what doesn't end at once is left where it is."""


@attrs.define(eq=False)
class Interruption:
    """Which signal ended the work; Ctrl-C until another one comes. `times` counts how often Ctrl-C came."""

    signum: int = signal.SIGINT
    times: int = 0

    @property
    def is_ctrl_c(self) -> bool:
        """True unless another signal came."""
        return self.signum == signal.SIGINT

    @property
    def exit_code(self) -> int:
        """128 and the signal's number, as shells count it."""
        return 128 + self.signum

    @property
    def reason(self) -> str:
        """Why the work ended, in words."""
        return "interrupted" if self.is_ctrl_c else f"interrupted by {signal.Signals(self.signum).name}"


_current: ContextVar[Interruption | None] = ContextVar("evsys_interruption", default=None)


def asked_to_stop(exc: BaseException) -> bool:
    """True for Ctrl-C and for a cancellation from outside; False for a `CancelledError` that a plugin raised."""
    return isinstance(exc, KeyboardInterrupt) or own_task_cancelled()


def interruption() -> Interruption:
    """The interruption that ended the work of this task, once it is cancelled."""
    return _current.get() or Interruption()


@contextmanager
def interruptible(found: Interruption) -> Iterator[None]:  # noqa: C901 - handlers that share what they restore
    """Cancel the current task on Ctrl-C, SIGTERM and SIGHUP, and note in `found` which it was.

    A signal that the program handles itself, or ignores (as `nohup` has it), is left to it. The second SIGTERM or SIGHUP
    ends the process at once, the second Ctrl-C raises `Abandoned`. Python lets only the main thread listen, so elsewhere
    nothing changes.
    """
    task, loop = asyncio.current_task(), asyncio.get_running_loop()
    runners = signal.getsignal(signal.SIGINT)

    def cancel() -> None:
        if task is not None:
            task.cancel()  # here and now, as asyncio does it on Ctrl-C: what runs in tasks of its own continues no longer
            loop.call_soon_threadsafe(lambda: None)  # an idle loop has to wake up for it

    def interrupt(_signum: int, _frame: FrameType | None) -> None:
        found.times += 1
        if found.times > 1:
            restore()  # the task may never come to its end
            raise AbandonRequest
        cancel()

    def end(signum: int, _frame: FrameType | None) -> None:
        found.signum = signum
        signal.signal(signum, signal.SIG_DFL)
        cancel()

    main = threading.current_thread() is threading.main_thread()
    ours = [signum for signum in TERMINATING if main and signal.getsignal(signum) is signal.SIG_DFL]
    for signum in ours:
        signal.signal(signum, end)
    # asyncio's own handler, which it puts in the place of Python's, would wait for every task at the second one as well.
    asyncios = main and _is_asyncios(runners)
    if asyncios:
        signal.signal(signal.SIGINT, interrupt)
    token = _current.set(found)

    def restore() -> None:
        for signum in ours:
            signal.signal(signum, signal.SIG_DFL)
        if asyncios:
            signal.signal(signal.SIGINT, runners)

    try:
        yield
    finally:
        _current.reset(token)
        if found.times < 2:
            restore()


@contextmanager
def handlers_put_back() -> Iterator[None]:
    """Leave no handler of a loop behind that has ended: a KeyboardInterrupt of a plugin's own may end one before it tidies up."""
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        if _is_asyncios(signal.getsignal(signal.SIGINT)) and not _is_asyncios(before):
            signal.signal(signal.SIGINT, before)


def _is_asyncios(handler: object) -> bool:
    return isinstance(getattr(getattr(handler, "func", None), "__self__", None), asyncio.Runner)
