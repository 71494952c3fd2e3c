"""MinHash signatures of tasks: by these a benchmark is recognised although its tasks were reworded slightly."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import lru_cache

__all__ = ["MINIMA", "RANK_DIGITS", "SIGNATURES", "share_alike"]

SIGNATURES = 256
"""Tasks of which a signature is kept. With more tasks these are the ones of the smallest ranks, a random sample that
two benchmarks draw alike.
"""

MINIMA = 16
"""Hash functions of a signature. It has the lowest byte of the minimum of each over the features of the task (Broder
1997, "On the resemblance and containment of documents"; Li and König 2010, "b-bit minwise hashing").
"""

RANK_DIGITS = 8

_ALIKE = 9
"""Equal bytes that make two tasks nearly equal: they share more than half of their features (Jaccard)."""

type _Signature = tuple[str, ...]


@lru_cache(maxsize=4096)
def share_alike(one: Sequence[str], other: Sequence[str]) -> float:
    """The share of the smaller benchmark's tasks that the other has nearly equally; estimated for samples.

    Args:
        one: the signatures of a benchmark, in the order of their ranks: the rank as `RANK_DIGITS` hexadecimal digits, then
            `MINIMA` bytes as two each. `SIGNATURES` of them are a sample.
        other: those of another benchmark.
    """
    # Below the rank to which both samples are complete, both have every task.
    limit = min(_complete_to(one), _complete_to(other))
    first, second = sorted((_signatures_below(limit, one), _signatures_below(limit, other)), key=len)
    if not first or len(_bands(first) & _bands(second)) * 4 < len(first):
        return 0.0
    places: dict[tuple[int, str], list[int]] = {}
    for number, signature in enumerate(second):
        for place in enumerate(signature):
            places.setdefault(place, []).append(number)
    return sum(_has_mate(signature, places) for signature in first) / len(first)


def _has_mate(signature: _Signature, places: dict[tuple[int, str], list[int]]) -> bool:
    equal = Counter(number for place in enumerate(signature) for number in places.get(place, ()))
    return max(equal.values(), default=0) >= _ALIKE


def _complete_to(signatures: Sequence[str]) -> str:
    """Every task of a rank below this one has its signature there."""
    return "g" if len(signatures) < SIGNATURES else signatures[-1][:RANK_DIGITS]


def _signatures_below(limit: str, signatures: Sequence[str]) -> list[_Signature]:
    starts = range(RANK_DIGITS, RANK_DIGITS + 2 * MINIMA, 2)
    return [tuple(each[at : at + 2] for at in starts) for each in signatures if each[:RANK_DIGITS] < limit]


def _bands(signatures: Sequence[_Signature]) -> set[tuple[int, str, str]]:
    """Pairs of neighbouring bytes, of which nearly equal tasks share some: a quick way to tell most benchmarks apart."""
    return {(at, each[at], each[at + 1]) for each in signatures for at in range(0, MINIMA, 2)}
