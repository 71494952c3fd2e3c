"""How long training will take here and how much memory it needs, before it starts."""

from __future__ import annotations

import time

import attrs
import numpy as np

from evsys_backend_local.engine.head import KEEP_BYTES
from evsys_backend_local.engine.model import KEEP_PROBABILITIES_BYTES
from evsys_backend_local.engine.shape import ModelShape
from evsys_backend_local.engine.workers import blas_threads

#: Width at which half of the time goes into matrix products; narrower models pay more for everything else.
_HALF_WIDTH = 350

#: Interpreter, libraries, and what of smaller arrays isn't counted.
_REST_BYTES = 100 << 20


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


def activation_bytes(shape: ModelShape, rows: int, *, itemsize: int = 4) -> int:
    """Bytes of a pack of ``rows`` between its forward and its backward pass, logits and probabilities included."""
    scratch = 6 * shape.dim + 2 * shape.qkv_width + 5 * shape.hidden
    probabilities = min(KEEP_PROBABILITIES_BYTES, rows * rows // 2 * shape.heads * shape.layers * itemsize)
    logits = min(KEEP_BYTES, rows * shape.vocab * itemsize)
    return rows * (shape.activation_width * shape.layers + scratch) * itemsize + probabilities + logits


def trained_bytes(shape: ModelShape, *, workers: int, rank: int | None, itemsize: int = 4) -> int:
    """Bytes of what is trained: weights, a snapshot of them, gradients of all workers and their sum, two moments.

    ``rank`` None is the whole model.
    """
    pairs = shape.linear_sizes().values()
    count = shape.parameters if rank is None else rank * shape.layers * sum(sum(pair) for pair in pairs)
    return (5 + workers) * count * itemsize


def training_bytes(shape: ModelShape, *, rows: int, workers: int, rank: int | None) -> int:
    """Bytes at the peak of training in float32.

    Args:
        shape: the model.
        rows: of the largest pack: the longest sequence, or the rows of a micro-batch if that is more.
        workers: worker threads; each has a pack of its own in memory.
        rank: of the adapter; None trains the whole model.
    """
    base = 4 * shape.parameters
    adapted = trained_bytes(shape, workers=workers, rank=rank)
    return base + adapted + workers * activation_bytes(shape, rows) + _REST_BYTES


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
    longest: int = 0,
    rank: int | None = 32,
    roof: float | None = None,
) -> Estimate:
    """Time and memory of a training run.

    Args:
        shape: the model.
        rows: tokens of a batch.
        steps: optimiser steps.
        workers: worker threads.
        max_rows: rows of a micro-batch.
        longest: tokens of the longest sequence, which isn't split.
        rank: of the adapter; None trains all weights.
        roof: operations per second and core, measured now when None (less than 0.1 s).
    """
    roof = measure_roof() if roof is None else roof
    share = shape.dim / (shape.dim + _HALF_WIDTH)
    seconds = steps * training_operations(shape, rows, full=rank is None) / (roof * workers * share)
    largest = max(min(rows, max_rows), longest)
    peak = training_bytes(shape, rows=largest, workers=workers, rank=rank)
    return Estimate(seconds=seconds, peak_bytes=peak)
