"""What the client says in its log (paused for billing, for capacity, for a rate limit), told in the log of the run it is about.

The client logs through the standard library, process-wide and without saying which of several runs it means. Its tasks carry
the context variables of whoever made the call, which is how a message finds its run. Nothing of the client's logging changes:
one more handler listens while a run is under way.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from evsys.protocols import Log

__all__ = ["Relay", "heard_by"]

_LOGGER = "tinker"

_log: ContextVar[Log | None] = ContextVar("evsys_tinker_log", default=None)


class _Handler(logging.Handler):
    """Hands warnings of the client to the log of the run that made the call."""

    def emit(self, record: logging.LogRecord) -> None:
        """Tell the run; what belongs to none of ours is shown as it would be without this handler."""
        log = _log.get()
        if log is not None:
            log.warning("server.said", what=record.getMessage())
        elif logging.lastResort is not None and not logging.getLogger().handlers:
            logging.lastResort.handle(record)


class Relay:
    """Listens while at least one run is open. One handler serves all runs of the process."""

    _lock = threading.Lock()
    _open = 0
    _handler = _Handler(logging.WARNING)

    @classmethod
    def start(cls) -> None:
        """A run begins."""
        with cls._lock:
            if cls._open == 0:
                logging.getLogger(_LOGGER).addHandler(cls._handler)
            cls._open += 1

    @classmethod
    def stop(cls) -> None:
        """A run is over."""
        with cls._lock:
            cls._open -= 1
            if cls._open == 0:
                logging.getLogger(_LOGGER).removeHandler(cls._handler)


@contextmanager
def heard_by(log: Log | None) -> Iterator[None]:
    """Calls that are made inside tell `log` of what the client says about them, however long they take."""
    token = _log.set(log)
    try:
        yield
    finally:
        _log.reset(token)
