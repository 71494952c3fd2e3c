"""A limit for the time that a check takes, regardless of the cause: a plugin that hangs must not hang the suite.

If there is SIGALRM the check is interrupted wherever it is, a `time.sleep` or a loop without end included, and
fails with the place at which it was. Code that can't be interrupted (a C function that doesn't return), and
platforms without SIGALRM, leave one way only: the process ends with the stacks of all threads.
"""

from __future__ import annotations

import faulthandler
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from traceback import extract_stack
from types import FrameType
from typing import IO, Any

from evsys_conformance.places import place_in, place_of_waiting

__all__ = ["CheckTimeoutError", "Watchdog", "time_limit"]

_AGAIN_SECONDS = 1.0
"""Code that catches everything is interrupted again and again."""
_GRACE_SECONDS = 15.0


class CheckTimeoutError(BaseException):
    """A check took too long. No `except Exception` of a plugin stops it, and hypothesis doesn't try the example again."""

    def __init__(self, place: str | None) -> None:
        super().__init__(place)
        self.place = place


class Watchdog:
    """Ends the process, with the stacks of all threads, when no one extended its time for too long.

    It is a thread of its own in C, which even code that holds the interpreter can't stop. Starting it takes a millisecond, so
    its time is extended now and then only.
    """

    def __init__(self, last_words: IO[str]) -> None:
        self._last_words = last_words
        self._set_at: float | None = None

    def extend(self, seconds: float) -> None:
        """Wait for `seconds` and a while from now on."""
        now = time.monotonic()
        if self._set_at is None or now - self._set_at > _GRACE_SECONDS / 2:
            faulthandler.dump_traceback_later(seconds + _GRACE_SECONDS, exit=True, file=self._last_words)
            self._set_at = now

    def stop(self) -> None:
        """Wait no longer."""
        if self._set_at is not None:
            faulthandler.cancel_dump_traceback_later()
            self._set_at = None

    def close(self) -> None:
        """Stop, and close what it would write to."""
        self.stop()
        self._last_words.close()


@contextmanager
def time_limit(seconds: float, watchdog: Watchdog | None = None) -> Iterator[None]:
    """Interrupt what takes longer than `seconds`.

    Args:
        seconds: the limit; 0 means none.
        watchdog: ends the process where an interrupt doesn't help; without one nothing does.

    Raises:
        CheckTimeoutError: it took longer.
    """
    if seconds <= 0:
        yield
        return
    if watchdog is not None:
        watchdog.extend(seconds)
    if hasattr(signal, "SIGALRM") and threading.current_thread() is threading.main_thread():
        with _alarm(seconds):
            yield
    else:
        yield


@contextmanager
def _alarm(seconds: float) -> Iterator[None]:
    """Raise in the main thread when the time is over. An earlier alarm of someone else's goes first."""
    theirs, _ = signal.getitimer(signal.ITIMER_REAL)
    if 0 < theirs <= seconds:
        yield
        return

    fired: list[CheckTimeoutError] = []

    def interrupt(_signal: int, frame: FrameType | None) -> Any:
        fired.append(CheckTimeoutError(place_in(extract_stack(frame)) or place_of_waiting()))
        raise fired[-1]

    begin = time.monotonic()
    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, seconds, _AGAIN_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        if theirs:
            left = theirs - (time.monotonic() - begin)
            signal.setitimer(signal.ITIMER_REAL, max(left, 0.001))
        if fired:  # also where something caught it, and came to some end of its own
            raise fired[0]
