"""Forwards the client's log messages (paused for billing, for capacity, for a rate limit) to the log of the run
that they concern.

The client logs through the standard library, process-wide and without saying which of several runs it means. Its
tasks carry the context variables of the caller, which is how a message finds its run. Nothing of the client's
logging changes: one more handler listens while a run is under way.
"""

from __future__ import annotations

import logging
import re
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import attrs

from evsys.protocols import Log

__all__ = ["Relay", "forward_messages"]

_LOGGER = "tinker"

_VARIES = re.compile(r"\S*\d\S*")
"""Seconds, times, numbers of calls: the varying parts of otherwise equal messages."""

_log: ContextVar[Log | None] = ContextVar("evsys_tinker_log", default=None)


@attrs.define(kw_only=True, eq=False)
class _Sayings:
    """The messages to one run, by kind: the first of each, and how many there were."""

    log: Log
    first: dict[str, str] = attrs.field(factory=dict)
    times: Counter[str] = attrs.field(factory=Counter)

    def add(self, what: str) -> None:
        kind = _VARIES.sub("", what)
        self.times[kind] += 1
        if self.times[kind] == 1:
            self.first[kind] = what
            self.log.warning("server.said", what=what)

    def tell_counts(self) -> None:
        for kind, times in self.times.items():
            if times > 1:
                self.log.warning("server.said", what=self.first[kind], times=times)


class _Handler(logging.Handler):
    """Hands warnings of the client to the run that made the call, while it is open."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.runs: dict[int, _Sayings] = {}

    def emit(self, record: logging.LogRecord) -> None:
        """Forward to the run; a record that belongs to none of ours is shown as without this handler."""
        log = _log.get()
        if log is not None:
            run = self.runs.get(id(log))
            if run is not None:
                run.add(record.getMessage())
        elif logging.lastResort is not None and not logging.getLogger().handlers:
            logging.lastResort.handle(record)


class Relay:
    """Listens while at least one run is open. One handler serves all runs of the process.

    A restarting server makes the client log the same message for every running call: each run logs it once, and at
    its end how often.
    """

    _lock = threading.Lock()
    _open = 0
    _handler = _Handler()

    @classmethod
    def start(cls, log: Log | None) -> None:
        """A run begins."""
        with cls._lock:
            if cls._open == 0:
                logging.getLogger(_LOGGER).addHandler(cls._handler)
            cls._open += 1
            if log is not None:
                cls._handler.runs[id(log)] = _Sayings(log=log)

    @classmethod
    def stop(cls, log: Log | None) -> None:
        """A run is over."""
        with cls._lock:
            cls._open -= 1
            if cls._open == 0:
                logging.getLogger(_LOGGER).removeHandler(cls._handler)
            sayings = cls._handler.runs.pop(id(log), None)
        if sayings is not None:
            sayings.tell_counts()


@contextmanager
def forward_messages(log: Log | None) -> Iterator[None]:
    """The client's messages about calls made inside go to `log`, however long the calls take."""
    token = _log.set(log)
    try:
        yield
    finally:
        _log.reset(token)
