"""Output head: logprobs of target tokens, and the way back from their gradient to the residual stream.

Logits exist only for rows on which a loss or a sample depends, in chunks of rows.
"""

from __future__ import annotations

import numpy as np

from evsys_backend_local.engine import ops
from evsys_backend_local.engine.arrays import Array
from evsys_backend_local.engine.packing import IntArray
from evsys_backend_local.engine.weights import BaseWeights
from evsys_backend_local.engine.workspace import Workspace

#: Rows whose logits are computed by one product; over fewer it is slower.
CHUNK_ROWS = 256

#: Unnormalised probabilities are kept for the backward pass up to this many bytes, else computed again.
KEEP_BYTES = 128 << 20


class Head:
    """Logprobs of targets at some rows of one pass.

    Args:
        weights: the base model.
        x: ``[rows, dim]`` residual stream before the final norm.
        rows: ``[U]`` distinct rows that have targets, ascending.
        place: ``[P]`` index into ``rows`` for each pair of a row and its targets.
        targets: ``[P, K]`` token ids.
        ws: scratch memory of the pass.
    """

    def __init__(
        self,
        weights: BaseWeights,
        x: Array,
        rows: IntArray,
        *,
        place: IntArray,
        targets: IntArray,
        ws: Workspace,
    ) -> None:
        self.weights = weights
        self.ws = ws
        self.total_rows = len(x)
        self.rows = rows
        self.place = place
        self.targets = targets
        shape = weights.shape
        self.xp = ws.xp
        self._at = ws.xp.put(rows)
        self.x = x[self._at]
        self.hidden = ws.take("head_hidden", *self.x.shape)
        self.inverse = ops.rms_norm(self.x, weights.final_norm, shape.norm_eps, self.hidden)
        self.keep = len(rows) * shape.vocab * ws.dtype.itemsize <= KEEP_BYTES
        self.total = ws.xp.empty((len(rows), 1), ws.dtype)
        #: Pairs sorted by row make a chunk of rows a range of pairs.
        self._order = np.argsort(place, kind="stable")
        self._bounds = np.searchsorted(place[self._order], np.arange(0, len(rows) + CHUNK_ROWS, CHUNK_ROWS))

    def _chunks(self) -> list[tuple[slice, IntArray]]:
        """Row ranges, and the pairs that belong to each."""
        starts = range(0, len(self.rows), CHUNK_ROWS)
        return [
            (
                slice(start, min(start + CHUNK_ROWS, len(self.rows))),
                self._order[self._bounds[i] : self._bounds[i + 1]],
            )
            for i, start in enumerate(starts)
        ]

    def _logits(self, part: slice) -> Array:
        vocab = self.weights.shape.vocab
        if self.keep:
            logits = self.ws.take("logits", len(self.rows), vocab)[part]
        else:
            logits = self.ws.take("logits", part.stop - part.start, vocab)
        self.xp.matmul(self.hidden[part], self.weights.head.T, out=logits)
        return logits

    def logprobs(self) -> Array:
        """Logprobs of the targets, ``[P, K]``, as numpy's."""
        xp = self.xp
        out = np.empty(self.targets.shape, self.ws.dtype)
        for part, pairs in self._chunks():
            logits = self._logits(part)
            rows = xp.put(self.place[pairs] - part.start)
            logits -= xp.amax(logits, axis=-1, keepdims=True)
            found = logits[rows[:, None], xp.put(self.targets[pairs])]
            xp.exp(logits, out=logits)
            self.total[part] = logits.sum(axis=-1, keepdims=True)
            found -= xp.log(self.total[part])[rows]
            out[pairs] = xp.host(found)
        return out

    def likeliest(self, k: int) -> tuple[IntArray, Array]:
        """The ``k`` likeliest tokens of each pair's row and their logprobs, the likeliest first; ``[P, k]`` both, as numpy's."""
        xp = self.xp
        k = min(k, self.weights.shape.vocab)
        tokens = np.empty((len(self.rows), k), np.int64)
        logprobs = np.empty((len(self.rows), k), self.ws.dtype)
        for part, _ in self._chunks():
            logits = self._logits(part)
            logits -= xp.amax(logits, axis=-1, keepdims=True)
            own = xp.host(logits)
            best = np.argpartition(-own, k - 1, axis=1)[:, :k]
            best.sort(axis=1)  # of equal ones the smaller id first
            values = np.take_along_axis(own, best, axis=1)
            order = np.argsort(-values, axis=1, kind="stable")
            tokens[part] = np.take_along_axis(best, order, axis=1)
            logprobs[part] = np.take_along_axis(values, order, axis=1)
            xp.exp(logits, out=logits)
            logprobs[part] -= np.log(xp.host(logits.sum(axis=-1, keepdims=True)))
        return tokens[self.place], logprobs[self.place]

    def backward(self, gradient: Array, full_grads: BaseWeights | None) -> Array:
        """Gradient of the residual stream ``[rows of the pack, dim]`` from d(loss)/d(logprob) ``[P, K]``,
        which is numpy's.

        With g the gradient of a pair, ``d hidden = sum_k g_k E[target_k] - (sum_k g_k) softmax E``.
        """
        weights, ws, xp = self.weights, self.ws, self.xp
        count = len(self.rows)
        summed = np.bincount(self.place, weights=gradient.sum(axis=1), minlength=count)
        mass = xp.put(summed.astype(ws.dtype)[:, None])
        d_hidden = ws.take("head_d_hidden", *self.hidden.shape)
        for part, pairs in self._chunks():
            if self.keep:
                share = ws.take("logits", count, weights.shape.vocab)[part]
            else:
                share = self._logits(part)
                share -= xp.amax(share, axis=-1, keepdims=True)
                xp.exp(share, out=share)
            xp.matmul(share, weights.head, out=d_hidden[part])
            d_hidden[part] *= -mass[part] / self.total[part]
            own, targets = gradient[pairs], self.targets[pairs]
            pull = xp.einsum("pk,pkd->pd", xp.put(own), weights.head[xp.put(targets)])
            # Pairs are sorted by row: sum the runs of equal rows, then add each row once.
            rows, starts = np.unique(self.place[pairs], return_index=True)
            d_hidden[xp.put(rows)] += xp.sum_runs(pull, starts)
            if full_grads is not None:
                share *= -mass[part] / self.total[part]
                flat = (self.place[pairs] - part.start)[:, None] * weights.shape.vocab + targets
                xp.add_at(share.reshape(-1), flat.reshape(-1), xp.put(own.reshape(-1)))
                full_grads.head[...] += share.T @ self.hidden[part]
        if full_grads is not None:
            full_grads.final_norm[...] += (d_hidden * self.x * self.inverse).sum(axis=0)
        ops.rms_norm_backward(d_hidden, self.x, self.inverse, weights.final_norm, d_hidden)
        d_x = ws.take("d_x", self.total_rows, weights.shape.dim)
        d_x[...] = 0
        d_x[self._at] = d_hidden
        return d_x
