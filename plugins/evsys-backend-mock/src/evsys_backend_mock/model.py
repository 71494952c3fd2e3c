"""The mock's model: `logits = base + gain * alpha / rank * (x A) B` over sparse context features x.

It is what LoRA trains on a linear layer: A [buckets, rank] starts small and random, B [rank, vocabulary] at zero, so
the untrained model is `base` alone. All in float64.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import attrs
import numpy as np

from evsys_backend_mock.features import BUCKETS, Features

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Gradient", "LowRankModel"]

_GAIN = 128.0  # chosen so that the learning rates of real models (1e-4 to 1e-2) learn in some hundred steps
_INITIAL = 0.02  # standard deviation of A
_END_BUMP = 2.0  # the untrained model ends its turns
_BLOCK = 16  # rows multiplied at once
_CHUNK = 1 << 20  # logits held at once


@attrs.frozen(kw_only=True)
class Gradient:
    """d(loss)/dA and d(loss)/dB."""

    A: NDArray[np.float64]
    B: NDArray[np.float64]

    def __add__(self, other: Gradient) -> Gradient:
        return Gradient(A=self.A + other.A, B=self.B + other.B)

    @property
    def norm(self) -> float:
        """The global L2 norm."""
        return float(np.sqrt(np.sum(self.A**2) + np.sum(self.B**2)))


@attrs.frozen(kw_only=True, eq=False)
class LowRankModel:
    """The weights; `A` and `B` are replaced and never written into, so a snapshot is a reference."""

    base: NDArray[np.float64]
    A: NDArray[np.float64]
    B: NDArray[np.float64]
    scale: float

    @classmethod
    def create(
        cls, name: str, *, vocab_size: int, end_ids: tuple[int, ...], rank: int, alpha: float, seed: int
    ) -> LowRankModel:
        """An untrained model: `base` depends on the name alone, A on the seed."""
        digest = hashlib.sha256(name.encode()).digest()
        base = np.random.default_rng(list(digest)).normal(scale=0.3, size=vocab_size)
        base[list(end_ids)] += _END_BUMP
        A = np.random.default_rng([seed]).normal(scale=_INITIAL, size=(BUCKETS, rank))
        return cls(base=base, A=A, B=np.zeros((rank, vocab_size)), scale=_GAIN * alpha / rank)

    @property
    def vocab_size(self) -> int:
        """Number of token ids."""
        return len(self.base)

    def hidden(self, features: Features) -> NDArray[np.float64]:
        """The product x A for each position, [P, rank]."""
        rows = self.A[features.index]
        rows *= features.weight[:, None]
        found: NDArray[np.float64] = np.add.reduceat(rows, features.starts[:-1], axis=0)
        return found

    def logprobs_all(self, hidden: NDArray[np.float64]) -> NDArray[np.float64]:
        """Logprobs of the whole vocabulary at each position, [P, V]."""
        logits = self._logits(hidden)
        logits -= _log_sum_exp(logits)
        return logits

    def logprobs(self, features: Features, targets: NDArray[np.int64]) -> NDArray[np.float64]:
        """Logprobs of the targets, in their shape, [P] or [P, K]."""
        columns = targets.reshape(len(targets), -1)
        found = np.empty(columns.shape)
        hidden = self.hidden(features)
        for rows in self._chunks(len(columns)):
            logits = self._logits(hidden[rows])
            found[rows] = np.take_along_axis(logits, columns[rows], axis=1) - _log_sum_exp(logits)
        return found.reshape(targets.shape)

    def gradient(
        self, features: Features, targets: NDArray[np.int64], slopes: NDArray[np.float64]
    ) -> Gradient:
        """The gradient of a loss whose derivatives by the targets' logprobs are `slopes`, in the targets' shape."""
        columns, slopes = targets.reshape(len(targets), -1), slopes.reshape(len(targets), -1)
        active = np.flatnonzero(slopes.any(axis=1))
        if len(active) == 0:
            return Gradient(A=np.zeros_like(self.A), B=np.zeros_like(self.B))
        features, columns, slopes = features.at(active), columns[active], slopes[active]
        hidden = self.hidden(features)
        back = np.empty_like(hidden)
        gradient_B = np.zeros_like(self.B)
        for rows in self._chunks(len(active)):
            # d(loss)/d(logits) = slopes at the targets - sum(slopes) * probabilities
            by_logits = -np.exp(self.logprobs_all(hidden[rows])) * slopes[rows].sum(axis=1, keepdims=True)
            places = np.arange(len(by_logits))[:, None]
            np.add.at(by_logits, (places, columns[rows]), slopes[rows])
            left, right = _blocks(hidden[rows]), _blocks(by_logits)
            gradient_B += self.scale * np.matmul(left.transpose(0, 2, 1), right).sum(axis=0)
            back[rows] = (
                self.scale * np.matmul(right, self.B.T).reshape(-1, self.B.shape[0])[: len(by_logits)]
            )
        return Gradient(A=_scattered(features, back, self.A.shape), B=gradient_B)

    def _logits(self, hidden: NDArray[np.float64]) -> NDArray[np.float64]:
        """Logits less their maximum, [P, V]."""
        product = np.matmul(_blocks(self.scale * hidden), self.B).reshape(-1, self.vocab_size)
        logits: NDArray[np.float64] = product[: len(hidden)]
        logits += self.base
        logits -= logits.max(axis=1, keepdims=True)
        return logits

    def _chunks(self, n: int) -> Iterator[slice]:
        size = max(_CHUNK // self.vocab_size // _BLOCK, 1) * _BLOCK
        return (slice(start, start + size) for start in range(0, n, size))


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
