"""The events of an experiment: what happened in it, one line each, numbered over all its processes and resumes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from threading import Lock
from typing import Any

import attrs

from evsys_record.encoding import now
from evsys_record.jsonl import JsonlWriter, read_jsonl

__all__ = ["EVENTS", "Event", "EventLog", "event_of", "read_events"]

EVENTS = "events.jsonl"


@attrs.frozen(kw_only=True)
class Event:
    """Something that happened.

    Attributes:
        seq: its number, strictly increasing over resumes.
        at: the time, ISO 8601 in UTC.
        event: what happened, dotted and in the past tense: `run.started`, `evaluation.finished`.
        run: the run it happened in; None for the experiment as a whole.
        attempt: of that run.
        facts: more about it, JSON values.
    """

    seq: int
    at: str
    event: str
    run: str | None
    attempt: int | None
    facts: Mapping[str, Any]


class EventLog:
    """Appends to `events.jsonl`. One process writes, from any of its threads.

    Args:
        directory: the experiment's folder.
        scrub: takes secrets out of a line before it is written.
        guard: raises where nothing may be written.
    """

    def __init__(
        self,
        directory: Path,
        *,
        scrub: Callable[[str], str] | None = None,
        guard: Callable[[], None] = lambda: None,
    ) -> None:
        self._path = directory / EVENTS
        self._writer = JsonlWriter(self._path, scrub=scrub)
        self._guard = guard
        self._lock = Lock()
        self._last: int | None = None

    def append(self, event: str, *, run: str | None = None, attempt: int | None = None, **facts: Any) -> int:
        """Put an event on record; its number.

        Raises:
            StoreError: the disk is full, or the guard refuses.
        """
        self._guard()
        with self._lock:
            if self._last is None:
                self._last = max((line["seq"] for line in read_jsonl(self._path, missing_ok=True)), default=0)
            number = self._last + 1
            line = {
                "seq": number,
                "at": now(),
                "event": event,
                "run": run,
                "attempt": attempt,
                "facts": facts,
            }
            self._writer.write(line)
            self._last = number
            return number

    def close(self) -> None:
        """Release the file. Safe to call twice."""
        self._writer.close()


def read_events(directory: Path, *, after: int = 0) -> Iterator[Event]:
    """The events of an experiment on record, those with a number above `after`.

    Raises:
        StoreError: the file can't be read.
    """
    for line in read_jsonl(directory / EVENTS, missing_ok=True):
        if line["seq"] > after:
            yield event_of(line)


def event_of(line: Mapping[str, Any]) -> Event:
    """The event of a line of `events.jsonl`."""
    return Event(**{field.name: line[field.name] for field in attrs.fields(Event)})
