"""The built-in losses by formulas of the suite's own, against which backends and losses are measured.

lp is the logprob of a target, q the sampler's, A the advantage, m the mask (`weights`, 1 where absent), r = exp(lp - q).
Each loss is a sum over tokens; gradients are by lp.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from evsys.types import LossResult

if TYPE_CHECKING:
    from evsys.types import Datum

__all__ = ["ORACLES", "PARAMS"]

type Oracle = Callable[[Sequence[Datum], Sequence[Any]], LossResult]
type _Formula = Callable[[Any, Any, Any, Any], tuple[Any, Any]]

PARAMS: Mapping[str, Mapping[str, float]] = {
    "cross_entropy": {},
    "importance_sampling": {},
    "ppo": {"clip_low": 0.2, "clip_high": 0.28},
    "cispo": {"clip_high": 0.28},
    "gspo": {"clip_low": 3e-4, "clip_high": 4e-4},
    "dro": {"beta": 0.05},
}
"""The settings at which the formulas are taken."""


def _oracle(formula: _Formula) -> Oracle:
    """A loss from `formula(lp, q, A, m) -> (terms, d terms / d lp)`."""

    def loss(data: Sequence[Datum], logprobs: Sequence[Any]) -> LossResult:
        total, grads = 0.0, []
        for datum, own in zip(data, logprobs, strict=True):
            lp = np.asarray(own, dtype=np.float64)
            inputs = [_like(datum.loss_inputs.get(name), lp, default) for name, default in _INPUTS]
            lp = np.where(inputs[-1] == 0, 0.0, lp)  # without weight a backend may leave it out
            terms, slopes = formula(lp, *inputs)
            total += float(np.sum(terms))
            grads.append(slopes)
        return LossResult(loss=total, grads=grads)

    return loss


_INPUTS = (("logprobs", 0.0), ("advantages", 0.0), ("weights", 1.0))


def _like(values: Any, lp: Any, default: float) -> Any:
    if values is None:
        return np.full(lp.shape, default)
    array = np.asarray(values, dtype=np.float64)
    return np.broadcast_to(array if array.ndim == lp.ndim else array[:, None], lp.shape)


def _cross_entropy(lp: Any, _q: Any, _a: Any, m: Any) -> tuple[Any, Any]:
    return -m * lp, -m


def _importance_sampling(lp: Any, q: Any, a: Any, m: Any) -> tuple[Any, Any]:
    terms = -m * np.exp(lp - q) * a
    return terms, terms


def _ppo(lp: Any, q: Any, a: Any, m: Any) -> tuple[Any, Any]:
    ratio = np.exp(lp - q)
    low, high = 1 - PARAMS["ppo"]["clip_low"], 1 + PARAMS["ppo"]["clip_high"]
    free, held = ratio * a, np.clip(ratio, low, high) * a
    return -m * np.minimum(free, held), -m * np.where(free <= held, free, 0.0)


def _cispo(lp: Any, q: Any, a: Any, m: Any) -> tuple[Any, Any]:
    weight = np.minimum(np.exp(lp - q), 1 + PARAMS["cispo"]["clip_high"]) * a
    return -m * weight * lp, -m * weight


def _gspo(lp: Any, q: Any, a: Any, m: Any) -> tuple[Any, Any]:
    spoken = m != 0
    count = max(int(spoken.sum()), 1)
    ratio = np.exp(np.sum(np.where(spoken, lp - q, 0.0)) / count)
    low, high = 1 - PARAMS["gspo"]["clip_low"], 1 + PARAMS["gspo"]["clip_high"]
    free, held = ratio * a, np.clip(ratio, low, high) * a
    pull = np.sum(-m * np.where(free <= held, free, 0.0))
    return -m * np.minimum(free, held), np.where(spoken, pull / count, 0.0)


def _dro(lp: Any, q: Any, a: Any, m: Any) -> tuple[Any, Any]:
    beta = PARAMS["dro"]["beta"]
    return -m * (lp * a - beta / 2 * (lp - q) ** 2), -m * (a - beta * (lp - q))


ORACLES: Mapping[str, Oracle] = {
    "cross_entropy": _oracle(_cross_entropy),
    "importance_sampling": _oracle(_importance_sampling),
    "ppo": _oracle(_ppo),
    "cispo": _oracle(_cispo),
    "dro": _oracle(_dro),
    "gspo": _oracle(_gspo),
}
