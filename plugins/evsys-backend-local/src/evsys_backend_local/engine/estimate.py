"""How long training will take here and how much memory it needs, before it starts."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import attrs
import numpy as np

from evsys_backend_local.engine.arrays import NUMPY, Arrays
from evsys_backend_local.engine.attention import BLOCK_ROWS
from evsys_backend_local.engine.decode import KV_BYTES
from evsys_backend_local.engine.head import CHUNK_ROWS, KEEP_BYTES
from evsys_backend_local.engine.limits import PREFIX_CACHE_MB
from evsys_backend_local.engine.model import KEEP_PROBABILITIES_BYTES
from evsys_backend_local.engine.panels import pay_for
from evsys_backend_local.engine.shape import LINEARS, ModelShape
from evsys_backend_local.engine.workers import blas_threads

#: Width at which half of the time goes into matrix products; narrower models pay more for everything else.
_HALF_WIDTH = 350

#: Interpreter, libraries, and what of smaller arrays isn't counted; not the library that draws plots after a run.
_REST_BYTES = 80 << 20

#: Operations in the time that a core takes to read a byte of the weights; 6 times as many where it copies them first (no panels).
_OPERATIONS_PER_BYTE, _COPYING = 5.0, 6.0

#: Seconds of a decoding step and block of the model that no thread shares, whatever is computed.
_STEP_SECONDS = 3e-4

#: Bytes of a sampled sequence for each token that it may choose: logits, and what is drawn from, in float64.
_CHOICE_BYTES = 16

#: Prompts answered at a time, for the estimate of what sampling needs.
PROMPTS = 16


def measure_roof(
    seconds: float = 0.06, clock: Callable[[], float] = time.perf_counter, xp: Arrays = NUMPY
) -> float:
    """Float32 operations per second and core of a matrix product (1024 x 576 x 1536), best of what fits the time.

    Of a GPU, operations per second of it all. By the wall's clock it is what this machine gives now; by ``time.thread_time``, what it gives when no one else computes.
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
    block = min(rows, BLOCK_ROWS)
    scores = block * rows * shape.heads * itemsize  # of the last block: it sees all rows
    probabilities = rows * (rows + block) // 2 * shape.heads * shape.layers * itemsize
    if probabilities > KEEP_PROBABILITIES_BYTES:
        probabilities = scores
    logits = rows * shape.vocab * itemsize
    if logits > KEEP_BYTES:
        logits = min(rows, CHUNK_ROWS) * shape.vocab * itemsize
    layers = rows * (shape.activation_width * shape.layers + scratch) * itemsize
    return layers + scores + probabilities + logits


def trained_bytes(
    shape: ModelShape,
    *,
    workers: int,
    rank: int | None,
    targets: Sequence[str] = LINEARS,
    snapshots: int = 2,
    itemsize: int = 4,
) -> int:
    """Bytes of what is trained: weights, snapshots of them, gradients of all workers and their sum, two moments, scratch.

    ``rank`` None is the whole model; ``targets`` are the linears that an adapter changes.
    """
    sizes = shape.linear_sizes()
    width = sum(sum(sizes[name]) for name in targets)
    count = shape.parameters if rank is None else rank * shape.layers * width
    return (5 + snapshots + workers) * count * itemsize


@attrs.frozen(kw_only=True)
class Sampled:
    """The samples of a step, all answers of the greatest length.

    Attributes:
        prompt_tokens: of the prompts, each counted once.
        answers: how many.
        answer_tokens: of each.
        at_once: how many are sampled at a time.
        read_rows: rows of forward passes alongside training, for a teacher or a reference.
    """

    prompt_tokens: int
    answers: int
    answer_tokens: int
    at_once: int
    read_rows: int = 0


def _has_panels(shape: ModelShape, *, full: bool, xp: Arrays) -> bool:
    return xp is NUMPY and pay_for(4 * shape.parameters) and not full


