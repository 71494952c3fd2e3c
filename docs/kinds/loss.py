"""A loss measures a batch by the logprobs of its target tokens. It is a sum over tokens, in plain numpy, and evsys
differentiates it; or it returns its own gradient in a `LossResult`.

[Losses](../losses.md) has the built-in ones, what can be differentiated, and how torch or jax are used.

## In an experiment

An algorithm puts a loss on each batch, by name or as a function: `batch.loss_fn = "margin"`,
`batch.loss_params = {"floor": -2.0}`. A backend without `custom_loss` computes it in two passes.
"""

from collections.abc import Sequence
from typing import Any

import attrs
import numpy as np

from evsys import option, register_loss
from evsys.types import Datum


@register_loss("margin")
class Margin:
    """Tokens that are likelier than the floor count no more."""

    @attrs.frozen(kw_only=True)
    class Config:
        """Params of `margin`."""

        floor: float = option(-1.0, "Logprob from which on a token is good enough, in nats.", le=0)

    def __init__(self, floor: float) -> None:
        self.floor = floor

    def __call__(self, data: Sequence[Datum], logprobs: Sequence[Any]) -> Any:
        terms: list[Any] = [
            np.sum(datum.loss_inputs["weights"] * np.maximum(self.floor - values, 0.0))
            for datum, values in zip(data, logprobs, strict=True)
        ]
        return sum(terms)
