"""Tasks in rows by the words that tell them apart, in any order: with a word replaced, reordered, or reworded around them."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence

import attrs

__all__ = ["CHANCE", "LEAST_WORDS", "BagMatch", "BagScan", "WordBags"]

LEAST_WORDS = 4
"""Fewer words in common say nothing."""

SHARE = 0.7
"""The least part of a task's words that a row has, each weighed by how rare it is among the rows."""

CHANCE = 0.01
"""The chance of any false alarm in a search, if the words of rows come independently of each other."""

_LONGEST = 3
"""A text with more times as many words as a task is not a copy of it."""
_SHORTEST = 30
_MOST_ROWS = 5


class WordBags:
    """The words of each task that few other tasks have.

    Attributes:
        words: of each task, in the numbering of the index.
        lengths: how many different words it has in all.
        tasks: those that have a word.
    """

    def __init__(self) -> None:
        self.words: list[frozenset[str]] = []
        self.lengths: list[int] = []
        self.tasks: dict[str, list[int]] = {}

    def add(self, texts: Sequence[Iterable[str]], groups: Sequence[Sequence[int]], most: int) -> None:
        """Add the tasks of a benchmark.

        Args:
            texts: the words of each.
            groups: the places of tasks that are one, such as copies.
            most: a word in more groups doesn't tell tasks apart.
        """
        bags = [frozenset(words) for words in texts]
        counts = Counter(word for places in groups for word in frozenset().union(*(bags[p] for p in places)))
        for bag in bags:
            own = frozenset(word for word in bag if counts[word] <= most)
            for word in own if len(own) >= LEAST_WORDS else ():
                self.tasks.setdefault(word, []).append(len(self.words))
            self.words.append(own)
            self.lengths.append(len(bag))


@attrs.frozen
class BagMatch:
    """A row that may be a task in other words: its number and id, and the words in common."""

    row: int
    row_id: str
    words: frozenset[str]


class BagScan:
    """The rows of a dataset, one after the other.

    Args:
        bags: the tasks looked for.
    """

    def __init__(self, bags: WordBags) -> None:
        self._bags = bags
        self._rows = 0
        self._having: Counter[str] = Counter()
        self._found: dict[int, list[BagMatch]] = {}

    def add(self, words: Iterable[str], row: int, row_id: str) -> list[int]:
        """Look at the words of a row; the tasks that it may be."""
        bag = frozenset(words)
        known = [word for word in bag if word in self._bags.tasks]
        self._rows += 1
        self._having.update(known)
        shared = Counter(task for word in known for task in self._bags.tasks[word])
        found = [
            task
            for task, count in shared.items()
            if count >= max(LEAST_WORDS, 0.5 * len(self._bags.words[task]))
            and len(bag) <= max(_SHORTEST, _LONGEST * self._bags.lengths[task])
        ]
        for task in found:
            match = BagMatch(row=row, row_id=row_id, words=bag & self._bags.words[task])
            rows = sorted([*self._found.get(task, ()), match], key=lambda one: -len(one.words))
            self._found[task] = rows[:_MOST_ROWS]
        return found

    def matches(self, task: int) -> list[BagMatch]:
        """The rows that have a task's words, beyond what chance gives any row of these."""
        if task not in self._found:
            return []
        rarity = {word: self._rarity(word) for word in self._bags.words[task]}
        every = math.fsum(rarity.values())
        least = math.log(self._rows * len(self._bags.words) / CHANCE)
        found = []
        for match in self._found[task]:
            shared = math.fsum(rarity[word] for word in match.words)
            if shared >= least and shared >= SHARE * every:
                found.append(match)
        return found

    def _rarity(self, word: str) -> float:
        """How surprising a word is in a row: the negative logarithm of the share of rows that have it."""
        return -math.log(max(self._having[word], 1) / self._rows)
