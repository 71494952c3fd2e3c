"""The loss of a mixture of both divergences. Each by itself is a built-in loss, which servers know by name.

With p the teacher's probabilities of its K likeliest tokens, renormalised, lp the student's logprobs, q those at
sampling, T the teacher's logprob of the token said, and n the answers' tokens in the batch:

    forward   cross_entropy:        - 1/n sum_t sum_k p_k lp_k                 its gradient is that of KL(p || student)
    reverse   importance_sampling:  - 1/n sum_t exp(lp_t - q_t) (T_t - q_t)    its gradient is that of KL(student || teacher)
    mixed     a forward + (1 - a) reverse
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from evsys.types import LossResult

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from evsys.types import Datum

__all__ = ["mixed_divergence"]


def mixed_divergence(
    data: Sequence[Datum], logprobs: Sequence[NDArray[Any]], *, forward_share: float
) -> LossResult:
    """`forward_share` times the forward divergence, and the rest times the reverse one.

    Args:
        data: `target_tokens` [N, 1 + K], the token said and the teacher's likeliest; `weights` in that shape, 1/n for the
            former and p/n for the latter, 0 off the answers; `logprobs` and `advantages` [N], q and T - q.
        logprobs: the student's, [N, 1 + K] each.
        forward_share: a, from 0 to 1.

    Returns:
        With both terms as metrics.
    """
    forward = reverse = 0.0
    grads = []
    for datum, values in zip(data, logprobs, strict=True):
        weights = np.asarray(datum.loss_inputs["weights"], np.float64)
        active = weights != 0  # 0 * -inf would be nan
        own = np.where(active, values, 0.0).astype(np.float64)
        said = active[:, 0]
        ratio = np.exp(np.where(said, own[:, 0] - datum.loss_inputs["logprobs"], 0.0))
        terms = weights[:, 0] * ratio * np.where(said, datum.loss_inputs["advantages"], 0.0)
        forward -= float(np.sum(weights[:, 1:] * own[:, 1:]))
        reverse -= float(np.sum(terms))
        slopes = -forward_share * weights
        slopes[:, 0] = -(1.0 - forward_share) * terms  # d(ratio)/d(lp) = ratio
        grads.append(slopes)
    return LossResult(
        loss=forward_share * forward + (1.0 - forward_share) * reverse,
        grads=grads,
        metrics={"forward_term": forward, "reverse_term": reverse},
    )
