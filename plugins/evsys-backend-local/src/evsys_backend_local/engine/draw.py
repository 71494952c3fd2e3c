"""Drawing tokens from logits."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from evsys_backend_local.engine.packing import IntArray
from evsys_backend_local.engine.params import Array
from evsys_backend_local.engine.workspace import Workspace

#: Tokens per block of the two-level search.
BLOCK = 256


def uniforms(seed: int, index: int, count: int) -> NDArray[np.float64]:
    """Random stream of one sample: ``[count]`` numbers in [0, 1) that depend on (seed, index) alone."""
    return np.random.default_rng([seed, index]).random(count)


def log_normaliser(logits: Array, ws: Workspace) -> tuple[Array, Array, Array]:
    """Maximum ``[B, 1]``, ``exp(logits - max)`` ``[B, V padded]`` and its sum ``[B, 1]``; zeros pad the last block."""
    rows, vocab = logits.shape
    padded = -(-vocab // BLOCK) * BLOCK
    top = logits.max(axis=-1, keepdims=True)
    weights = ws.take("draw", rows, padded)
    weights[:, vocab:] = 0
    np.subtract(logits, top, out=weights[:, :vocab])
    np.exp(weights[:, :vocab], out=weights[:, :vocab])
    return top, weights, weights[:, :vocab].sum(axis=-1, keepdims=True)


def reshape_distribution(
    weights: Array,
    logits: Array,
    top: Array,
    *,
    temperature: NDArray[np.float64],
    top_k: IntArray,
    top_p: NDArray[np.float64],
) -> None:
    """Change ``weights`` in place from temperature 1 to each row's temperature, top-k and top-p.

    Args:
        weights: ``[B, V padded]``, ``exp(logits - top)``.
        logits: ``[B, V]``.
        top: ``[B, 1]``.
        temperature: ``[B]``; rows at 0 are left alone, they are greedy.
        top_k: ``[B]``; 0 keeps all tokens.
        top_p: ``[B]``; 1 keeps all tokens. Kept is the smallest set of likeliest tokens that reaches the mass.
    """
    vocab = logits.shape[1]
    for row in np.flatnonzero((temperature != 1) & (temperature != 0)):
        weights[row, :vocab] = np.exp((logits[row] - top[row]) / temperature[row])
    for row in np.flatnonzero(((top_k > 0) & (top_k < vocab)) | (top_p < 1)):
        own = weights[row, :vocab]
        order = np.argsort(-own, kind="stable")
        kept = vocab if top_k[row] <= 0 else min(int(top_k[row]), vocab)
        mass = np.cumsum(own[order[:kept]], dtype=np.float64)
        kept = min(kept, int(np.searchsorted(mass, top_p[row] * mass[-1])) + 1)
        own[order[kept:]] = 0


def draw(weights: Array, uniform: NDArray[np.float64]) -> IntArray:
    """Inverse-CDF draw from unnormalised ``weights`` ``[B, V padded]`` with one number a row, sums in float64."""
    rows = len(weights)
    blocks = weights.reshape(rows, -1, BLOCK)
    mass = blocks.sum(axis=-1, dtype=np.float64)
    outer = np.cumsum(mass, axis=-1)
    wanted = uniform * outer[:, -1]
    block = np.minimum((outer <= wanted[:, None]).sum(axis=-1), outer.shape[1] - 1)
    at = np.arange(rows)
    inner = np.cumsum(blocks[at, block], axis=-1, dtype=np.float64)
    # Rounding may leave a remainder beyond the block's own mass; stay on a token that has some.
    rest = np.clip(wanted - (outer[at, block] - mass[at, block]), 0, np.nextafter(inner[:, -1], 0))
    chosen: IntArray = block * BLOCK + (inner <= rest[:, None]).sum(axis=-1)
    return chosen
