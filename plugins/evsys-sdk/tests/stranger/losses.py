"""Losses: numpy alone, with metrics, with gradients of their own, with another library, and as a class with params."""

from collections.abc import Sequence
from functools import partial
from typing import Any, assert_type

import attrs
import numpy as np
from numpy.typing import NDArray

from evsys_sdk import Datum, LossResult, TrainingBatch, loss, option, register_loss


@register_loss("margin")
def margin(data: Sequence[Datum], logprobs: Sequence[NDArray[np.float64]]) -> Any:
    return np.sum(np.concatenate([np.maximum(0.0, 1.0 + values) for values in logprobs]))


@register_loss("confident")
def confident(data: Sequence[Datum], logprobs: list[Any]) -> tuple[float, dict[str, float]]:
    return -np.sum(np.concatenate(logprobs)), {"sequences": float(len(data))}


@register_loss("squared")
def squared(data: Sequence[Datum], logprobs: Sequence[NDArray[np.float64]]) -> LossResult:
    total = sum(float(np.sum(values**2)) for values in logprobs)
    return LossResult(loss=total, grads=[2 * values for values in logprobs])


@register_loss("elsewhere")
@loss(framework="torch")
def elsewhere(data: Sequence[Datum], logprobs: list[Any], *, scale: float = 1.0) -> Any:
    return scale * -sum(values.sum() for values in logprobs)


@register_loss("focal")
class Focal:
    """A class is built from its params."""

    @attrs.frozen(kw_only=True)
    class Config:
        """Params."""

        gamma: float = option(
            2.0, "How much less sure tokens count.", ge=0, source="https://arxiv.org/abs/1708.02002"
        )

    def __init__(self, gamma: float) -> None:
        self.gamma = gamma

    def __call__(self, data: Sequence[Datum], logprobs: Sequence[Any]) -> Any:
        terms: list[Any] = [
            np.sum(datum.loss_inputs["weights"] * (1 - np.exp(values)) ** self.gamma * -values)
            for datum, values in zip(data, logprobs, strict=True)
        ]
        return sum(terms)


def amended(batch: TrainingBatch) -> TrainingBatch:
    """A batch takes a name, a function, one with params of its own, or an object."""
    batch.loss_fn = "cross_entropy"
    batch.loss_fn = margin
    batch.loss_fn = squared
    batch.loss_fn = partial(elsewhere, scale=2.0)
    batch.loss_fn = elsewhere
    batch.loss_params = {"scale": 2.0}
    batch.loss_fn = Focal(gamma=1.0)
    return batch


assert_type(squared([], []).loss, float)
assert_type(confident([], [np.zeros(1)])[1], dict[str, float])
