"""The model's outputs: a column of its own for each token that is ever trained, and one that all others share.

A vocabulary of a real model has tens of thousands of tokens, of which a small run sees a few hundred. Tokens without a
column move up and down together and keep their untrained proportions among each other. Probabilities stay an exact
distribution over the whole vocabulary, at a cost that doesn't depend on its size.
"""

from __future__ import annotations

import hashlib
from functools import cached_property
from typing import TYPE_CHECKING

import attrs
import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Vocabulary"]

_SPREAD = 0.3  # standard deviation of untrained logits
_END = 0.05  # untrained probability that a turn ends here
_ALL = 1024  # a vocabulary up to this size has a column for each token from the start


@attrs.frozen(kw_only=True, eq=False, slots=False)
class Vocabulary:
    """Untrained logits of V tokens, and which of them have columns.

    `base` [V] are logits. Column 0 is shared, column i + 1 belongs to `own[i]`, [n].
    """

    base: NDArray[np.float64]
    own: NDArray[np.int64]

    @classmethod
    def create(cls, name: str, *, size: int, end_ids: tuple[int, ...]) -> Vocabulary:
        """Untrained logits that depend on the name alone; end tokens have a fair chance however many tokens there are."""
        digest = hashlib.sha256(name.encode()).digest()
        base = np.random.default_rng(list(digest)).normal(scale=_SPREAD, size=size)
        ends = np.array(sorted(set(end_ids)), dtype=np.int64)
        others = np.delete(base, ends)
        base[ends] = np.log(_END / (1 - _END) * np.exp(others).sum() / max(len(ends), 1))
        return cls(base=base, own=np.arange(size) if size <= _ALL else ends)

    @property
    def columns(self) -> int:
        """How many columns there are, the shared one included."""
        return len(self.own) + 1

    @cached_property
    def column(self) -> NDArray[np.int64]:
        """The column of each token, [V]; 0 is the shared one."""
        found = np.zeros(len(self.base), np.int64)
        found[self.own] = np.arange(1, self.columns)
        return found

    @cached_property
    def shared(self) -> NDArray[np.int64]:
        """Tokens without a column of their own, the likeliest first."""
        tokens = np.flatnonzero(self.column == 0)
        return tokens[np.argsort(-self.base[tokens], kind="stable")]

    @cached_property
    def heads(self) -> NDArray[np.float64]:
        """Untrained logits of the columns, [n + 1]."""
        with np.errstate(divide="ignore"):  # nothing is shared where every token has a column
            shared = np.log(np.exp(self.base[self.shared]).sum())
        return np.concatenate([[shared], self.base[self.own]])

    @cached_property
    def within(self) -> NDArray[np.float64]:
        """Logprob of each token within its column, [V]; 0 for tokens that have one of their own."""
        found = np.zeros(len(self.base))
        found[self.shared] = self.base[self.shared] - self.heads[0]
        return found

    def missing(self, tokens: NDArray[np.int64]) -> NDArray[np.int64]:
        """Which of these tokens have no column of their own, in rising order."""
        return np.unique(tokens[self.column[tokens] == 0])

    def grown(self, tokens: NDArray[np.int64]) -> Vocabulary:
        """With columns for these tokens too, behind those that are there."""
        return Vocabulary(base=self.base, own=np.concatenate([self.own, tokens]))
