"""A thread that brings records to a service, so that training never waits for one."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future

from evsys.errors import PLUGIN_FAILURES, StoreError
from evsys_loggers.sink import Record, Sink

__all__ = ["Shipper"]

_LONGEST_WAIT = 60.0
"""Seconds until what failed is tried again at the latest."""

_MOST_HELD = 100_000
"""Records that wait for a service that can't be reached; older ones are given up and counted."""

_INTERRUPTED: tuple[str, Mapping[str, str | float]] = ("cancelled", {"status": "cancelled"})

_LAST_SECONDS = 5.0
"""How long the end of a process, or of an interrupted run, waits for what is still to be written."""


class Shipper:
    """Takes records at once and writes them in batches.

    A batch that fails is kept and tried again, after longer and longer waits, and again at the end. `failures` has
    a line for each way in which that went wrong, for the next reader.

    Args:
        name: the logger's, for messages.
        opening: makes the sink, in the thread; tried again like a batch.
        flush_seconds: time between two batches.
    """

    def __init__(self, name: str, opening: Callable[[], Sink], *, flush_seconds: float) -> None:
        self._name = name
        self._opening = opening
        self._flush_seconds = flush_seconds
        self._records: deque[Record] = deque()
        self._batch: list[Record] = []
        self._sink: Sink | None = None
        self._lost = 0
        self._failures: deque[StoreError] = deque()
        self._told: set[str] = set()
        self._closing = threading.Event()
        self._end = _INTERRUPTED
        self.done: Future[None] = Future()
        self._thread = threading.Thread(target=self._work, name=f"evsys-{name}", daemon=True)
        self._thread.start()

    def put(self, record: Record) -> None:
        """Take a record; returns at once."""
        self._records.append(record)

    def failure(self) -> StoreError | None:
        """The oldest failure that no one took yet."""
        return self._failures.popleft() if self._failures else None

    def close(self, status: str, facts: Mapping[str, str | float]) -> None:
        """Write what is left, then the end; `done` is done afterwards. Returns at once; only the first call counts."""
        if not self._closing.is_set():
            self._end = (status, facts)
            self._closing.set()

    def abandon(self) -> None:
        """Close as interrupted, and wait some seconds for it."""
        self.close(*_INTERRUPTED)
        if threading.current_thread() is not self._thread:
            self._thread.join(_LAST_SECONDS)

    # --- in the thread --------------------------------------------------------------------------------------------

    def _work(self) -> None:
        wait = 0.0
        try:
            while not self._closing.wait(wait):
                wait = self._flush_seconds if self._ship() else min(max(2 * wait, 1.0), _LONGEST_WAIT)
            shipped = self._ship()
            if self._sink is not None:
                self._attempt("can't be closed", lambda sink: sink.close(*self._end))
            lost = self._lost + (0 if shipped else len(self._batch))
            if lost:
                self._fail(f"{lost} records were not written; the record of the run has them")
        finally:
            self.done.set_result(None)

    def _ship(self) -> bool:
        """Write what there is; False where that failed."""
        while self._records:
            self._batch.append(self._records.popleft())
        over = len(self._batch) - _MOST_HELD
        if over > 0:
            self._lost += over
            del self._batch[:over]
        if not self._attempt("can't be written to", self._write):
            return False
        self._batch.clear()
        return True

    def _write(self, sink: Sink) -> None:
        if self._batch:
            sink.write(self._batch)

    def _attempt(self, what: str, call: Callable[[Sink], None]) -> bool:
        try:
            if self._sink is None:
                what = "can't be opened"
                self._sink = self._opening()
            call(self._sink)
        except PLUGIN_FAILURES as exc:
            self._fail(f"{what}: {type(exc).__name__}: {exc}", exc)
            return False
        return True

    def _fail(self, text: str, cause: BaseException | None = None) -> None:
        if text not in self._told:
            self._told.add(text)
            error = StoreError(f"{self._name} {text}")
            error.__cause__ = cause
            self._failures.append(error)


def now() -> float:
    """Seconds since 1970."""
    return time.time()
