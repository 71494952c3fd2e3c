"""Nearly equal texts: those that differ in a few letters or words, found without comparing every pair."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence, Set

import attrs

__all__ = [
    "ADDED",
    "REPLACED",
    "SIMILARITY",
    "NearTexts",
    "Outline",
    "alike",
    "nearly_equal_pairs",
    "outline",
]

SIMILARITY = 0.8
"""Share of trigrams of letters that two nearly equal texts have in common, of those that either has (Jaccard; Broder 1997)."""

ADDED = 0
REPLACED = 20
"""In how many words one may be replaced: `REPLACED` allows one in twenty, `ADDED` none, so that words are only added or misspelt."""

_GRAM = 3
_GRAMS, _PAIRS = (4, 5), (1, 3)
"""Shares of trigrams and of pairs of words as fractions, so that nothing is rounded."""

type _Pair = tuple[str, str]
_MISSPELT = 5
"""Letters of a word in which one may be wrong; in a shorter one that makes another word."""

_ALTERED = 4
"""Of so many words one may be misspelt or replaced."""

_NUMBER = re.compile(r"[-+*/×÷^%=<>]?\s*\d+(?:[.,]\d+)*")
_DIGIT = re.compile(r"\d")


@attrs.frozen(eq=False)
class Outline:
    """The features that texts are compared by.

    Attributes:
        text: the words with a space between them and at both ends.
        pairs: neighbouring words, the beginning and the end of the text included.
        words: the words.
        numbers: the numbers in order of size as text, each with the sign of arithmetic before it.
        own: words that another text has to have as they are, being all that distinguishes this one.
    """

    text: str
    pairs: Set[tuple[str, str]]
    words: Set[str]
    numbers: tuple[str, ...]
    own: Set[str] = frozenset()

    @property
    def grams(self) -> Set[str]:
        """Runs of three letters of the text; not kept, since few texts come to be compared by them."""
        return {self.text[at : at + _GRAM] for at in range(len(self.text) - _GRAM + 1)}


def outline(folded: str, words: Sequence[str], own: Iterable[str] = ()) -> Outline:
    """The outline of a folded text with these words."""
    return Outline(f" {' '.join(words)} ", _pairs(words), frozenset(words), _numbers(folded), frozenset(own))


def alike(one: Outline, other: Outline, replaced: int = REPLACED) -> bool:
    """Whether two texts are nearly equal.

    They are if they share `SIMILARITY` of their trigrams and a third of their pairs of neighbouring words, have the same numbers, and differ in added
    words, in words of at least five letters with one letter wrong, missing, added or swapped with the next, or in one replaced word
    for each `replaced`. Of four words at most one is misspelt or replaced.
    """
    if one.numbers != other.numbers or not one.own <= other.words:
        return False
    if not _share(one.pairs, other.pairs, _PAIRS):
        return False
    lacking, added, every = one.words - other.words, other.words - one.words, len(one.words | other.words)
    others = min(len(lacking), len(added))
    if others * _ALTERED > every or not _share(one.grams, other.grams, _GRAMS):
        return False
    if others:
        others -= _misspelt(lacking, added)
    return others == 0 or (replaced > 0 and others * replaced <= every)


class NearTexts:
    """Finds the nearly equal ones of known texts: all of them, as `alike` on each pair would.

    A text with words of its `own` is looked up by the rarest of these. For the others: two sets of which a third is shared have one of the
    rarest two thirds of their elements in common, so only these pairs of words are indexed and looked up ("prefix filtering": Bayardo,
    Ma and Srikant 2007). Rare is rare among the known texts.

    Args:
        outlines: of the known texts, which are numbered from 0.
    """

    def __init__(self, outlines: Iterable[Outline]) -> None:
        self._outlines = list(outlines)
        self._by_own: dict[str, list[int]] = {}
        self._by_pair: dict[_Pair, list[int]] = {}
        owned = [number for number, known in enumerate(self._outlines) if known.own]
        common = Counter(word for number in owned for word in self._outlines[number].own)
        for number in owned:
            rarest = min(self._outlines[number].own, key=lambda word: (common[word], word))
            self._by_own.setdefault(rarest, []).append(number)
        others = [number for number, known in enumerate(self._outlines) if not known.own]
        counts = Counter(pair for number in others for pair in self._outlines[number].pairs)
        ordered = sorted(counts, key=lambda pair: (counts[pair], pair))
        self._rank = {pair: rank for rank, pair in enumerate(ordered)}
        for number in others:
            pairs = self._outlines[number].pairs
            for pair in self._rarest(pairs, len(pairs)):
                self._by_pair.setdefault(pair, []).append(number)

    def find(self, folded: str, words: Sequence[str]) -> Iterator[int]:
        """The numbers of the known texts that are nearly equal to this folded one with these words, in order."""
        candidates = {n for word in self._by_own.keys() & set(words) for n in self._by_own[word]}
        candidates |= self._candidates(_pairs(words))
        if candidates:
            found = outline(folded, words)
            yield from (n for n in sorted(candidates) if alike(self._outlines[n], found))

    def _candidates(self, pairs: Set[_Pair]) -> set[int]:
        known = self._rank.keys() & pairs
        if len(known) * 3 < len(pairs):
            return set()
        return {n for pair in self._rarest(known, len(pairs)) for n in self._by_pair.get(pair, ())}

    def _rarest(self, known: Set[_Pair], size: int) -> list[_Pair]:
        """The elements of a set of this size of which one is shared with every similar set; unknown ones are the rarest."""
        needed = -(-size // 3)
        return sorted(known, key=self._rank.__getitem__)[: len(known) - needed + 1] if known else []


def nearly_equal_pairs(outlines: Sequence[Outline]) -> Iterator[tuple[int, int]]:
    """The places of all pairs that are `alike` with words added or misspelt and none replaced; the smaller place first.

    All words of one text are then in the other, misspelt at most. So each text is indexed by its rarest word, and words with one letter
    wrong are found by what is left without it (Garbe 2012, "symmetric delete").
    """
    common = Counter(word for known in outlines for word in known.words)
    by_word: dict[str, list[int]] = {}
    for place, known in enumerate(outlines):
        if known.words:
            for key in _spellings(min(known.words, key=lambda word: (common[word], word))):
                by_word.setdefault(key, []).append(place)
    found: set[tuple[int, int]] = set()
    for place, text in enumerate(outlines):
        keys = {key for word in text.words for key in _spellings(word)}
        others = {other for key in by_word.keys() & keys for other in by_word[key]} - {place}
        found.update((min(place, n), max(place, n)) for n in others if alike(outlines[n], text, ADDED))
    yield from sorted(found)


def _spellings(word: str) -> set[str]:
    """Keys of which words share one if they are equal or differ by one letter: wrong, missing, added or swapped."""
    if len(word) < _MISSPELT:
        return {word}
    return {word, *(word[:at] + word[at + 1 :] for at in range(len(word)))}


def _pairs(words: Sequence[str]) -> Set[_Pair]:
    return frozenset(zip(("", *words), (*words, ""), strict=True)) if words else frozenset()


def _numbers(folded: str) -> tuple[str, ...]:
    if _DIGIT.search(folded) is None:
        return ()
    return tuple(sorted("".join(found.split()) for found in _NUMBER.findall(folded)))


def _share[T](one: Set[T], other: Set[T], least: tuple[int, int]) -> bool:
    """Whether at least this fraction of the elements that either has are in both."""
    shared = len(one & other)
    return shared > 0 and least[1] * shared >= least[0] * (len(one) + len(other) - shared)


def _misspelt(some: Set[str], others: Set[str]) -> int:
    """How many of some words are others with one letter off."""
    left = sorted(others)
    count = 0
    for word in sorted(some):
        other = next((other for other in left if _differ_by_one_letter(word, other)), None)
        if other is not None:
            left.remove(other)
            count += 1
    return count


def _differ_by_one_letter(one: str, other: str) -> bool:
    """Whether words of enough letters differ by one letter: wrong, missing or swapped with the next."""
    if min(len(one), len(other)) < _MISSPELT or abs(len(one) - len(other)) > 1:
        return False
    at = next((n for n, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), None)
    if at is None:
        return True
    if len(one) > len(other):
        return one[at + 1 :] == other[at:]
    if len(one) < len(other):
        return one[at:] == other[at + 1 :]
    swapped = one[at : at + 2] == other[at : at + 2][::-1] and one[at + 2 :] == other[at + 2 :]
    return one[at + 1 :] == other[at + 1 :] or swapped
