"""Causal grouped-query attention over the blocks of a pack, forward and backward."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from evsys_backend_local.engine.arrays import Array
from evsys_backend_local.engine.packing import Block, Pack
from evsys_backend_local.engine.shape import ModelShape
from evsys_backend_local.engine.workspace import Workspace

#: ``past(layer, block)`` gives pieces ``[tokens, 2 * kv_heads, head_dim]`` that together are the block's past: rotated keys,
#: then values.
Past = Callable[[int, Block], Sequence[Array]]


#: Query rows of a block: more of them need fewer products, and compute more scores that the mask hides.
BLOCK_ROWS = 64


def _first_key(block: Block) -> int | None:
    """First of the rows that the keys come from where these are one range; else None."""
    first = block.start - len(block.outside)
    return first if np.array_equal(block.outside, np.arange(first, block.start)) else None


class Attention:
    """Attention of one pack.

    ``qkv`` is ``[rows, heads + 2 * kv_heads, head_dim]``, rotated. Query heads that share a key head are laid side
    by side, so each product runs over ``[kv_heads, group * rows, head_dim]``.

    Args:
        shape: the model's sizes.
        pack: rows and blocks.
        ws: scratch memory.
        keep: remember the probabilities of every layer for the backward pass. Without, they are computed again.
        past: gives the keys and values of what lies before a block's rows; there is no backward pass with it.
    """

    def __init__(
        self, shape: ModelShape, pack: Pack, ws: Workspace, *, keep: bool, past: Past | None = None
    ) -> None:
        self.shape = shape
        self.pack = pack
        self.ws = ws
        self.keep = keep
        self.past = past
        self.group = shape.heads // shape.kv_heads
        self.scale = shape.head_dim**-0.5
        xp = self.xp = ws.xp
        self.masks = [xp.put(block.mask) for block in pack.blocks]
        self.outside = [xp.put(block.outside) for block in pack.blocks]
        #: If it isn't None, the keys are a view of rows from there on instead of a copy.
        self.first = [_first_key(block) for block in pack.blocks]
        sizes = [shape.heads * (block.end - block.start) * block.keys for block in pack.blocks]
        self.offsets = np.concatenate([[0], np.cumsum(sizes)]).tolist()

    def forward(self, layer: int, qkv: Array, out: Array) -> None:
        """Write the attended values of all heads to ``out`` ``[rows, heads, head_dim]``."""
        kv, group, width = self.shape.kv_heads, self.group, self.shape.head_dim
        for index, block in enumerate(self.pack.blocks):
            _, keys, values = self._operands(layer, qkv, index)
            probabilities = self._probabilities(layer, index, qkv, keys)
            rows = block.end - block.start
            mixed = self.ws.take("attn_out", kv, group * rows, width)
            self.xp.matmul(probabilities, values, out=mixed)
            target = out[block.start : block.end].reshape(rows, kv, group, width)
            target[...] = self.xp.permute(mixed.reshape(kv, group, rows, width), (2, 0, 1, 3))

    def backward(self, layer: int, qkv: Array, out: Array, d_out: Array, d_qkv: Array) -> None:
        """Write the gradient of ``qkv`` to ``d_qkv``, from the output ``out`` and its gradient ``d_out``."""
        xp, shape, kv, group = self.xp, self.shape, self.shape.kv_heads, self.group
        width = shape.head_dim
        d_qkv[:, shape.heads :] = 0
        d_keys, d_values = d_qkv[:, shape.heads : shape.heads + kv], d_qkv[:, shape.heads + kv :]
        for index, block in enumerate(self.pack.blocks):
            rows = block.end - block.start
            queries, keys, values = self._operands(layer, qkv, index)
            if self.keep:
                begin, end = self.offsets[index], self.offsets[index + 1]
                probabilities = self.ws.take((layer, "p"), self.offsets[-1])[begin:end]
                probabilities = probabilities.reshape(kv, group * rows, block.keys)
            else:
                probabilities = self._probabilities(layer, index, qkv, keys)
            d_mixed = self._by_kv_head(d_out, block, "attn_d_out")
            mixed = self._by_kv_head(out, block, "attn_o")
            delta = xp.einsum("krd,krd->kr", d_mixed, mixed)[..., None]
            d_scores = self.ws.take("attn_ds", *probabilities.shape)
            xp.matmul(d_mixed, values.swapaxes(1, 2), out=d_scores)
            d_scores -= delta
            d_scores *= probabilities
            d_queries = self.ws.take("attn_dq", kv, group * rows, width)
            xp.matmul(d_scores, keys, out=d_queries)
            d_queries *= self.scale
            target = d_qkv[block.start : block.end, : shape.heads].reshape(rows, kv, group, width)
            target[...] = xp.permute(d_queries.reshape(kv, group, rows, width), (2, 0, 1, 3))
            # Queries carry the scale already, so the key gradient has it too.
            self._scatter(d_keys, xp.matmul(d_scores.swapaxes(1, 2), queries), index)
            self._scatter(d_values, xp.matmul(probabilities.swapaxes(1, 2), d_mixed), index)

    def _operands(self, layer: int, qkv: Array, index: int) -> tuple[Array, Array, Array]:
        """Scaled queries ``[kv, group * rows, d]``, keys and values ``[kv, keys, d]`` of one block."""
        heads, kv, block = self.shape.heads, self.shape.kv_heads, self.pack.blocks[index]
        queries = self._by_kv_head(qkv[:, :heads], block, "attn_q")
        queries *= self.scale
        first = self.first[index]
        both = qkv[block.start if first is None else first : block.end, heads:]
        before = [] if self.past is None or not block.past else list(self.past(layer, block))
        if first is None:
            before.append(qkv[self.outside[index], heads:])
        if before:
            both = self.xp.concatenate([*before, both])
        return queries, both[:, :kv].swapaxes(0, 1), both[:, kv:].swapaxes(0, 1)

    def _by_kv_head(self, x: Array, block: Block, key: str) -> Array:
        """Copy rows of a block ``[rows, heads, d]`` to ``[kv, group * rows, d]``."""
        rows, kv, width = block.end - block.start, self.shape.kv_heads, self.shape.head_dim
        copy = self.ws.take(key, kv, self.group, rows, width)
        own = x[block.start : block.end].reshape(rows, kv, self.group, width)
        copy[...] = self.xp.permute(own, (1, 2, 0, 3))
        return copy.reshape(kv, self.group * rows, width)

    def _probabilities(self, layer: int, index: int, qkv: Array, keys: Array) -> Array:
        """Softmax of the scores of one block, ``[kv, group * rows, keys]``."""
        xp, block = self.xp, self.pack.blocks[index]
        rows, kv = block.end - block.start, self.shape.kv_heads
        if self.keep:
            memory = self.ws.take((layer, "p"), self.offsets[-1])[
                self.offsets[index] : self.offsets[index + 1]
            ]
        else:
            memory = self.ws.take("p", self.shape.heads * rows * block.keys)
        scores = memory.reshape(kv, self.group * rows, block.keys)
        queries = self.ws.take("attn_q", kv, self.group * rows, self.shape.head_dim)
        xp.matmul(queries, keys.swapaxes(1, 2), out=scores)
        by_row = scores.reshape(kv * self.group, rows, block.keys)
        by_row += self.masks[index]
        by_row -= xp.amax(by_row, axis=-1, keepdims=True)
        xp.exp(by_row, out=by_row)
        by_row /= by_row.sum(axis=-1, keepdims=True)
        return scores

    def _scatter(self, target: Array, gradient: Array, index: int) -> None:
        """Add ``[kv, keys, d]`` to the rows of ``target`` that the keys came from; each occurs once."""
        block, by_key, first = self.pack.blocks[index], gradient.swapaxes(0, 1), self.first[index]
        if first is None:
            outside, first = len(block.outside), block.start
            target[self.outside[index]] += by_key[:outside]
            by_key = by_key[outside:]
        target[first : block.end] += by_key
