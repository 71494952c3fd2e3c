"""Values between an algorithm, the training loop and a backend."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate

import attrs

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = [
    "AdamParams",
    "Checkpoint",
    "Datum",
    "ForwardResult",
    "LoraSpec",
    "LossFn",
    "LossResult",
    "ModelSpec",
    "OptimResult",
    "TrainingBatch",
]


@attrs.frozen(kw_only=True)
class LoraSpec:
    """The trained weights. `rank` None means all of them; `targets` are names of linear layers, or `all-linear`."""

    rank: int | None = 32
    alpha: float = 32.0
    targets: tuple[str, ...] = ("all-linear",)


@attrs.frozen(kw_only=True)
class ModelSpec:
    """Which model a backend prepares; stored whole alongside each checkpoint, so a resume forgets nothing."""

    name: str
    lora: LoraSpec = attrs.field(factory=LoraSpec)
    renderer: str | None = None
    init_from_checkpoint: str | None = None
    load_checkpoint_path: str | None = None
    max_length: int | None = None


@attrs.frozen(kw_only=True)
class Datum:
    """One training sequence.

    `tokens` [N] is the model's input. Each array of `loss_inputs` is [N], or [N, K] for top-k targets, and entry i
    belongs to the prediction made after tokens[i]: `target_tokens[i]` is the token that follows. Known names:
    `target_tokens`, `weights`, `logprobs`, `advantages`, `ref_logprobs`. `meta` has group, pair, rollout, turn,
    policy version and row id where they apply.
    """

    tokens: NDArray[np.int64]
    loss_inputs: Mapping[str, NDArray[Any]]
    meta: Mapping[str, Any] = attrs.field(factory=dict)

    def __attrs_post_init__(self) -> None:
        n = len(self.tokens)
        plain = (n,)  # hundreds are made in each step, so the usual shape costs one comparison
        for name, array in self.loss_inputs.items():
            if array.shape != plain and (array.ndim != 2 or array.shape[0] != n):
                shape = "x".join(map(str, array.shape))
                msg = f"loss input {name!r} has shape {shape}, expected [{n}] or [{n}, K] to match its {n} tokens"
                raise ValueError(msg)


@attrs.frozen(kw_only=True)
class LossResult:
    """A loss with its gradient: `grads` has one array a datum, d(loss)/d(logprobs), in the shape of its logprobs."""

    loss: float
    grads: Sequence[NDArray[Any]]
    metrics: Mapping[str, float] = attrs.field(factory=dict)


type LossFn = Callable[Concatenate[Sequence[Datum], Any, ...], Any]
"""`(data, logprobs, **params) -> loss | (loss, metrics) | LossResult`; see `evsys.protocols.Loss`."""


@attrs.define(kw_only=True)
class TrainingBatch:
    """The return value of `build_batch`, which a subclass may amend, for example `batch.loss_fn = my_loss`.

    `loss_fn` is a built-in loss's name or a callable, `loss_params` its settings. The loss is a sum: the algorithm
    has divided weights or advantages by the global denominator already. `batch_id` names the batch in the journal
    (by default the hash of the row ids), `row_ids` the consumed rows, `metrics` the values measured while building
    it.
    """

    data: list[Datum]
    loss_fn: str | LossFn = "cross_entropy"
    loss_params: Mapping[str, Any] = attrs.field(factory=dict)
    metrics: dict[str, float] = attrs.field(factory=dict)
    row_ids: tuple[str, ...] = ()
    batch_id: str = ""


@attrs.frozen(kw_only=True)
class AdamParams:
    """One optimiser step. evsys always sends all of them, since servers' own defaults differ.

    `grad_clip` is the largest global L2 norm; 0 means no clipping.
    """

    learning_rate: float
    beta1: float = 0.9
    beta2: float = 0.95
    eps: float = 1e-8
    weight_decay: float = 0.0
    grad_clip: float = 1.0


@attrs.frozen(kw_only=True)
class ForwardResult:
    """The result of a forward pass; `loss` is the sum, None for a bare forward.

    `logprobs` has one array a datum in the shape of its `target_tokens`. If a built-in loss has no term, as at
    weight 0, a backend needn't compute them: they may be NaN after `forward_backward`, so select by weight before
    reading them. A bare forward gives all of them.
    """

    logprobs: Sequence[NDArray[Any]]
    loss: float | None = None
    metrics: Mapping[str, float] = attrs.field(factory=dict)
    tokens: int = 0


@attrs.frozen(kw_only=True)
class OptimResult:
    """`grad_norm` is the global L2 norm before clipping; None if the backend doesn't report it."""

    grad_norm: float | None = None
    metrics: Mapping[str, float] = attrs.field(factory=dict)


@attrs.frozen(kw_only=True)
class Checkpoint:
    """A complete saved state: `step` optimiser steps were done.

    `directory` is its folder in the record, `state` what the backend needs to find its part again (JSON values: a
    `tinker://` address, a file name), `loop` what the training loop and the algorithm need (data position, RNG).
    """

    step: int
    directory: Path
    state: Mapping[str, Any] = attrs.field(factory=dict)
    loop: Mapping[str, Any] = attrs.field(factory=dict)
    with_optimizer: bool = True
