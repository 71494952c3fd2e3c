"""How long training will take here and how much memory it needs, before it starts."""

from __future__ import annotations

import time
from collections.abc import Callable

import attrs
import numpy as np

from evsys_backend_local.engine.arrays import NUMPY, Arrays
from evsys_backend_local.engine.attention import default_block_rows
from evsys_backend_local.engine.decode import KV_BYTES
from evsys_backend_local.engine.head import CHUNK_ROWS, KEEP_BYTES
from evsys_backend_local.engine.limits import PREFIX_CACHE_MB
from evsys_backend_local.engine.model import KEEP_PROBABILITIES_BYTES
from evsys_backend_local.engine.panels import pay_for
from evsys_backend_local.engine.shape import ModelShape
from evsys_backend_local.engine.workers import blas_threads

#: Width at which half of the time goes into matrix products; narrower models pay more for everything else.
_HALF_WIDTH = 350

#: Interpreter, libraries, and what of smaller arrays isn't counted.
_REST_BYTES = 72 << 20

#: Prompts that are answered at a time, for the estimate of what sampling needs.
PROMPTS = 16


def measure_roof(
    seconds: float = 0.06, clock: Callable[[], float] = time.perf_counter, xp: Arrays = NUMPY
) -> float:
    """Float32 operations per second and core of a matrix product (1024 x 576 x 1536), best of what fits the time.

    Of a GPU, operations per second of it all. By the wall's clock it is what this machine gives now; by ``time.thread_time``, what it gives when nobody else computes.
    """
    rng = np.random.default_rng(0)
    x = xp.put(rng.random((1024, 576), np.float32))
    w = xp.put(rng.random((1536, 576), np.float32))
    out = xp.empty((1024, 1536), np.float32)
    best = np.inf
    with blas_threads(1):
        xp.matmul(x, w.T, out=out)
        xp.wait()
        end = clock() + seconds
        while (start := clock()) < end:
            xp.matmul(x, w.T, out=out)
            xp.wait()
            best = min(best, clock() - start)
    return 2.0 * 1024 * 576 * 1536 / best


def training_operations(shape: ModelShape, rows: int, *, full: bool = False) -> float:
    """Multiplications and additions of one step: forward 2 a parameter and row, backward 2, weight gradients 2."""
    return (6.0 if full else 4.0) * shape.linear_parameters * rows


def activation_bytes(shape: ModelShape, rows: int, *, itemsize: int = 4) -> int:
    """Bytes of a pack of ``rows`` between its forward and its backward pass, logits and probabilities included."""
    scratch = 6 * shape.dim + 2 * shape.qkv_width + 5 * shape.hidden
    block = min(rows, default_block_rows(shape))
    scores = block * rows * shape.heads * itemsize  # of the last block: it sees all rows
    probabilities = rows * (rows + block) // 2 * shape.heads * shape.layers * itemsize
    if probabilities > KEEP_PROBABILITIES_BYTES:
        probabilities = scores
    logits = rows * shape.vocab * itemsize
    if logits > KEEP_BYTES:
        logits = min(rows, CHUNK_ROWS) * shape.vocab * itemsize
    layers = rows * (shape.activation_width * shape.layers + scratch) * itemsize
    return layers + scores + probabilities + logits


def trained_bytes(shape: ModelShape, *, workers: int, rank: int | None, itemsize: int = 4) -> int:
    """Bytes of what is trained: weights, two snapshots of them, gradients of all workers and their sum, two moments, scratch.

    ``rank`` None is the whole model.
    """
    pairs = shape.linear_sizes().values()
    count = shape.parameters if rank is None else rank * shape.layers * sum(sum(pair) for pair in pairs)
    return (7 + workers) * count * itemsize


def sampling_bytes(shape: ModelShape, *, length: int, full: bool, xp: Arrays = NUMPY) -> int:
    """Bytes that sampling adds in float32: panels, and keys and values of prompts, kept and in use.

    Args:
        shape: the model.
        length: tokens of a prompt. ``PROMPTS`` of them are taken to be answered at a time.
        full: all weights are trained, of which there are no panels.
        xp: what computes; only numpy has panels.
    """
    base = 4 * shape.parameters
    keys = PROMPTS * length * 2 * shape.layers * shape.kv_width * 4
    panels = base if xp is NUMPY and pay_for(base) and not full else 0
    return panels + min(keys, KV_BYTES) + min(keys, PREFIX_CACHE_MB << 20)


def training_bytes(
    shape: ModelShape,
    *,
    rows: int,
    workers: int,
    rank: int | None,
    length: int | None = None,
    xp: Arrays = NUMPY,
) -> int:
    """Bytes at the peak of a run that trains in float32 and samples in between.

    Args:
        shape: the model.
        rows: of the largest pack: the longest sequence, or the rows of a micro-batch if that is more.
        workers: worker threads; each has a pack of its own in memory.
        rank: of the adapter; None trains the whole model.
        length: of the longest sequence, by default ``rows``.
        xp: what computes.
    """
    base = 4 * shape.parameters
    adapted = trained_bytes(shape, workers=workers, rank=rank)
    sampled = sampling_bytes(shape, length=length or rows, full=rank is None, xp=xp)
    return base + adapted + workers * activation_bytes(shape, rows) + sampled + _REST_BYTES


@attrs.frozen(kw_only=True)
class Estimate:
    """Seconds of training, right within a factor of about two, and bytes at the peak of a run, within about 15 %."""

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
    xp: Arrays = NUMPY,
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
        xp: what computes.
    """
    roof = measure_roof(xp=xp) if roof is None else roof
    share = shape.dim / (shape.dim + _HALF_WIDTH)
    seconds = steps * training_operations(shape, rows, full=rank is None) / (roof * workers * share)
    largest = max(min(rows, max_rows), longest)
    peak = training_bytes(shape, rows=largest, workers=workers, rank=rank, length=longest or None, xp=xp)
    return Estimate(seconds=seconds, peak_bytes=peak)
