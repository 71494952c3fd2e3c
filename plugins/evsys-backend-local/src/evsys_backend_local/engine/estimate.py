"""How long training will take here and how much memory it needs, before it starts."""

from __future__ import annotations

import time

import attrs
import numpy as np

from evsys_backend_local.engine.shape import ModelShape
from evsys_backend_local.engine.workers import blas_threads

#: Width at which half of the time goes into matrix products; narrower models pay more for everything else.
_HALF_WIDTH = 350


def measure_roof(seconds: float = 0.06) -> float:
    """Float32 operations per second and core of a matrix product (1024 x 576 x 1536), best of what fits the time."""
    rng = np.random.default_rng(0)
    x = rng.random((1024, 576), np.float32)
    w = rng.random((1536, 576), np.float32)
    out = np.empty((1024, 1536), np.float32)
    best = np.inf
    with blas_threads(1):
        np.matmul(x, w.T, out=out)
        end = time.perf_counter() + seconds
        while (start := time.perf_counter()) < end:
            np.matmul(x, w.T, out=out)
            best = min(best, time.perf_counter() - start)
    return 2.0 * 1024 * 576 * 1536 / best


def training_operations(shape: ModelShape, rows: int, *, full: bool = False) -> float:
    """Multiplications and additions of one step: forward 2 a parameter and row, backward 2, weight gradients 2."""
    return (6.0 if full else 4.0) * shape.linear_parameters * rows


@attrs.frozen(kw_only=True)
class Estimate:
    """Seconds of training and bytes at the peak; both are right within a factor of about two."""

    seconds: float
    peak_bytes: int


def estimate(
    shape: ModelShape,
    *,
    rows: int,
    steps: int,
    workers: int,
    max_rows: int = 256,
    full: bool = False,
    roof: float | None = None,
) -> Estimate:
    """Time and memory of a training run.

    Args:
        shape: the model.
        rows: tokens of a batch.
        steps: optimiser steps.
        workers: worker threads.
        max_rows: rows of a micro-batch.
        full: all weights are trained.
        roof: operations per second and core, measured now when None (less than 0.1 s).
    """
    roof = measure_roof() if roof is None else roof
    share = shape.dim / (shape.dim + _HALF_WIDTH)
    seconds = steps * training_operations(shape, rows, full=full) / (roof * workers * share)
    width = 4 * shape.dim + 2 * shape.q_width + shape.qkv_width + 4 * shape.hidden + shape.heads * 128
    activations = workers * min(rows, max_rows) * (width * shape.layers + shape.vocab) * 4
    weights = 4 * shape.parameters * ((5 + workers) if full else 1)
    return Estimate(seconds=seconds, peak_bytes=weights + activations + (100 << 20))
