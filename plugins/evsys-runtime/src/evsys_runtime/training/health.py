"""Health checks of rows, batches and results, so that no failure passes for a success.

A fault that makes a run pointless is an error with counts and a fix; an oddity is a warning counted and
listed once in the run's result.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from evsys.errors import AlgorithmError, DataError, PluginContractError
from evsys.types import Datum, ForwardResult, OptimResult, TrainingBatch

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = [
    "LossTrend",
    "VanishedGradient",
    "check_batch",
    "check_result",
    "check_rows",
    "loss_positions",
    "trained_share_warning",
]

_LOSSES_KEPT = 5
_DEAD_STEPS = 5
_LEARNT = 1e-3
_FLAT = 1e-3
_ROSE = 1.5
_LARGEST_SHARE = 0.98
_SMALLEST_SHARE = 0.005


def check_rows(rows: int, batch_size: int | None, dropped: Mapping[str, int]) -> None:
    """There must be rows, and enough of them for one batch.

    Args:
        rows: how many are left.
        batch_size: how many one step takes; None takes as many as there are.
        dropped: how many were left out, by reason.

    Raises:
        DataError: there are none, or fewer than a batch; says how many were dropped and why.
    """
    if rows >= (batch_size or 1):
        return
    lost = ", ".join(f"{count} {reason}" for reason, count in dropped.items() if count)
    total = rows + sum(dropped.values())
    if rows == 0:
        raise DataError(
            f"no row is left to train on: of {total} rows {lost}"
            if lost
            else "there are no rows to train on",
            hint=_how_to_keep_rows(dropped) if lost else None,
        )
    detail = f" (of {total}: {lost})" if lost else ""
    have = "1 row" if rows == 1 else f"{rows} rows"
    raise DataError(
        f"{have}{detail} {'is' if rows == 1 else 'are'} fewer than one batch of {batch_size}",
        hint=f"set algorithm.params.batch_size to at most {rows}",
    )


def _how_to_keep_rows(dropped: Mapping[str, int]) -> str:
    too_long = any("max_length" in reason for reason in dropped)
    return f"{'raise max_length, or ' if too_long else ''}look at the rows with `evsys data preview`"


def trained_share_warning(trained: int, total: int, *, everything_is_meant: bool = False) -> str | None:
    """A warning where the share of tokens with a loss lies outside what masks of conversations have.

    Args:
        trained: tokens with a loss.
        total: all tokens.
        everything_is_meant: True when all tokens are to be trained.
    """
    share = trained / max(total, 1)
    if share > _LARGEST_SHARE and not everything_is_meant:
        return (
            f"{trained} of {total} tokens are trained, prompts included: the mask seems to cover everything; "
            "look at the rows with `evsys data preview`"
        )
    if share < _SMALLEST_SHARE:
        return f"only {trained} of {total} tokens are trained: is the right part of the rows masked?"
    return None


def loss_positions(datum: Datum) -> int:
    """How many positions of a datum have a loss: non-zero `weights`, else non-zero `advantages`, else all of them."""
    for name in ("weights", "advantages"):
        if name in datum.loss_inputs:
            array: NDArray[np.float64] = np.asarray(datum.loss_inputs[name])
            return int(np.count_nonzero(array if array.ndim == 1 else array.any(axis=1)))
    return len(datum.tokens)


def check_batch(batch: TrainingBatch, step: int) -> int:
    """Look at a batch before anything is spent on it.

    Args:
        batch: what `build_batch` returned.
        step: which step it is for, counted from 0.

    Returns:
        The number of positions with a loss.

    Raises:
        PluginContractError: it isn't a batch, or its loss is neither a name nor a callable.
        AlgorithmError: it has no data or no trainable token, or numbers in it aren't finite.
    """
    if not isinstance(batch, TrainingBatch):
        raise PluginContractError(f"build_batch returned {type(batch).__name__}, expected a TrainingBatch")
    if not (isinstance(batch.loss_fn, str) or callable(batch.loss_fn)):
        raise PluginContractError(
            f"the batch's loss_fn is a {type(batch.loss_fn).__name__}; it must be the name of a loss or a callable"
        )
    rows = (
        f" (rows {', '.join(batch.row_ids[:5])}{', ...' if len(batch.row_ids) > 5 else ''})"
        if batch.row_ids
        else ""
    )
    if not batch.data:
        raise AlgorithmError(
            f"the batch of step {step + 1}{rows} has no data", hint="build_batch must add some"
        )
    for i, datum in enumerate(batch.data):
        _check_datum(datum, i, step)
    found = sum(map(loss_positions, batch.data))
    if found == 0 and any("weights" in datum.loss_inputs for datum in batch.data):
        total = sum(len(datum.tokens) for datum in batch.data)
        raise AlgorithmError(
            f"the batch of step {step + 1}{rows} has no trainable token: all {total} weights are 0",
            hint="look at the rows with `evsys data preview`, and at max_length and the mask",
        )
    return found


def _check_datum(datum: Datum, i: int, step: int) -> None:
    if not isinstance(datum, Datum):
        raise PluginContractError(f"item {i} of the batch is a {type(datum).__name__}, expected a Datum")
    targets = datum.loss_inputs.get("target_tokens")
    if targets is None:
        raise PluginContractError(f"datum {i} of step {step + 1} has no target_tokens")
    for name, array in datum.loss_inputs.items():
        needed = name in {"weights", "advantages"}
        if needed and not np.isfinite(array).all():
            raise AlgorithmError(f"datum {i} of step {step + 1} has {name} that aren't finite")


def check_result(step: int, forward: ForwardResult, optim: OptimResult) -> None:
    """Look at what a step gave.

    Args:
        step: which step it was, counted from 1.
        forward: with the loss.
        optim: with the gradient's norm.

    Raises:
        AlgorithmError: one of them isn't finite; among its facts is `not_finite`, which one.
    """
    for what, value in (("loss", forward.loss), ("gradient norm", optim.grad_norm)):
        if value is not None and not math.isfinite(value):
            raise AlgorithmError(
                f"the {what} of step {step} is {value}; training can't continue from these weights",
                hint="lower the learning rate, or look at the loss and its inputs; checkpoints up to here are kept",
                not_finite=what,
            )


class VanishedGradient:
    """Detects dead weights: a gradient norm of 0 in several steps in a row while the loss stays at one value well above 0.

    A learning rate that is much too high does that: activations saturate, every token gets the same logit, and the loss stays at
    ln(vocabulary). A loss near 0 is one that was learnt, and a batch without signal has no gradient to begin with.

    Args:
        stops: whether dead weights end the run, and aren't only reported.
    """

    def __init__(self, *, stops: bool = True) -> None:
        self._stops = stops
        self._losses: list[float] = []

    def state(self) -> list[float]:
        """The losses of the dead steps so far; JSON values for a checkpoint."""
        return list(self._losses)

    def load(self, state: Sequence[float]) -> None:
        """Continue from a checkpoint's state."""
        self._losses = list(state)

    def add(
        self, batch: TrainingBatch, loss: float | None, grad_norm: float | None, loss_tokens: int
    ) -> None:
        """Add a step. Batches with advantages are ignored, because the size of a policy loss means nothing.

        Args:
            batch: of the step.
            loss: of the step.
            grad_norm: L2 norm of its gradient; None if the backend doesn't report it.
            loss_tokens: positions with a loss.
        """
        if loss is None or loss_tokens == 0 or any("advantages" in one.loss_inputs for one in batch.data):
            return
        if grad_norm != 0.0 or abs(loss) < _LEARNT:
            self._losses.clear()
            return
        if self._losses and abs(loss - self._losses[0]) > _FLAT * abs(self._losses[0]):
            self._losses.clear()
        self._losses.append(loss)

    @property
    def reason(self) -> str | None:
        """Why training has collapsed; None if it hasn't."""
        if len(self._losses) < _DEAD_STEPS:
            return None
        return (
            f"the gradient norm was 0 and the loss stayed at {self._losses[-1]:.4g} for {len(self._losses)} steps, "
            "so nothing is trained any more; lower the learning rate"
        )

    @property
    def ends(self) -> bool:
        """True if the run ends here."""
        return self._stops and self.reason is not None

    @property
    def lasted(self) -> int:
        """Steps since it began."""
        return len(self._losses)


