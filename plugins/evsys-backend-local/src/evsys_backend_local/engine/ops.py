"""Element-wise parts of the model with their hand-written derivatives.

Arrays are ``[rows, width]``. Functions write into buffers that the caller owns, because at these sizes
fresh memory costs more than the arithmetic.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from evsys_backend_local.engine.arrays import Array
from evsys_backend_local.engine.dispatch import arrays_of


def rms_norm(x: Array, gain: Array, eps: float, out: Array) -> Array:
    """``out = x / sqrt(mean(x^2) + eps) * gain`` over the last axis; returns the inverse root ``[..., 1]``."""
    xp = arrays_of(x)
    mean_square = xp.einsum("...d,...d->...", x, x)[..., None]
    mean_square /= x.shape[-1]
    mean_square += eps
    inverse: Array = 1.0 / xp.sqrt(mean_square)
    xp.multiply(x, inverse, out=out)
    out *= gain
    return inverse


def rms_norm_backward(dy: Array, x: Array, inverse: Array, gain: Array, out: Array) -> None:
    """Gradient of :func:`rms_norm` with respect to ``x``; ``out`` may be ``dy``.

    With g = dy * gain: ``dx = inverse * g - x * inverse^3 * mean(g * x)``.
    """
    xp = arrays_of(x)
    xp.multiply(dy, gain, out=out)
    coefficient = xp.einsum("...d,...d->...", out, x)[..., None]
    coefficient *= inverse**3 / x.shape[-1]
    out *= inverse
    out -= x * coefficient


def rope_table(
    positions: int,
    head_dim: int,
    theta: float,
    dtype: np.dtype[np.generic],
    factors: Sequence[float] | None = None,
) -> tuple[Array, Array]:
    """Cosines and sines ``[positions, head_dim / 2]`` of the rotary embedding, computed in float64 by numpy.

    ``factors`` ``[head_dim / 2]`` divide the frequencies.
    """
    frequencies = theta ** (-np.arange(0, head_dim, 2, dtype=np.float64) / head_dim)
    if factors is not None:
        frequencies /= np.asarray(factors, np.float64)
    angles = np.arange(positions, dtype=np.float64)[:, None] * frequencies
    return np.cos(angles).astype(dtype), np.sin(angles).astype(dtype)


def rotate(x: Array, cos: Array, sin: Array, *, inverse: bool = False) -> None:
    """Rotate heads ``[rows, heads, head_dim]`` in place, first half against second half.

    ``inverse`` turns back, which is also the derivative since a rotation is orthogonal.
    """
    half = x.shape[-1] // 2
    first, second = x[..., :half], x[..., half:]
    crossed = first * sin
    rest = second * sin
    first *= cos
    second *= cos
    if inverse:
        first += rest
        second -= crossed
    else:
        first -= rest
        second += crossed


def silu_gate(gate: Array, up: Array, sigmoid: Array, out: Array) -> None:
    """``out = gate * sigmoid(gate) * up``; leaves the sigmoid in its buffer for the backward pass."""
    xp = arrays_of(gate)
    xp.multiply(gate, -1, out=sigmoid)
    with np.errstate(
        over="ignore"
    ):  # exp overflows to infinity for gate < -88: the sigmoid is then 0, as it should
        xp.exp(sigmoid, out=sigmoid)
    sigmoid += 1
    xp.reciprocal(sigmoid, out=sigmoid)
    xp.multiply(gate, sigmoid, out=out)
    out *= up


def silu_gate_backward(
    d_out: Array, gate: Array, up: Array, sigmoid: Array, *, d_gate: Array, d_up: Array, scratch: Array
) -> None:
    """Gradients of :func:`silu_gate`; overwrites ``d_out`` and ``scratch``.

    ``d_up = d * silu`` and ``d_gate = d * up * (s + silu - silu * s)`` with ``silu = gate * s``.
    """
    xp = arrays_of(gate)
    xp.multiply(gate, sigmoid, out=d_gate)
    xp.multiply(d_out, d_gate, out=d_up)
    d_out *= up
    xp.multiply(d_gate, sigmoid, out=scratch)
    d_gate -= scratch
    d_gate += sigmoid
    d_gate *= d_out