def sampling_bytes(
    shape: ModelShape, *, length: int, full: bool, xp: Arrays = NUMPY, sampled: Sampled | None = None
) -> int:
    """Bytes that sampling adds in float32: panels, keys and values, kept and in use, and what tokens are drawn from.

    Args:
        shape: the model.
        length: tokens of a prompt, where ``sampled`` isn't given. ``PROMPTS`` of them are taken to be answered at a
            time.
        full: all weights are trained, of which there are no panels.
        xp: what computes; only numpy has panels.
        sampled: what is sampled for a step.
    """
    token = 2 * shape.layers * shape.kv_width * 4
    kept = held = PROMPTS * length
    drawn = 0
    if sampled is not None:
        kept = sampled.prompt_tokens
        held = kept + sampled.at_once * sampled.answer_tokens
        drawn = sampled.at_once * shape.vocab * _CHOICE_BYTES
    panels = 4 * shape.parameters if _has_panels(shape, full=full, xp=xp) else 0
    return panels + drawn + min(held * token, KV_BYTES) + min(kept * token, PREFIX_CACHE_MB << 20)


def sampling_seconds(
    shape: ModelShape, sampled: Sampled, *, workers: int, roof: float, full: bool = False, xp: Arrays = NUMPY
) -> float:
    """Seconds that sampling for a step takes, and reading it for a teacher or a reference.

    A decoding step reads all weights once, and multiplies them with the newest token of each answer; a prompt is multiplied with
    them once.
    """
    rate = roof * workers * _share(shape)
    rows = sampled.prompt_tokens + sampled.answers * sampled.answer_tokens + sampled.read_rows
    steps = -(-sampled.answers // sampled.at_once) * sampled.answer_tokens
    reading = 4.0 * shape.linear_parameters * _OPERATIONS_PER_BYTE / (roof * workers)
    if xp is NUMPY and not _has_panels(shape, full=full, xp=xp):
        reading *= _COPYING
    return 2.0 * shape.linear_parameters * rows / rate + steps * (reading + shape.layers * _STEP_SECONDS)


def training_bytes(
    shape: ModelShape,
    *,
    rows: int,
    workers: int,
    rank: int | None,
    length: int | None = None,
    xp: Arrays = NUMPY,
    sampled: Sampled | None = None,
) -> int:
    """Bytes at the peak of a run that trains in float32 and samples in between.

    Args:
        shape: the model.
        rows: of the largest pack: the longest sequence, or the rows of a micro-batch if that is more.
        workers: worker threads; each has a pack of its own in memory.
        rank: of the adapter; None trains the whole model.
        length: of the longest sequence, by default ``rows``.
        xp: what computes.
        sampled: what is sampled for a step, where training samples.
    """
    base = 4 * shape.parameters
    adapted = trained_bytes(shape, workers=workers, rank=rank)
    answered = sampling_bytes(shape, length=length or rows, full=rank is None, xp=xp, sampled=sampled)
    return base + adapted + workers * activation_bytes(shape, rows) + answered + _REST_BYTES


def _share(shape: ModelShape) -> float:
    """Share of the roof that the model's products reach with everything around them."""
    return shape.dim / (shape.dim + _HALF_WIDTH)


@attrs.frozen(kw_only=True)
class Estimate:
    """Seconds of training, right within a factor of about two, and bytes at the peak of a run, within about 15 %.

    If training samples, that much holds if all answers are as long as they may be; it is less as they are shorter.
    """

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
    sampled: Sampled | None = None,
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
        sampled: what is sampled for each step, where training samples.
    """
    roof = measure_roof(xp=xp) if roof is None else roof
    full = rank is None
    step = training_operations(shape, rows, full=full) / (roof * workers * _share(shape))
    if sampled is not None:
        step += sampling_seconds(shape, sampled, workers=workers, roof=roof, full=full, xp=xp)
    largest = max(min(rows, max_rows), longest)
    length = longest or None
    peak = training_bytes(
        shape, rows=largest, workers=workers, rank=rank, length=length, xp=xp, sampled=sampled
    )
    return Estimate(seconds=steps * step, peak_bytes=peak)
