"""The mock's model: `logits = base + gain * alpha / rank * (x A) B` over sparse context features x.

It is what LoRA trains on a linear layer: A [buckets, rank] starts small and random, B [rank, columns] at zero, so
the untrained model is `base` alone. `vocabulary` defines the columns. All in float64.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import attrs
import numpy as np

from evsys_backend_mock.features import BUCKETS, Features
from evsys_backend_mock.vocabulary import Vocabulary

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Gradient", "LowRankModel", "widened"]

_GAIN = 512.0  # chosen so that the learning rates of real models (1e-4 to 1e-2) learn in some hundred steps
_INITIAL = 0.005  # standard deviation of A
_BLOCK = 16  # rows multiplied at once
_CHUNK = 1 << 20  # logits held at once


@attrs.frozen(kw_only=True)
class Gradient:
    """d(loss)/dA and d(loss)/dB."""

    A: NDArray[np.float64]
    B: NDArray[np.float64]

    def __add__(self, other: Gradient) -> Gradient:
        return Gradient(A=self.A + other.A, B=widened(self.B, other.B.shape[1]) + other.B)

    @property
    def norm(self) -> float:
        """The global L2 norm."""
        return float(np.sqrt(np.sum(self.A**2) + np.sum(self.B**2)))


@attrs.frozen(kw_only=True, eq=False)
class LowRankModel:
    """The weights; `A` and `B` are replaced and never written into, so a snapshot is a reference."""

    vocabulary: Vocabulary
    A: NDArray[np.float64]
    B: NDArray[np.float64]
    scale: float

    @classmethod
    def create(cls, vocabulary: Vocabulary, *, rank: int, alpha: float, seed: int) -> LowRankModel:
        """An untrained model; A depends on the seed."""
        A = np.random.default_rng([seed]).normal(scale=_INITIAL, size=(BUCKETS, rank))
        B = np.zeros((rank, vocabulary.columns))
        return cls(vocabulary=vocabulary, A=A, B=B, scale=_GAIN * alpha / rank)

    @property
    def vocab_size(self) -> int:
        """Number of token ids."""
        return len(self.vocabulary.base)

    def grown(self, tokens: NDArray[np.int64]) -> LowRankModel:
        """With columns of their own for these tokens, which start as copies of the shared one: no logprob changes."""
        return attrs.evolve(
            self,
            vocabulary=self.vocabulary.grown(tokens),
            B=np.concatenate([self.B, np.repeat(self.B[:, :1], len(tokens), axis=1)], axis=1),
        )

    def hidden(self, features: Features) -> NDArray[np.float64]:
        """The product x A for each position, [P, rank]."""
        rows = self.A[features.index]
        rows *= features.weight[:, None]
        found: NDArray[np.float64] = np.add.reduceat(rows, features.starts[:-1], axis=0)
        return found

    def column_logprobs(self, hidden: NDArray[np.float64]) -> NDArray[np.float64]:
        """Logprobs of the columns at each position, [P, columns]."""
        logits = self._logits(hidden)
        logits -= _log_sum_exp(logits)
        return logits

    def logprobs(self, features: Features, targets: NDArray[np.int64]) -> NDArray[np.float64]:
        """Logprobs of the targets, in their shape, [P] or [P, K]."""
        tokens = targets.reshape(len(targets), -1)
        columns = self.vocabulary.column[tokens]
        found = np.empty(tokens.shape)
        hidden = self.hidden(features)
        for rows in self._chunks(len(columns)):
            logits = self._logits(hidden[rows])
            found[rows] = np.take_along_axis(logits, columns[rows], axis=1) - _log_sum_exp(logits)
        return (found + self.vocabulary.within[tokens]).reshape(targets.shape)

    def gradient(
        self, features: Features, targets: NDArray[np.int64], slopes: NDArray[np.float64]
    ) -> Gradient:
        """The gradient of a loss whose derivatives by the targets' logprobs are `slopes`, in the targets' shape."""
        columns = self.vocabulary.column[targets.reshape(len(targets), -1)]
        slopes = slopes.reshape(len(targets), -1)
        active = np.flatnonzero(slopes.any(axis=1))
        if len(active) == 0:
            return Gradient(A=np.zeros_like(self.A), B=np.zeros_like(self.B))
        features, columns, slopes = features.at(active), columns[active], slopes[active]
        hidden = self.hidden(features)
        back = np.empty_like(hidden)
        gradient_B = np.zeros_like(self.B)
        for rows in self._chunks(len(active)):
            # d(loss)/d(logits) = slopes at the targets - sum(slopes) * probabilities
            by_logits = -np.exp(self.column_logprobs(hidden[rows])) * slopes[rows].sum(axis=1, keepdims=True)
            places = np.arange(len(by_logits))[:, None]
            np.add.at(by_logits, (places, columns[rows]), slopes[rows])
            left, right = _blocks(hidden[rows]), _blocks(by_logits)
            gradient_B += self.scale * np.matmul(left.transpose(0, 2, 1), right).sum(axis=0)
            back[rows] = (
                self.scale * np.matmul(right, self.B.T).reshape(-1, self.B.shape[0])[: len(by_logits)]
            )
        return Gradient(A=_scattered(features, back, self.A.shape), B=gradient_B)

    def _logits(self, hidden: NDArray[np.float64]) -> NDArray[np.float64]:
        """Logits of the columns less their maximum, [P, columns]."""
        product = np.matmul(_blocks(self.scale * hidden), self.B).reshape(-1, self.B.shape[1])
        logits: NDArray[np.float64] = product[: len(hidden)]
        logits += self.vocabulary.heads
        logits -= logits.max(axis=1, keepdims=True)
        return logits

    def _chunks(self, n: int) -> Iterator[slice]:
        size = max(_CHUNK // self.B.shape[1] // _BLOCK, 1) * _BLOCK
        return (slice(start, start + size) for start in range(0, n, size))


def widened(matrix: NDArray[np.float64], columns: int) -> NDArray[np.float64]:
    """With zeros for the columns that have come since."""
    return np.pad(matrix, ((0, 0), (0, columns - matrix.shape[1])))


def _log_sum_exp(logits: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.log(np.exp(logits).sum(axis=1, keepdims=True))


def _blocks(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    """[P, n] as blocks of as many rows each, the last filled up with zeros.

    A matrix product of one small fixed shape after the other: a row's bits don't depend on its neighbours, and no BLAS
    takes it for large enough to start threads, which cost more than they bring here.
    """
    n, width = rows.shape
    count = -(-n // _BLOCK)
    if n == count * _BLOCK:
        return rows.reshape(count, _BLOCK, width)
    filled = np.zeros((count * _BLOCK, width))
    filled[:n] = rows
    return filled.reshape(count, _BLOCK, width)


def _scattered(features: Features, back: NDArray[np.float64], shape: tuple[int, ...]) -> NDArray[np.float64]:
    """Add each position's vector, weighted, to the rows that it looked at."""
    contributions = np.repeat(back, np.diff(features.starts), axis=0) * features.weight[:, None]
    order = np.argsort(features.index, kind="stable")
    rows, firsts = np.unique(features.index[order], return_index=True)
    found: NDArray[Any] = np.zeros(shape)
    found[rows] = np.add.reduceat(contributions[order], firsts, axis=0)
    return found
