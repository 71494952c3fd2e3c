"""Counted warnings: each text once, with how often it was given."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

__all__ = ["WarningCounts"]

_held: ContextVar[list[str] | None] = ContextVar("evsys_held_warnings", default=None)


class WarningCounts:
    """Counts warnings of a run, for its result."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()

    def add(self, message: str) -> bool:
        """Count a warning, or hold it inside `holding`; True when it was counted and is new."""
        held = _held.get()
        if held is not None:
            held.append(message)
            return False
        self._counts[message] += 1
        return self._counts[message] == 1

    @contextmanager
    def holding(self) -> Iterator[list[str]]:
        """Collect what this task warns of inside instead of counting it: a batch built ahead may never be used."""
        held: list[str] = []
        token = _held.set(held)
        try:
            yield held
        finally:
            _held.reset(token)

    def counts(self) -> list[tuple[str, int]]:
        """How often each was given, in the order of their first time; JSON values for a checkpoint."""
        return list(self._counts.items())

    def load(self, counts: Iterable[Sequence[object]]) -> None:
        """Continue from what a checkpoint counted."""
        self._counts = Counter({str(text): int(str(n)) for text, n in counts})

    def lines(self) -> tuple[str, ...]:
        """A line for each."""
        return tuple(text if n == 1 else f"{text} ({n} times)" for text, n in self._counts.items())
