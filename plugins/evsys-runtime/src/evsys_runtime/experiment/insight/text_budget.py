"""Fits the knowledge to a number of tokens: everything is named before anything is described at length."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any

import attrs

from evsys_runtime.experiment.insight.findings import Wording
from evsys_runtime.experiment.insight.markdown import LEAST, SECTIONS
from evsys_runtime.experiment.insight.results import Context, Fit

__all__ = ["BYTES_OF_TOKEN", "Whole", "fit", "tokens_of"]

BYTES_OF_TOKEN = 4
"""Bytes of UTF-8 counted as one token: what tokenizers make of English and JSON, about."""

_FOR_NOTES = 160
"""Bytes kept free for what is said of the rest."""

_FOR_COUNTS = 20
"""The same once most of it is there."""

_FOR_WORDS = 0.5
"""Of what is left once all but the least useful is named, the share for describing these at length."""

type Entries = Sequence[Wording[Any]]
type Place = tuple[str, int]


@attrs.frozen(kw_only=True, eq=False)
class Whole:
    """All knowledge, however long: `head` without sections, and these in few words and in all."""

    head: Context
    sections: Mapping[str, Entries]


def tokens_of(text: str) -> int:
    """The estimated tokens of a text in a model's context."""
    return -(-_bytes(text) // BYTES_OF_TOKEN)


def fit(whole: Whole, tokens: int, written: Callable[[Context], str]) -> Context:
    """As much of it as at most so many tokens hold.

    First everything is named in few words: the first of each section, the second of each, ... Half of the remaining
    space then describes these at length, in the same order; the other half names the least useful ones, and the
    rest describes more.

    Args:
        whole: all knowledge.
        tokens: the most to write.
        written: the text made of it.
    """
    fitting = _Fitting(whole=whole, limit=tokens, written=written)
    names = fitting.affordable()
    first = [name for name in names if name != LEAST]
    for _ in range(2):  # by the estimate, then by what that left in truth
        fitting.name(_interleave(whole.sections, first))
        fitting.measure()
    fitting.tell(_interleave(fitting.named, names), keep=round(fitting.left * (1 - _FOR_WORDS)))
    fitting.name(_interleave(whole.sections, [name for name in names if name == LEAST]))
    fitting.tell(_interleave(fitting.named, names), keep=0)
    return fitting.fit_to_budget()


@attrs.define(kw_only=True, eq=False, slots=False)
class _Fitting:
    """The named items, and those described at length; `left` are bytes, added up from parts and measured in the
    end.
    """

    whole: Whole
    limit: int
    written: Callable[[Context], str]
    left: int = 0
    named: dict[str, list[Wording[Any]]] = attrs.field(factory=lambda: {name: [] for name in SECTIONS})
    told: list[Place] = attrs.field(factory=list)

    def __attrs_post_init__(self) -> None:
        self._size = cache(self._size_of)

    def affordable(self) -> list[str]:
        """The sections whose headings, and one entry each, leave room for something; the first always."""
        names = [name for name in SECTIONS if self.whole.sections[name]]
        while True:
            firsts = {name: [self.whole.sections[name][0]] for name in names}
            around = _bytes(self.written(_with(self.whole, firsts, [], self.limit)))
            self.left = self.limit * BYTES_OF_TOKEN - _FOR_NOTES - around
            if self.left >= 0 or len(names) < 2:
                self.left += sum(self._size(name, entries[0].brief) for name, entries in firsts.items())
                return names
            names.pop()

    def name(self, places: Iterator[Place]) -> None:
        """Name what there is room for in few words; of a section nothing that comes after what there was none for."""
        full: set[str] = set()
        for name, place in places:
            if place < len(self.named[name]):
                continue
            entry = self.whole.sections[name][place]
            size = self._size(name, entry.brief)
            if name in full or size > self.left:
                full.add(name)
                continue
            self.left -= size
            self.named[name].append(entry)

    def tell(self, places: Iterator[Place], *, keep: int) -> None:
        """Describe items at length while there is room besides the kept ones."""
        for name, place in places:
            entry = self.named[name][place]
            more = self._size(name, entry.full) - self._size(name, entry.brief)
            if 0 < more <= self.left - keep and (name, place) not in self.told:
                self.left -= more
                self.told.append((name, place))

    def measure(self) -> None:
        """Count again what is left."""
        text = self.written(_with(self.whole, self.named, self.told, self.limit))
        self.left = self.limit * BYTES_OF_TOKEN - _FOR_COUNTS - _bytes(text)

    def fit_to_budget(self) -> Context:
        """The whole text is measured; where it is too long after all, what came last goes."""
        while True:
            found = _with(self.whole, self.named, self.told, self.limit)
            taken = tokens_of(self.written(found))
            if taken <= self.limit or not any(self.named.values()):
                assert found.fit is not None
                return attrs.evolve(found, fit=attrs.evolve(found.fit, tokens=taken))
            if self.told:
                self.told.pop()
            else:
                max(self.named.values(), key=len).pop()

    def _size_of(self, name: str, entry: Any) -> int:
        """Bytes that an entry adds: what two of it take beyond one."""
        several: list[dict[str, Any]] = [{name: (entry,) * count} for count in (1, 2)]
        one, two = (_bytes(self.written(attrs.evolve(self.whole.head, **each))) for each in several)
        return two - one


def _bytes(text: str) -> int:
    return len(text.encode("utf-8", "replace"))


def _with(whole: Whole, named: Mapping[str, Entries], told: Sequence[Place], limit: int) -> Context:
    """The named items, and the counts of the rest; `tokens` takes as much room as it may."""
    at_length = set(told)
    entries: dict[str, Any] = {
        name: tuple(
            entry.full if (name, place) in at_length else entry.brief
            for place, entry in enumerate(named.get(name, ()))
        )
        for name in SECTIONS
    }
    left_out = {name: len(whole.sections[name]) - len(entries[name]) for name in SECTIONS}
    shortened = {
        name: sum(
            entry.full != found for entry, found in zip(named.get(name, ()), entries[name], strict=True)
        )
        for name in SECTIONS
    }
    fit = Fit(
        limit=limit,
        tokens=limit,
        left_out={name: count for name, count in left_out.items() if count},
        shortened={name: count for name, count in shortened.items() if count},
    )
    return attrs.evolve(whole.head, **entries, fit=fit)


def _interleave(sections: Mapping[str, Entries], names: Sequence[str]) -> Iterator[Place]:
    """The first of each section, then the second of each, ..."""
    for place in range(max((len(sections[name]) for name in names), default=0)):
        yield from ((name, place) for name in names if place < len(sections[name]))
