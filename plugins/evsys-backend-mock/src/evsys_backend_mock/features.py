"""Context features: which rows of the model's first matrix a position looks at.

A position sees its last one, two and four tokens, and each word of the context so far bound to the last three tokens.
Every feature is hashed to one of a fixed number of rows, so that any text and any vocabulary fit. Words let the model
find what a prompt is about in a wording that it has never seen, which is what makes a learned task measurable.
"""

from __future__ import annotations

import re
import zlib
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import attrs
import numpy as np

from evsys.errors import BackendError

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = [
    "BUCKETS",
    "MAX_CONTEXT",
    "Context",
    "FeatureMap",
    "Features",
    "last_features",
    "refuse_beyond_context",
]

MAX_CONTEXT = 131_072
"""Longest sequence in tokens. Reading a million of them takes 20 s and more than a gigabyte, which one request may not cost."""

BUCKETS = 4096
"""Rows of the first matrix."""

_GRAMS = (1, 2, 4)
_BOUND = 3  # how many of the last tokens a word is bound to
_MAX_WORDS = 32  # of a long context only the latest count
_CACHED_ENTRIES = 2_000_000

_PRIME = 0x9E3779B97F4A7C15
_MASK = (1 << 64) - 1
_WORD = re.compile(rb"[a-z0-9\x80-\xff]+")


@attrs.frozen(kw_only=True)
class Features:
    """Sparse features of P positions: position p has the entries `starts[p]` to `starts[p + 1]`.

    `index` [E] are rows, `weight` [E] how much each counts; the squares of a position's weights sum to 1.
    """

    index: NDArray[np.int64]
    weight: NDArray[np.float64]
    starts: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.starts) - 1

    @staticmethod
    def joined(parts: Sequence[Features]) -> Features:
        """The positions of all parts, in order."""
        sizes = np.cumsum([0, *(len(part.index) for part in parts)])
        starts = [part.starts[:-1] + size for part, size in zip(parts, sizes[:-1], strict=True)]
        return Features(
            index=np.concatenate([part.index for part in parts]),
            weight=np.concatenate([part.weight for part in parts]),
            starts=np.concatenate([*starts, sizes[-1:]]),
        )

    def at(self, positions: NDArray[np.int64]) -> Features:
        """Only these positions."""
        counts = np.diff(self.starts)[positions]
        starts = np.concatenate([[0], np.cumsum(counts)])
        entries = np.arange(starts[-1]) + np.repeat(self.starts[:-1][positions] - starts[:-1], counts)
        return Features(index=self.index[entries], weight=self.weight[entries], starts=starts)


class FeatureMap:
    """Features of token sequences, kept for sequences seen lately.

    Args:
        vocab_size: of the tokenizer. Byte vocabularies join their tokens to words, others take each token for a word.
    """

    def __init__(self, vocab_size: int) -> None:
        self.byte_level = vocab_size < 512
        self._cache: OrderedDict[bytes, Features] = OrderedDict()
        self._cached = 0

    def of(self, tokens: NDArray[np.int64]) -> Features:
        """Features of the prediction after each token, [N]."""
        key = tokens.tobytes()
        found = self._cache.get(key)
        if found is not None:
            self._cache.move_to_end(key)
            return found
        found = self._compute(tokens)
        self._cache[key] = found
        self._cached += len(found.index)
        while self._cached > _CACHED_ENTRIES and len(self._cache) > 1:
            self._cached -= len(self._cache.popitem(last=False)[1].index)
        return found

    def _compute(self, tokens: NDArray[np.int64]) -> Features:
        n = len(tokens)
        hashes = _prefix_hashes(tokens)
        ends, words = self._words(tokens)
        # words[w] counts at position p once it has ended, unless _MAX_WORDS later ones have ended too
        ended = np.searchsorted(ends, np.arange(n), side="right")[:, None]
        order = np.arange(len(ends))[None, :]
        return _assemble(
            [hashes[gram - 1] for gram in _GRAMS],
            hashes[_BOUND - 1],
            words,
            (order < ended) & (order >= ended - _MAX_WORDS),
        )

    def _words(self, tokens: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.uint64]]:
        """Each word's end, as the position that first sees it, and its hash."""
        if not self.byte_level:
            return np.arange(len(tokens)), _mixed((tokens + 1).astype(np.uint64))
        text = np.where(tokens < 256, tokens, ord("\n")).astype(np.uint8).tobytes().lower()
        found = list(_WORD.finditer(text))
        return (
            np.array([match.end() for match in found], dtype=np.int64),
            np.array([zlib.crc32(match.group()) for match in found], dtype=np.uint64),
        )


