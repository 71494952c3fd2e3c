"""AdamW on one flat buffer. Loshchilov and Hutter (2019), arXiv 1711.05101."""

from __future__ import annotations

import math

import attrs

from evsys_backend_local.engine.arrays import Array
from evsys_backend_local.engine.dispatch import arrays_of


@attrs.frozen(kw_only=True)
class AdamParams:
    """Settings of one optimiser step. ``grad_clip`` 0 or None means no clipping."""

    learning_rate: float
    beta1: float = 0.9
    beta2: float = 0.95
    eps: float = 1e-8
    weight_decay: float = 0.0
    grad_clip: float | None = 1.0


class Adam:
    """First and second moments of a flat parameter vector.

    Attributes:
        step: updates done.
        m: first moment.
        v: second moment.
    """

    def __init__(self, like: Array) -> None:
        self.step = 0
        self._xp = arrays_of(like)
        self.m = self._xp.zeros_like(like)
        self.v = self._xp.zeros_like(like)
        self._scratch = self._xp.empty_like(like)

    def update(self, values: Array, gradient: Array, params: AdamParams) -> float:
        """Update ``values`` in place; ``gradient`` is scaled in place when clipped.

        Returns:
            The global L2 norm of the gradient before clipping.

        Raises:
            FloatingPointError: the gradient holds NaN or infinity; nothing is changed.
        """
        xp = self._xp
        norm = xp.norm(gradient)
        if not math.isfinite(norm):
            # The square of a float32 above 1e19 overflows; tell that from a broken gradient.
            norm = xp.norm64(gradient)
        if not math.isfinite(norm):
            raise FloatingPointError("the gradient holds NaN or infinity, so no optimiser step was made")
        if params.grad_clip and norm > params.grad_clip:
            gradient *= params.grad_clip / norm
        self.step += 1
        scratch = self._scratch
        self.m *= params.beta1
        xp.multiply(gradient, 1 - params.beta1, out=scratch)
        self.m += scratch
        self.v *= params.beta2
        xp.multiply(gradient, gradient, out=scratch)
        scratch *= 1 - params.beta2
        self.v += scratch
        if params.weight_decay:
            values *= 1 - params.learning_rate * params.weight_decay
        # values -= lr * (m / c1) / (sqrt(v / c2) + eps), with the usual bias corrections c1 and c2
        xp.divide(self.v, 1 - params.beta2**self.step, out=scratch)
        xp.sqrt(scratch, out=scratch)
        scratch += params.eps
        xp.divide(self.m, scratch, out=scratch)
        scratch *= params.learning_rate / (1 - params.beta1**self.step)
        values -= scratch
        return norm