class LossTrend:
    """Notices a training that went away from its data, though every number stayed finite.

    It is meant for losses that training lowers, such as cross-entropy. The size of a policy gradient's objective
    means nothing.
    """

    def __init__(self) -> None:
        self._first: float | None = None
        self._last: deque[float] = deque(maxlen=_LOSSES_KEPT)

    def state(self) -> list[float]:
        """The first loss and the last ones; JSON values for a checkpoint."""
        return [] if self._first is None else [self._first, *self._last]

    def load(self, state: Sequence[float]) -> None:
        """Continue from what a checkpoint has."""
        self._first = state[0] if state else None
        self._last = deque(state[1:], maxlen=_LOSSES_KEPT)

    def add(self, loss: float | None) -> None:
        """Take in the loss of a step, in nats a token."""
        if loss is not None:
            self._first = loss if self._first is None else self._first
            self._last.append(loss)

    def warning(self) -> str | None:
        """The warning if each of the last losses is well above the first; else None."""
        if self._first is None or len(self._last) < _LOSSES_KEPT:
            return None
        lowest = min(self._last)
        if lowest <= max(self._first, 0.0) * _ROSE + 0.1:
            return None
        return f"the loss rose from {self._first:.4g} to {self._last[-1]:.4g}, so training diverged; lower the learning rate"
