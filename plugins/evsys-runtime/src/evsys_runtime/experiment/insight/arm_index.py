"""Every arm on record by its config, from the index alone, and how far two configs are apart."""

from __future__ import annotations

import math
from array import array
from collections.abc import Mapping

import attrs

from evsys_record.index import Index

__all__ = ["ArmsOnRecord", "distance", "positive"]

type Leaf = tuple[str, str]


@attrs.frozen(kw_only=True)
class ArmsOnRecord:
    """Every arm of an index by its config: `leaves` numbers the values at their paths, `arms` has those of each arm.

    Arms with the same numbers have the same config.
    """

    leaves: Mapping[int, Leaf]
    arms: tuple[tuple[int, str, frozenset[int]], ...]

    @classmethod
    def from_index(cls, index: Index) -> ArmsOnRecord:
        """Read from the index; arms of all experiments, by its number there."""
        leaves = {
            number: (path, value) for number, path, value in index.rows("SELECT id, path, value FROM leaf")
        }
        known: dict[bytes, frozenset[int]] = {}
        arms = []
        for experiment, arm, numbers in index.rows("SELECT experiment, arm, leaves FROM arm"):
            if numbers not in known:
                known[numbers] = frozenset(array("I", numbers))
            arms.append((experiment, arm, known[numbers]))
        return cls(leaves=leaves, arms=tuple(arms))

    def config(self, numbers: frozenset[int]) -> dict[str, str]:
        """The values of an arm by path, as JSON texts."""
        return dict(self.leaves[number] for number in numbers)


def distance(one: str | None, other: str) -> float:
    """1 for values that differ; for two positive numbers r / (1 + r), where r is the logarithm of their ratio."""
    first, second = positive(one), positive(other)
    if first is None or second is None:
        return 1.0
    ratio = abs(math.log(first / second))
    return ratio / (1.0 + ratio)


def positive(text: str | None) -> float | None:
    """The number above 0 that a JSON text is; None for anything else."""
    if not text or text[:1] not in "0123456789":
        return None
    value = float(text)
    return value if 0.0 < value < math.inf else None
