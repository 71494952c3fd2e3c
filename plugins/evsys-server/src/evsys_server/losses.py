"""Losses by the names and settings of the wire, as the built-in losses of evsys."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import attrs
import numpy as np

from evsys_runtime import BUILTIN_LOSSES

if TYPE_CHECKING:
    from evsys.types import Datum

__all__ = ["REDUCTIONS", "WireLoss", "loss_value", "wire_loss", "wire_metrics", "with_weights"]

_LOW, _HIGH = "clip_low_threshold", "clip_high_threshold"
_THRESHOLDS: Mapping[str, Mapping[str, float]] = {
    "ppo": {_LOW: 0.8, _HIGH: 1.2},
    "cispo": {_LOW: 0.8, _HIGH: 1.2},
    "gspo": {_LOW: 1 - 3e-4, _HIGH: 1 + 4e-4},
}
"""The default thresholds."""

_SETTINGS: Mapping[str, frozenset[str]] = {
    "cross_entropy": frozenset(),
    "importance_sampling": frozenset(),
    "ppo": frozenset({_LOW, _HIGH, "dual_clip"}),
    "cispo": frozenset({_LOW, _HIGH}),
    "gspo": frozenset({_LOW, _HIGH}),
    "dro": frozenset({"beta"}),
}

REDUCTIONS: Mapping[str, str] = {"ratio_max": "max"}
"""How metrics of several chunks are merged, where it isn't by the mean."""


@attrs.frozen(kw_only=True)
class WireLoss:
    """A loss as the backend takes it."""

    name: str
    params: Mapping[str, Any]


def wire_loss(name: str, config: Mapping[str, float | str]) -> WireLoss:
    """A loss by its name and settings on the wire.

    Bounds are ratios there (`clip_low_threshold`, `clip_high_threshold`) and distances from 1 here; the difference is
    exact for thresholds from 0.5 to 2.

    Raises:
        ValueError: no such loss or setting here, or no number.
    """
    known = _SETTINGS.get(name)
    if known is None:
        raise ValueError(f"there is no loss {name!r} here; served: {', '.join(_SETTINGS)}")
    for key in config:
        if key not in known:
            raise ValueError(f"{name} has no setting {key!r}; it has: {', '.join(sorted(known)) or 'none'}")
    texts = [key for key, value in config.items() if isinstance(value, str)]
    if texts:
        raise ValueError(f"{name}: {texts[0]} must be a number, got {config[texts[0]]!r}")
    params: dict[str, Any] = dict(config)
    if name in _THRESHOLDS:
        thresholds = {key: float(params.pop(key, default)) for key, default in _THRESHOLDS[name].items()}
        params |= {"clip_low": 1.0 - thresholds[_LOW], "clip_high": thresholds[_HIGH] - 1.0}
    return WireLoss(name=name, params=params)


def with_weights(data: Sequence[Datum]) -> list[Datum]:
    """The examples, each with weights: who sends none means all positions."""
    return [
        datum
        if "weights" in datum.loss_inputs
        else attrs.evolve(datum, loss_inputs={**datum.loss_inputs, "weights": _ones(datum)})
        for datum in data
    ]


def _ones(datum: Datum) -> Any:
    targets = datum.loss_inputs.get("target_tokens")
    return np.ones(len(datum.tokens) if targets is None else targets.shape, np.float32)


def loss_value(
    loss: WireLoss, data: Sequence[Datum], logprobs: Sequence[Any]
) -> tuple[float, Mapping[str, float]]:
    """Value and metrics of a loss on existing logprobs."""
    result = BUILTIN_LOSSES[loss.name](data, logprobs, **loss.params)
    return result.loss, result.metrics


def wire_metrics(loss: float, metrics: Mapping[str, float]) -> dict[str, float]:
    """Metrics by names that say how clients merge those of several chunks."""
    named = {f"{name}:{REDUCTIONS.get(name, 'mean')}": float(value) for name, value in metrics.items()}
    return {"loss:sum": float(loss), **named}