class Context:
    """One growing sequence while it is sampled: what is needed for the features of its last position.

    Attributes:
        last: ids of the last tokens plus 1, newest first; 0 represents nothing.
        words: hashes of the complete words.
    """

    def __init__(self, tokens: Iterable[int], byte_level: bool) -> None:
        self._byte_level = byte_level
        self.last = [0] * max(_GRAMS)
        self.words: list[int] = []
        self._open = bytearray()
        for token in tokens:
            self.push(token)

    def push(self, token: int) -> None:
        """Append a token."""
        self.last = [token + 1, *self.last[:-1]]
        if not self._byte_level:
            self.words.append(_mix(token + 1))
        elif token < 256 and _WORD.match(byte := bytes((token,)).lower()):
            self._open += byte
        elif self._open:
            self.words.append(zlib.crc32(self._open))
            self._open.clear()


def last_features(contexts: Sequence[Context]) -> Features:
    """Features of the last position of each context, equal to those of `FeatureMap` there."""
    last = np.array([context.last for context in contexts], dtype=np.uint64)
    hashes = np.cumsum(last * _powers(last.shape[1]), axis=1, dtype=np.uint64)
    words = [context.words[-_MAX_WORDS:] for context in contexts]
    widest = max(map(len, words))
    table = np.array([[*row, *[0] * (widest - len(row))] for row in words], dtype=np.uint64)
    present = np.arange(widest)[None, :] < np.array([len(row) for row in words])[:, None]
    return _assemble([hashes[:, gram - 1] for gram in _GRAMS], hashes[:, _BOUND - 1], table, present)


def _assemble(
    grams: Sequence[NDArray[np.uint64]],
    bound: NDArray[np.uint64],
    words: NDArray[np.uint64],
    present: NDArray[np.bool_],
) -> Features:
    """Features from hashes of the last tokens, [P] each, and words, [W] or [P, W], with [P, W] saying which count."""
    n, width = len(bound), len(grams)
    plain = [_mixed(gram + np.uint64(i * 7919)) for i, gram in enumerate(grams)]
    pairs = _mixed(_mixed(bound + np.uint64(104729))[:, None] ^ (words * np.uint64(_PRIME)))
    rows = np.concatenate([np.stack(plain, axis=1), np.broadcast_to(pairs, present.shape)], axis=1)
    taken = np.concatenate([np.ones((n, width), bool), present], axis=1)
    counts = present.sum(axis=1)
    share = np.where(counts > 0, 0.5, 1.0)  # half of the squared length is for the words, if there are any
    weights = np.concatenate(
        [
            np.broadcast_to(np.sqrt(share / width)[:, None], (n, width)),
            np.broadcast_to(np.sqrt(0.5 / np.maximum(counts, 1))[:, None], present.shape),
        ],
        axis=1,
    )
    return Features(
        index=(rows[taken] % np.uint64(BUCKETS)).astype(np.int64),
        weight=weights[taken],
        starts=np.concatenate([[0], np.cumsum(counts + width)]),
    )


def _prefix_hashes(tokens: NDArray[np.int64]) -> list[NDArray[np.uint64]]:
    """For k = 1, 2, ...: a hash of the last k tokens at each position."""
    ids = (tokens + 1).astype(np.uint64)
    running = np.zeros(len(ids), np.uint64)
    found = []
    for k, power in enumerate(_powers(max(_GRAMS))):
        shifted = np.zeros_like(ids)
        shifted[k:] = ids[: len(ids) - k]
        running = running + shifted * power
        found.append(running)
    return found


def _powers(n: int) -> NDArray[np.uint64]:
    return np.array([pow(_PRIME, k, 1 << 64) for k in range(n)], dtype=np.uint64)


def _mixed(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The finaliser of splitmix64 (https://doi.org/10.1145/2714064.2660195), which spreads nearby values."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def _mix(x: int) -> int:
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & _MASK
    return x ^ (x >> 31)


def refuse_beyond_context(what: str, tokens: int) -> None:
    """Refuse a sequence longer than `MAX_CONTEXT`.

    Raises:
        BackendError: it is, with `tokens` and `limit` among its facts.
    """
    if tokens > MAX_CONTEXT:
        raise BackendError(
            f"{what} has {tokens} tokens, but the mock's context is {MAX_CONTEXT}",
            tokens=tokens,
            limit=MAX_CONTEXT,
        )
