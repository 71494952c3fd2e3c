"""Frozen weights laid out so that their products need no copy of them.

A general matrix product first copies both operands into the order its kernel reads. Over a few rows that copy costs more
than the arithmetic. Here the weights are copied once, into panels ``[inputs, 32]`` of 32 outputs, and each panel is
multiplied with at most 32 rows: OpenBLAS has kernels for products this small that read the operands where they lie.
"""

from __future__ import annotations

import numpy as np

from evsys_backend_local.engine.arrays import NUMPY, Array
from evsys_backend_local.engine.weights import BaseWeights, LayerWeights
from evsys_backend_local.engine.workers import blas_info

#: Outputs of a panel: two vectors of 16 float32.
WIDTH = 32

#: Most rows multiplied with a panel at a time.
ROWS = 32

#: OpenBLAS takes its kernels for small products up to this many multiplications; above, it copies the operands after all.
SMALL_PRODUCT = 1_000_000

#: CPU families whose OpenBLAS kernels include small float32 products. Elsewhere panels would be slower, not faster.
KERNELS = frozenset({"SkylakeX", "Cooperlake", "SapphireRapids"})

#: Panels are a second copy of the weights, so models above this many bytes do without.
MOST_BYTES = 2 << 30


class Panels:
    """One weight matrix ``[outputs, inputs]`` in panels.

    Args:
        weight: the matrix; outputs beyond the last full panel are read from it.
    """

    def __init__(self, weight: Array) -> None:
        outputs, inputs = weight.shape
        self.full = outputs // WIDTH * WIDTH
        split = weight[: self.full].reshape(self.full // WIDTH, WIDTH, inputs)
        #: ``[panels, 1, inputs, 32]``
        self.panels = np.ascontiguousarray(split.transpose(0, 2, 1))[:, None]
        self.rest = weight[self.full :]
        self.rows = max(1, min(ROWS, SMALL_PRODUCT // (WIDTH * inputs)))

    def multiply(self, x: Array, out: Array) -> None:
        """``out = x W^T`` for contiguous ``x`` ``[rows, inputs]`` and ``out`` ``[rows, outputs]``."""
        done = len(x) // self.rows * self.rows
        if done:
            self._multiply(x[:done], out[:done], self.rows)
        if done < len(x):
            self._multiply(x[done:], out[done:], len(x) - done)
        if len(self.rest):
            np.matmul(x, self.rest.T, out=out[:, self.full :])

    def _multiply(self, x: Array, out: Array, rows: int) -> None:
        """All panels with groups of ``rows`` rows; a panel stays in the cache while it meets each group."""
        groups = len(x) // rows
        parts = out[:, : self.full].reshape(groups, rows, self.full // WIDTH, WIDTH).transpose(2, 0, 1, 3)
        np.matmul(x.reshape(1, groups, rows, -1), self.panels, out=parts)


class ModelPanels:
    """All matrices of a model in panels.

    Attributes:
        layers: per block ``qkv``, ``o``, ``gate_up`` and ``down``.
        head: the output head.
    """

    def __init__(self, weights: BaseWeights) -> None:
        self.layers = [_layer(layer) for layer in weights.layers]
        self.head = Panels(weights.head)


def _layer(weights: LayerWeights) -> dict[str, Panels]:
    return {
        "qkv": Panels(weights.qkv),
        "o": Panels(weights.o),
        "gate_up": Panels(weights.gate_up),
        "down": Panels(weights.down),
    }


def pay(weights: BaseWeights) -> bool:
    """Whether panels make decoding faster here. Depends on the model and the BLAS alone, so results don't vary."""
    params = weights.params
    return params.xp is NUMPY and params.dtype == np.float32 and pay_for(params.flat.nbytes)


def pay_for(nbytes: int) -> bool:
    """Whether float32 weights of that size are laid out in panels here."""
    return nbytes <= MOST_BYTES and blas_info()["kernel"] in KERNELS
