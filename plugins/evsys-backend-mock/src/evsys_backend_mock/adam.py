"""Adam with decoupled weight decay (https://arxiv.org/abs/1412.6980, https://arxiv.org/abs/1711.05101)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from evsys.types import AdamParams

__all__ = ["AdamState", "adam_step"]


@attrs.frozen(kw_only=True, eq=False)
class AdamState:
    """First and second moments by matrix, and how many steps they hold."""

    step: int
    first: Mapping[str, NDArray[np.float64]]
    second: Mapping[str, NDArray[np.float64]]

    @classmethod
    def zero(cls, weights: Mapping[str, NDArray[np.float64]]) -> AdamState:
        """Before the first step."""
        return cls(
            step=0,
            first={name: np.zeros_like(matrix) for name, matrix in weights.items()},
            second={name: np.zeros_like(matrix) for name, matrix in weights.items()},
        )


def adam_step(
    weights: Mapping[str, NDArray[np.float64]],
    gradients: Mapping[str, NDArray[np.float64]],
    state: AdamState,
    params: AdamParams,
    norm: float,
) -> tuple[dict[str, NDArray[np.float64]], AdamState]:
    """New weights and the new state; `norm` is the gradients' global L2 norm, which `params.grad_clip` bounds."""
    step = state.step + 1
    shrink = params.grad_clip / norm if 0 < params.grad_clip < norm else 1.0
    correction1, correction2 = 1 - params.beta1**step, 1 - params.beta2**step
    moved, first, second = {}, {}, {}
    for name, matrix in weights.items():
        gradient = gradients[name] * shrink
        first[name] = params.beta1 * state.first[name]
        first[name] += (1 - params.beta1) * gradient
        second[name] = params.beta2 * state.second[name]
        gradient *= gradient
        gradient *= 1 - params.beta2
        second[name] += gradient
        # the bias corrections of the two moments, in one factor and one term
        update = np.sqrt(second[name], out=gradient)
        update += params.eps * correction2**0.5
        update = np.divide(first[name], update, out=update)
        update *= -params.learning_rate * correction2**0.5 / correction1
        update += matrix * (1 - params.learning_rate * params.weight_decay)
        moved[name] = update
    return moved, AdamState(step=step, first=first, second=second)
