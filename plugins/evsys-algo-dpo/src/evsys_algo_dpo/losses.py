"""Losses on preference pairs, with their gradients by the logprobs.

Of a pair, s_w and s_l are the sums over the answers' tokens of log pi - log pi_ref (of log pi alone for `simpo`), for the chosen and the
rejected answer, or their means where lengths are normalised. With h = s_w - s_l the loss of the pair is

    dpo    -(1 - e) log sigmoid(beta h) - e log sigmoid(-beta h)    https://arxiv.org/abs/2305.18290; e: label smoothing
    ipo    (h - 1 / (2 beta))^2                                     https://arxiv.org/abs/2310.12036
    simpo  -log sigmoid(beta h - gamma)                             https://arxiv.org/abs/2405.14734

and the batch's is the mean over its pairs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from evsys.types import Datum, LossResult
from evsys_runtime.training.sequences import weighted_sum

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["CHOSEN", "REJECTED", "preference_loss"]

CHOSEN, REJECTED = 0, 1
"""`meta["side"]` of a datum; `meta["pair"]` says which pair it belongs to."""


def preference_loss(
    data: Sequence[Datum],
    logprobs: Sequence[NDArray[Any]],
    *,
    kind: str = "dpo",
    beta: float = 0.1,
    label_smoothing: float = 0.0,
    gamma: float = 0.0,
    length_normalised: bool = False,
) -> LossResult:
    """The mean loss of the pairs.

    Args:
        data: both sides of every pair, in any order; a side may be several datums. `weights` [N] is 0 off the answer;
            `meta["ref_logprob"]` is the reference's logprob of it, as `weighted_sum` gives it, and isn't looked at for `simpo`.
        logprobs: the model's, [N] each.
        kind: `dpo`, `ipo` or `simpo`.
        beta: how much h counts; for `ipo` the smaller, the larger the h that is aimed at.
        label_smoothing: share of the pairs taken to be labelled the wrong way round; for `dpo` alone.
        gamma: by how much the chosen side is to be better, for `simpo`.
        length_normalised: take means over the answers' tokens rather than sums.

    Returns:
        With `margin` (beta h), `accuracy` (share of pairs with h > 0), `chosen_reward` and `rejected_reward` (beta s_w, beta s_l) and
        `chosen_nll`, nats per token, as metrics.

    Raises:
        ValueError: a pair has no token on one of its sides.
    """
    import numpy as np

    pairs = _Pairs(data)
    own = [weighted_sum(datum, values) for datum, values in zip(data, logprobs, strict=True)]
    reference = [0.0 if kind == "simpo" else datum.meta["ref_logprob"] for datum in data]
    scores = pairs.sums([ours - theirs for ours, theirs in zip(own, reference, strict=True)])
    lengths = pairs.sums([float(datum.loss_inputs["weights"].sum()) for datum in data])
    if not lengths.all():
        raise ValueError("a pair has no token on one of its sides")
    per_token = 1.0 / lengths if length_normalised else np.ones_like(lengths)
    scores = scores * per_token
    h = scores[:, CHOSEN] - scores[:, REJECTED]
    losses, slopes = _of_pairs(h, kind, beta, label_smoothing, gamma)
    slopes = slopes / len(h)
    grads = []
    for datum, (pair, side) in zip(data, pairs.places, strict=True):
        sign = 1.0 if side == CHOSEN else -1.0
        grads.append(sign * slopes[pair] * per_token[pair, side] * datum.loss_inputs["weights"])
    rewards = beta * scores.mean(axis=0)
    metrics = {
        "margin": float(beta * h.mean()),
        "accuracy": float((h > 0).mean()),
        "chosen_reward": float(rewards[CHOSEN]),
        "rejected_reward": float(rewards[REJECTED]),
        "chosen_nll": -float(pairs.sums(own)[:, CHOSEN].sum() / lengths[:, CHOSEN].sum()),
    }
    return LossResult(loss=float(losses.mean()), grads=grads, metrics=metrics)


class _Pairs:
    """Which pair and side each datum belongs to."""

    def __init__(self, data: Sequence[Datum]) -> None:
        numbers: dict[Any, int] = {}
        self.places = [
            (numbers.setdefault(datum.meta["pair"], len(numbers)), int(datum.meta["side"])) for datum in data
        ]
        self.count = len(numbers)

    def sums(self, values: Sequence[float]) -> NDArray[np.float64]:
        """Values of datums added up by pair and side, [pairs, 2]."""
        import numpy as np

        total = np.zeros((self.count, 2))
        for (pair, side), value in zip(self.places, values, strict=True):
            total[pair, side] += value
        return total


def _of_pairs(
    h: NDArray[np.float64], kind: str, beta: float, label_smoothing: float, gamma: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Loss of each pair and its derivative by h."""
    import numpy as np

    if kind == "ipo":
        off = h - 1.0 / (2.0 * beta)
        return off**2, 2.0 * off
    x = beta * h - (gamma if kind == "simpo" else 0.0)
    e = label_smoothing if kind == "dpo" else 0.0
    losses = (1.0 - e) * np.logaddexp(0.0, -x) + e * np.logaddexp(0.0, x)
    right = 0.5 * (1.0 + np.tanh(0.5 * x))  # sigmoid(x), which no x overflows
    return losses, beta * (right - (1.0 - e))
