"""The built-in losses with analytic gradients, in plain numpy.

Every loss is a sum over tokens, here and on servers that know these losses by name: the algorithm divides weights or
advantages by the global denominator. Each takes `(data, logprobs, **params)`, where `logprobs[i]` has the shape of
`data[i].loss_inputs["target_tokens"]`, [N] or [N, K], and returns a `LossResult` whose gradients have those shapes.

Notation: lp = log pi(token) of the policy being trained, q = the sampler's logprob (`loss_inputs["logprobs"]`),
r = exp(lp - q), A = advantage, m = mask (`weights`; absent means 1 everywhere).
A position with m * A = 0 contributes exactly nothing, regardless of its logprobs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import attrs
import numpy as np

from evsys import option
from evsys.types import LossResult

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from evsys.types import Datum

_DAPO = "DAPO, https://arxiv.org/abs/2503.14476"
_DUAL = "dual clip, https://arxiv.org/abs/1912.09729"
_CISPO = "MiniMax-M1, https://arxiv.org/abs/2506.13585"
_DRO = "https://tinker-docs.thinkingmachines.ai/losses"
_GSPO = "GSPO, https://arxiv.org/abs/2507.18071"

__all__ = ["BUILTIN_LOSSES", "cispo", "cross_entropy", "dro", "gspo", "importance_sampling", "ppo"]


@attrs.frozen(kw_only=True)
class PPOConfig:
    """Settings of `ppo`."""

    clip_low: float = option(0.2, "How far below 1 the ratio still has a gradient.", ge=0, le=1, source=_DAPO)
    clip_high: float = option(0.28, "How far above 1 the ratio still has a gradient.", ge=0, source=_DAPO)
    dual_clip: float | None = option(
        None, "Bounds the loss of a bad token at this times its advantage.", gt=1, source=_DUAL
    )


@attrs.frozen(kw_only=True)
class CISPOConfig:
    """Settings of `cispo`."""

    clip_high: float = option(0.28, "The weight is at most 1 + clip_high.", ge=0, source=_DAPO)
    clip_low: float | None = option(
        None, "The weight is at least 1 - clip_low; null means no lower bound.", ge=0, le=1, source=_CISPO
    )


@attrs.frozen(kw_only=True)
class GSPOConfig:
    """Settings of `gspo`."""

    clip_low: float = option(
        3e-4, "How far below 1 a sequence's ratio still has a gradient.", ge=0, le=1, source=_GSPO
    )
    clip_high: float = option(
        4e-4, "How far above 1 a sequence's ratio still has a gradient.", ge=0, source=_GSPO
    )


@attrs.frozen(kw_only=True)
class DROConfig:
    """Settings of `dro`."""

    beta: float = option(0.05, "Strength of the pull towards the sampler.", ge=0, source=_DRO)


def _settings[F: Callable[..., LossResult]](config: type) -> Callable[[F], F]:
    """Give a loss the `Config` that its schema is made from."""

    def attach(function: F) -> F:
        function.Config = config  # type: ignore[attr-defined]
        return function

    return attach


def cross_entropy(data: Sequence[Datum], logprobs: Sequence[NDArray[Any]]) -> LossResult:
    """Weighted negative log-likelihood: `-sum(w * lp)`.

    With weights w = p_teacher [N, K] it is the cross entropy to a top-k teacher.

    Args:
        data: each with the loss inputs `target_tokens` and `weights`.
        logprobs: one array a datum, in nats.
    """
    loss, grads = 0.0, []
    for datum, values in zip(data, logprobs, strict=True):
        weights = _input(datum, "weights", values, "cross_entropy")
        active = weights != 0  # 0 * -inf would be nan
        loss -= float(np.sum(weights[active] * values[active]))
        grads.append(-weights.astype(values.dtype, copy=False))
    return LossResult(loss=loss, grads=grads)


def importance_sampling(data: Sequence[Datum], logprobs: Sequence[NDArray[Any]]) -> LossResult:
    """REINFORCE with importance weights: `-sum(m * r * A)`, gradient through r.

    Unbiased when the sampler lags behind the policy, with a variance that grows with the lag. At r = 1 its gradient is
    that of REINFORCE (Williams 1992, https://doi.org/10.1007/BF00992696).

    Args:
        data: each with `target_tokens`, `logprobs` (the sampler's), `advantages`, optionally `weights`.
        logprobs: one array a datum, in nats.
    """

    def objective(ratio: NDArray[Any], advantages: NDArray[Any]) -> _Terms:
        value = ratio * advantages
        return _Terms(value, value, np.zeros(ratio.shape, bool))

    return _policy_loss("importance_sampling", data, logprobs, objective)


@_settings(PPOConfig)
def ppo(
    data: Sequence[Datum],
    logprobs: Sequence[NDArray[Any]],
    *,
    clip_low: float = 0.2,
    clip_high: float = 0.28,
    dual_clip: float | None = None,
) -> LossResult:
    """The clipped objective: `-sum(m * min(r * A, clip(r, 1 - clip_low, 1 + clip_high) * A))`.

    Proximal policy optimisation (https://arxiv.org/abs/1707.06347); the defaults are DAPO's "clip higher"
    (https://arxiv.org/abs/2503.14476). With `dual_clip` = c > 1 the objective of a token with A < 0 is at least c * A
    (https://arxiv.org/abs/1912.09729).

    Args:
        data: each with `target_tokens`, `logprobs` (the sampler's), `advantages`, optionally `weights`.
        logprobs: one array a datum, in nats.
        clip_low: how far below 1 the ratio still has a gradient.
        clip_high: how far above 1 the ratio still has a gradient.
        dual_clip: the constant c; None means no second clip.

    Raises:
        ValueError: a bound isn't usable.
    """
    low, high = _bounds(clip_low, clip_high)
    if dual_clip is not None and not dual_clip > 1:
        raise ValueError(f"dual_clip must be greater than 1, got {dual_clip}")

    def objective(ratio: NDArray[Any], advantages: NDArray[Any]) -> _Terms:
        clipped = np.where(advantages > 0, ratio > high, ratio < low)
        value = np.where(clipped, np.clip(ratio, low, high), ratio) * advantages
        if dual_clip is not None:
            floor = dual_clip * advantages
            below = (advantages < 0) & (value < floor)
            value, clipped = np.where(below, floor, value), clipped | below
        # d(r * A)/d(lp) = r * A; a clipped term is constant
        return _Terms(value, np.where(clipped, 0.0, value), clipped)

    return _policy_loss("ppo", data, logprobs, objective)


@_settings(CISPOConfig)
def cispo(
    data: Sequence[Datum],
    logprobs: Sequence[NDArray[Any]],
    *,
    clip_high: float = 0.28,
    clip_low: float | None = None,
) -> LossResult:
    """Clipped importance weights, every token keeps its gradient: `-sum(m * sg(clip(r)) * A * lp)`.

    sg() has no gradient. MiniMax-M1 (https://arxiv.org/abs/2506.13585) puts no lower bound on the weight, nor do we by
    default.

    Args:
        data: each with `target_tokens`, `logprobs` (the sampler's), `advantages`, optionally `weights`.
        logprobs: one array a datum, in nats.
        clip_high: the weight is at most 1 + clip_high.
        clip_low: the weight is at least 1 - clip_low; None means no lower bound.

    Raises:
        ValueError: a bound isn't usable.
    """
    low, high = _bounds(1.0 if clip_low is None else clip_low, clip_high)

    def objective(ratio: NDArray[Any], advantages: NDArray[Any]) -> _Terms:
        weight = np.clip(ratio, low, high) * advantages
        return _Terms(weight, weight, (ratio < low) | (ratio > high), multiplies_logprob=True)

    return _policy_loss("cispo", data, logprobs, objective)


@_settings(GSPOConfig)
def gspo(
    data: Sequence[Datum],
    logprobs: Sequence[NDArray[Any]],
    *,
    clip_low: float = 3e-4,
    clip_high: float = 4e-4,
) -> LossResult:
    """Clipped by sequence: `-sum(m * min(s * A, clip(s, 1 - clip_low, 1 + clip_high) * A))`.

    s = exp(mean of log r) over a datum's tokens is the geometric mean of their ratios, one number a datum, and its
    gradient goes to all of them alike: group sequence policy optimisation (https://arxiv.org/abs/2507.18071), which is
    steadier than ratios by token where single tokens' logprobs jump, as with mixtures of experts.

    Args:
        data: each with `target_tokens`, `logprobs` (the sampler's), `advantages`, optionally `weights`. A datum is a
            sequence: the positions with a weight, or without weights those with an advantage.
        logprobs: one array a datum, in nats.
        clip_low: how far below 1 the sequence's ratio still has a gradient.
        clip_high: how far above 1 the sequence's ratio still has a gradient.

    Raises:
        ValueError: a bound isn't usable.
    """
    low, high = _bounds(clip_low, clip_high)
    loss, grads = 0.0, []
    statistics = _Statistics()
    for datum, values in zip(data, logprobs, strict=True):
        advantages, sampled, mask = _policy_inputs(datum, values, "gspo")
        spoken = mask != 0 if "weights" in datum.loss_inputs else advantages != 0
        count = max(int(np.count_nonzero(spoken)), 1)
        log_ratio = np.where(spoken, values, 0.0).astype(np.float64) - np.where(spoken, sampled, 0.0)
        with np.errstate(over="ignore"):  # an overflow makes the loss infinite, which is reported as that
            ratio = float(np.exp(log_ratio.sum() / count))
        clipped = np.where(advantages > 0, ratio > high, ratio < low) & spoken & (advantages != 0)
        scale = np.where(spoken & (advantages != 0), mask, 0.0) * advantages
        loss -= float(np.sum(scale * np.where(clipped, min(max(ratio, low), high), ratio)))
        # ds/d(lp) = s / count at each of the sequence's tokens
        slope = -ratio * float(np.sum(np.where(clipped, 0.0, scale))) / count
        grads.append(np.where(spoken, slope, 0.0).astype(values.dtype, copy=False))
        statistics.add(log_ratio[spoken], clipped[spoken])
    return LossResult(loss=loss, grads=grads, metrics=statistics.metrics())


@_settings(DROConfig)
def dro(data: Sequence[Datum], logprobs: Sequence[NDArray[Any]], *, beta: float = 0.05) -> LossResult:
    """Direct reward optimisation: `-sum(m * (lp * A - beta / 2 * (lp - q)**2))`.

    The quadratic term holds the policy near the sampler, so rows may be far off policy
    (https://arxiv.org/abs/2405.19107, used by Kimi k1.5, https://arxiv.org/abs/2501.12599). The penalty acts on every
    position with m > 0, also where A = 0; give `weights` to mask prompts.

    Args:
        data: each with `target_tokens`, `logprobs` (the sampler's), `advantages`, optionally `weights`.
        logprobs: one array a datum, in nats.
        beta: strength of the penalty.

    Raises:
        ValueError: beta is negative.
    """
    if not beta >= 0:
        raise ValueError(f"beta must be at least 0, got {beta}")
    loss, grads = 0.0, []
    statistics = _Statistics()
    for datum, values in zip(data, logprobs, strict=True):
        advantages, sampled, mask = _policy_inputs(datum, values, "dro")
        active = mask != 0
        log_ratio = np.where(active, values - np.where(active, sampled, 0.0), 0.0)
        present = np.where(active, values, 0.0).astype(np.float64)
        loss -= float(np.sum(mask * (present * advantages - 0.5 * beta * log_ratio**2)))
        grads.append((-mask * (advantages - beta * log_ratio)).astype(values.dtype, copy=False))
        statistics.add(log_ratio[active], np.zeros(int(active.sum()), bool))
    return LossResult(loss=loss, grads=grads, metrics=statistics.metrics(clips=False))


BUILTIN_LOSSES: Mapping[str, Callable[..., LossResult]] = {
    "cross_entropy": cross_entropy,
    "importance_sampling": importance_sampling,
    "ppo": ppo,
    "cispo": cispo,
    "gspo": gspo,
    "dro": dro,
}
"""The losses that everything knows by name: a backend that doesn't is given the function, or trains in two passes."""


class _Terms(NamedTuple):
    """One datum's objective: its value, its derivative by lp, and which terms were clipped."""

    value: NDArray[Any]
    derivative: NDArray[Any]
    clipped: NDArray[Any]
    multiplies_logprob: bool = False


class _Statistics:
    """The statistics that policy losses report about sampler and policy, over the positions that have a loss."""

    def __init__(self) -> None:
        self._log_ratios: list[NDArray[Any]] = []
        self._clipped = 0

    def add(self, log_ratio: NDArray[Any], clipped: NDArray[Any]) -> None:
        self._log_ratios.append(log_ratio.ravel())
        self._clipped += int(np.count_nonzero(clipped))

    def metrics(self, *, clips: bool = True) -> dict[str, float]:
        """Means over positions: the ratio, and KL(sampler || policy) by two estimators.

        k1 = -log r is unbiased, k3 = r - 1 - log r is never negative (http://joschu.net/blog/kl-approx.html).
        """
        log_ratio = np.concatenate(self._log_ratios) if self._log_ratios else np.zeros(0)
        if log_ratio.size == 0:
            return {}
        ratio = np.exp(log_ratio)
        found = {
            "ratio_mean": float(ratio.mean()),
            "ratio_max": float(ratio.max()),
            "kl_k1": float(-log_ratio.mean()),
            "kl_k3": float((ratio - 1.0 - log_ratio).mean()),
        }
        return {**found, "clipped_share": self._clipped / log_ratio.size} if clips else found


type _Objective = Callable[[NDArray[Any], NDArray[Any]], _Terms]


def _policy_loss(
    name: str, data: Sequence[Datum], logprobs: Sequence[NDArray[Any]], objective: _Objective
) -> LossResult:
    """Sum `-m * objective(r, A)` over all positions with m * A != 0."""
    loss, grads = 0.0, []
    statistics = _Statistics()
    for datum, values in zip(data, logprobs, strict=True):
        advantages, sampled, mask = _policy_inputs(datum, values, name)
        active = (mask != 0) & (advantages != 0)
        log_ratio = np.where(active, values, 0.0).astype(np.float64) - np.where(active, sampled, 0.0)
        with np.errstate(over="ignore"):  # an overflow makes the loss infinite, which is reported as that
            terms = objective(np.exp(log_ratio), advantages)
        scale = np.where(active, mask, 0.0)
        value = terms.value * np.where(active, values, 0.0) if terms.multiplies_logprob else terms.value
        loss -= float(np.sum(scale * value))
        grads.append((-scale * terms.derivative).astype(values.dtype, copy=False))
        statistics.add(log_ratio[active], terms.clipped[active])
    return LossResult(loss=loss, grads=grads, metrics=statistics.metrics())


def _policy_inputs(
    datum: Datum, values: NDArray[Any], name: str
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    advantages = _input(datum, "advantages", values, name)
    sampled = _input(datum, "logprobs", values, name)
    mask = _input(datum, "weights", values, name) if "weights" in datum.loss_inputs else np.ones(values.shape)
    return advantages, sampled, mask


def _input(datum: Datum, key: str, values: NDArray[Any], name: str) -> NDArray[np.float64]:
    """A loss input in float64 and in the shape of the logprobs."""
    found = datum.loss_inputs.get(key)
    if found is None:
        have = ", ".join(sorted(datum.loss_inputs)) or "none"
        raise ValueError(f"{name} needs the loss input {key!r}; this datum has {have}")
    array = np.asarray(found, dtype=np.float64)
    if array.ndim == values.ndim - 1:
        array = array[:, None]  # one value a position for all its K targets
    return np.broadcast_to(array, values.shape)


def _bounds(clip_low: float, clip_high: float) -> tuple[float, float]:
    if not 0 <= clip_low <= 1:
        raise ValueError(f"clip_low must be between 0 and 1, got {clip_low}")
    if not clip_high >= 0:
        raise ValueError(f"clip_high must be at least 0, got {clip_high}")
    return 1.0 - clip_low, 1.0 + clip_high
