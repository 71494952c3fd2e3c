"""Warnings that are counted: each text once, with how often it was given."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

__all__ = ["WarningCounts"]


class WarningCounts:
    """What was odd in a run, for its result."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()

    def add(self, message: str) -> bool:
        """Count a warning; True when it is new."""
        self._counts[message] += 1
        return self._counts[message] == 1

    def counts(self) -> dict[str, int]:
        """How often each was given, for a checkpoint."""
        return dict(self._counts)

    def load(self, counts: Mapping[str, int]) -> None:
        """Go on from what a checkpoint counted."""
        self._counts = Counter(counts)

    def lines(self) -> tuple[str, ...]:
        """A line for each."""
        return tuple(text if n == 1 else f"{text} ({n} times)" for text, n in self._counts.items())
