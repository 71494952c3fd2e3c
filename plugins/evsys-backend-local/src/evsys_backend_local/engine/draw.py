"""Drawing tokens from logits."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from evsys_backend_local.engine.arrays import Array
from evsys_backend_local.engine.dispatch import arrays_of
from evsys_backend_local.engine.packing import IntArray
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
    xp = ws.xp
    top = xp.amax(logits, axis=-1, keepdims=True)
    weights = ws.take("draw", rows, padded)
    weights[:, vocab:] = 0
    xp.subtract(logits, top, out=weights[:, :vocab])
    xp.exp(weights[:, :vocab], out=weights[:, :vocab])
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
    xp, vocab = arrays_of(logits), logits.shape[1]
    for row in np.flatnonzero((temperature != 1) & (temperature != 0)):
        weights[row, :vocab] = xp.exp((logits[row] - top[row]) / temperature[row])
    for row in np.flatnonzero(((top_k > 0) & (top_k < vocab)) | (top_p < 1)):
        own = weights[row, :vocab]
        order = xp.order(-own)
        kept = vocab if top_k[row] <= 0 else min(int(top_k[row]), vocab)
        mass = xp.cumsum64(own[order[:kept]])
        kept = min(kept, int(xp.search(mass, mass[-1] * float(top_p[row]))) + 1)
        own[order[kept:]] = 0


def draw(weights: Array, uniform: NDArray[np.float64]) -> IntArray:
    """Inverse-CDF draw from unnormalised ``weights`` ``[B, V padded]`` with one of numpy's numbers a row,
    sums in float64.
    """
    xp, rows = arrays_of(weights), len(weights)
    blocks = weights.reshape(rows, -1, BLOCK)
    mass = xp.sum64(blocks)
    outer = xp.cumsum64(mass)
    wanted = xp.put(uniform) * outer[:, -1]
    block = xp.clip((outer <= wanted[:, None]).sum(axis=-1), None, outer.shape[1] - 1)
    at = xp.put(np.arange(rows))
    inner = xp.cumsum64(blocks[at, block])
    # Rounding may leave a remainder beyond the block's own mass; stay on a token that has some.
    rest = xp.clip(wanted - (outer[at, block] - mass[at, block]), 0, None)
    rest = xp.minimum(rest, xp.below(inner[:, -1]))
    return xp.host(block * BLOCK + (inner <= rest[:, None]).sum(axis=-1))
