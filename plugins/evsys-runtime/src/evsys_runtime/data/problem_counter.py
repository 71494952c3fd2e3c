"""Problems of rows, reported once for all rows that have them: ten thousand rows with one fault are one line."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import attrs

__all__ = ["ProblemCounter"]

_EXAMPLES = 3
"""The most messages reported for problems of one kind."""


@attrs.define(kw_only=True)
class ProblemCounter:
    """Counts problems by their kind, and keeps the first few of each in words.

    Attributes:
        most_kinds: kinds reported in words; others are counted.
        counts: how many there are of each kind.
    """

    most_kinds: int = 10
    counts: Counter[str] = attrs.field(factory=Counter)
    _examples: dict[str, dict[str, str]] = attrs.field(factory=dict, init=False)

    def add(self, kind: str, where: str, message: str) -> None:
        """Note a problem; `where` goes in front of its message, which may be that of other rows too."""
        self.counts[kind] += 1
        told = self._examples.get(kind)
        if told is None:
            if len(self._examples) == self.most_kinds:
                return
            told = self._examples[kind] = {}
        if message not in told and len(told) < _EXAMPLES:
            told[message] = f"{where}: {message}"

    def __len__(self) -> int:
        return self.counts.total()

    def lines(self, things: str = "rows") -> Iterator[str]:
        """The examples, kind by kind, with the number of those like them."""
        for kind, told in self._examples.items():
            *first, last = told.values()
            yield from first
            more = self.counts[kind] - len(told)
            yield last + (
                f" (and {more:,} more {things if more > 1 else things.removesuffix('s')} like it)"
                if more
                else ""
            )
        others = [kind for kind in self.counts if kind not in self._examples]
        if others:
            yield f"and {sum(self.counts[kind] for kind in others):,} more {things} with {len(others)} other problems"
