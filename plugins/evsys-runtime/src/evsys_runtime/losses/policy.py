"""Wrappers of a policy loss: weights for tokens that have moved away from the sampler, a pull to a reference.

`PolicyObjective` is a loss made of another one. It changes the weights that the inner loss sees, and adds a term of
its own; the inner loss and its gradients don't change. Notation as in `builtin`: lp, q, r = exp(lp - q), A, m.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import attrs
import numpy as np

from evsys.types import Datum, LossResult
from evsys_runtime.losses.compute import compute_loss, loss_name

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from evsys.types import LossFn

__all__ = ["KL_ESTIMATORS", "PolicyObjective", "kl_terms"]

KL_ESTIMATORS = ("k1", "k2", "k3")
"""Estimators of KL(policy || reference) from one token (http://joschu.net/blog/kl-approx.html)."""


def kl_terms(
    estimator: str, policy: NDArray[Any], reference: NDArray[Any]
) -> tuple[NDArray[Any], NDArray[Any]]:
    """The estimate at each position, and its derivative by the policy's logprob.

    With x = log reference - log policy: k1 = -x, k2 = x**2 / 2, k3 = exp(x) - x - 1.

    Raises:
        ValueError: there is no such estimator.
    """
    x = reference - policy
    match estimator:
        case "k1":
            return -x, np.ones_like(x)
        case "k2":
            return 0.5 * x**2, -x
        case "k3":
            grown = np.exp(x)
            return grown - x - 1.0, 1.0 - grown
    raise ValueError(f"there is no KL estimator {estimator!r}; choose one of {', '.join(KL_ESTIMATORS)}")


@attrs.frozen(kw_only=True)
class PolicyObjective:
    """A policy loss with corrections for stale samples, and a penalty for leaving a reference; itself a loss.

    Its data have `weights` [N], the shares of the positions in the loss (0 where there is none), `advantages`, the
    sampler's `logprobs`, and with a `kl_coef` the reference's `ref_logprobs`.

    Attributes:
        loss: the inner loss, a name or a callable.
        params: its settings.
        ratio_cap: a token counts with at most this ratio: its weight is multiplied by min(1, cap / r), without
            gradient. Truncated importance sampling.
        token_bounds: tokens whose ratio is outside have no loss.
        sequence_bounds: data whose geometric mean of ratios is outside have no loss.
        kl_coef: what the mean KL to the reference is multiplied with.
        kl_estimator: `k2` or `k3`. The gradient of `k1` is 0 in the mean, so it belongs into the reward instead.
    """

    loss: str | LossFn
    params: Mapping[str, Any] = attrs.field(factory=dict)
    ratio_cap: float | None = None
    token_bounds: tuple[float, float] | None = None
    sequence_bounds: tuple[float, float] | None = None
    kl_coef: float = 0.0
    kl_estimator: str = "k3"

    @property
    def __name__(self) -> str:
        """Its name in messages: that of the inner loss."""
        return loss_name(self.loss)

    def __call__(self, data: Sequence[Datum], logprobs: Sequence[NDArray[Any]]) -> LossResult:
        """The inner loss on the corrected weights, and the penalty."""
        corrected, shares = self._correct_weights(data, logprobs)
        inner = compute_loss(self.loss, corrected, logprobs, self.params)
        if not self.kl_coef:
            return attrs.evolve(inner, metrics={**inner.metrics, **shares})
        value, slopes, mean = self._penalty(data, logprobs)
        return LossResult(
            loss=inner.loss + value,
            grads=[
                (own + slope).astype(own.dtype, copy=False)
                for own, slope in zip(inner.grads, slopes, strict=True)
            ],
            metrics={**inner.metrics, **shares, "kl_reference": mean},
        )

    def _correct_weights(
        self, data: Sequence[Datum], logprobs: Sequence[NDArray[Any]]
    ) -> tuple[Sequence[Datum], dict[str, float]]:
        """The data with the weights that remain, and what share of the positions was touched."""
        if self.ratio_cap is None and self.token_bounds is None and self.sequence_bounds is None:
            return data, {}
        found: list[Datum] = []
        positions = capped = masked = 0
        for datum, values in zip(data, logprobs, strict=True):
            weights = np.asarray(datum.loss_inputs["weights"], dtype=np.float64)
            active = weights != 0
            log_ratio = np.where(active, values - datum.loss_inputs["logprobs"], 0.0).astype(np.float64)
            keep = active & self._keep_mask(log_ratio, int(np.count_nonzero(active)))
            factor = np.where(keep, 1.0, 0.0)
            if self.ratio_cap is not None:
                over = keep & (log_ratio > np.log(self.ratio_cap))
                factor[over] = self.ratio_cap * np.exp(-log_ratio[over])
                capped += int(np.count_nonzero(over))
            positions += int(np.count_nonzero(active))
            masked += int(np.count_nonzero(active & ~keep))
            inputs = {**datum.loss_inputs, "weights": weights * factor}
            found.append(Datum(tokens=datum.tokens, loss_inputs=inputs, meta=datum.meta))
        total = max(positions, 1)
        return found, {"masked_share": masked / total, "capped_share": capped / total}

    def _keep_mask(self, log_ratio: NDArray[np.float64], count: int) -> NDArray[np.bool_]:
        keep = np.ones(log_ratio.shape, dtype=bool)
        if self.sequence_bounds is not None and count:
            low, high = self.sequence_bounds
            keep &= low <= np.exp(log_ratio.sum() / count) <= high
        if self.token_bounds is not None:
            low, high = self.token_bounds
            ratio = np.exp(log_ratio)
            keep &= (ratio >= low) & (ratio <= high)
        return keep

    def _penalty(
        self, data: Sequence[Datum], logprobs: Sequence[NDArray[Any]]
    ) -> tuple[float, list[NDArray[np.float64]], float]:
        """`kl_coef * sum(m * KL)`, its gradients, and the mean KL of a position."""
        value = total = 0.0
        count, slopes = 0, []
        for datum, values in zip(data, logprobs, strict=True):
            weights = np.asarray(datum.loss_inputs["weights"], dtype=np.float64)
            active = weights != 0
            policy = np.where(active, values, 0.0).astype(np.float64)
            reference = np.where(active, datum.loss_inputs["ref_logprobs"], 0.0).astype(np.float64)
            terms, derivative = kl_terms(self.kl_estimator, policy, reference)
            value += float(np.sum(weights[active] * terms[active]))
            total += float(terms[active].sum())
            count += int(np.count_nonzero(active))
            slopes.append(np.where(active, self.kl_coef * weights * derivative, 0.0))
        return self.kl_coef * value, slopes, total / max(count, 1)
