"""A thread that keeps a server up to date with an experiment while it runs."""

from __future__ import annotations

from collections.abc import Callable
from threading import Event, Thread

from evsys.errors import ConfigError, EvsysError
from evsys_dashboard.push.pusher import Pusher

__all__ = ["Sender"]

LONGEST_WAIT = 60.0
"""Seconds until another try, at the latest."""

LINGER_SECONDS = 10.0
"""How long it continues after the end was announced, behind which the last lines of an experiment are written."""


class Sender:
    """Sends the lines of an experiment as they are written. Nothing waits for it but `finish` and `close`.

    Failures are tried again after longer and longer waits; a refusal, which would come again, ends it.

    Args:
        pusher: of the experiment.
        seconds: time between two looks at the files.
        at_end: called in the thread at its end.
    """

    def __init__(
        self, pusher: Pusher, *, seconds: float, at_end: Callable[[], object] = lambda: None
    ) -> None:
        self.failure: EvsysError | None = None
        self._pusher = pusher
        self._seconds = seconds
        self._at_end = at_end
        self._wake = Event()
        self._finishing = self._closing = False
        self._caught_up = Event()
        self._thread = Thread(target=self._work, name="evsys-logger", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def finish(self, seconds: float) -> bool:
        """Wait until all lines so far are sent, for so long at most; whether they are."""
        self._finishing = True
        self._wake.set()
        return self._caught_up.wait(seconds) and self.failure is None

    def close(self, seconds: float) -> None:
        """Send the last lines and end, within so many seconds."""
        self._closing = True
        self._wake.set()
        self._thread.join(seconds)

    def _work(self) -> None:
        wait = lingered = 0.0
        try:
            while lingered < LINGER_SECONDS:
                self._wake.wait(wait)
                self._wake.clear()
                finishing, closing = self._finishing, self._closing
                sent = self._send_all()
                if finishing:
                    self._caught_up.set()
                    lingered += self._seconds
                if closing or isinstance(self.failure, ConfigError):
                    return
                wait = self._seconds if sent else min(max(2 * wait, self._seconds), LONGEST_WAIT)
        finally:
            self._caught_up.set()
            self._at_end()

    def _send_all(self) -> bool:
        """Send until the other side has everything; False where that failed."""
        try:
            while self._pusher.push():
                pass
        except EvsysError as exc:
            self.failure = exc
            return False
        self.failure = None
        return True
