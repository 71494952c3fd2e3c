"""`TrainingParams`: what every algorithm lets a file set, with the reasons for its defaults."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import attrs

from evsys import option
from evsys.types import AdamParams, LoraSpec
from evsys_runtime.training.retreat import ON_COLLAPSE

__all__ = ["TrainingParams", "adam_params", "lora_spec", "resolve_batch_size", "resolve_steps"]

_LORA = "LoRA Without Regret, https://thinkingmachines.ai/blog/lora/"
_COOKBOOK = "Tinker cookbook, https://github.com/thinking-machines-lab/tinker-cookbook"


@attrs.frozen(kw_only=True)
class TrainingParams:
    """The part of an algorithm's params that the training loop reads. Algorithms inherit it and add their own.

    How long a run is: `steps`, or else `epochs` over the rows, or else one epoch; both at once is an error.

    Class attributes:
        default_batch_size: of a run whose file gives none; with fewer rows than that, a batch has all of them.
    """

    default_batch_size: ClassVar[int] = 128

    lora_rank: int | None = option(
        32,
        "Rank of the trained matrices; null trains all weights, where the backend can.",
        ge=1,
        source=_LORA,
    )
    lora_alpha: float = option(
        32.0,
        "LoRA's scale is alpha / rank; fixed, it makes the learning rate independent of rank.",
        gt=0,
        source=_LORA,
    )
    target_modules: str | tuple[str, ...] = option(
        "all-linear", "Which linear layers are trained, by name.", min_len=1, source=_LORA
    )
    learning_rate: float | None = option(
        None,
        "Peak learning rate. By default ten times that of full fine-tuning, from the model's family and width; "
        "a model of unknown family needs a number.",
        ge=0,
        source=_COOKBOOK + " (get_lr) and " + _LORA,
    )
    lr_schedule: str = option(
        "linear",
        "From the peak to 0 by a line or half a cosine, or constant.",
        choices=("linear", "constant", "cosine"),
        source=_COOKBOOK,
    )
    schedule_steps: int | None = option(
        None,
        "Step at which the rate of a linear or cosine schedule reaches 0; by default the last. A fork with more steps keeps its parent's "
        "schedule by this.",
        ge=1,
    )
    warmup_steps: int = option(0, "Steps in which the rate rises to its peak.", ge=0, source=_COOKBOOK)
    beta1: float = option(0.9, "Adam: decay of the first moment.", ge=0, lt=1, source=_COOKBOOK)
    beta2: float = option(0.95, "Adam: decay of the second moment.", ge=0, lt=1, source=_COOKBOOK)
    eps: float = option(1e-8, "Adam: added to the denominator.", gt=0, source=_COOKBOOK)
    weight_decay: float = option(0.0, "Decoupled weight decay.", ge=0, source=_COOKBOOK)
    grad_clip: float = option(
        1.0, "Largest global L2 norm of a gradient; 0 means no clipping.", ge=0, source=_COOKBOOK
    )
    batch_size: int | None = option(
        None,
        "Rows of one step; LoRA loses more at large batches. By default 128, or all rows if there are fewer.",
        ge=1,
        source=_LORA,
    )
    micro_batch_tokens: int | None = option(
        None,
        "Most tokens of one request: a step's batch goes to the backend in parts, whose gradients are added up before the "
        "optimiser's step. By default it goes in one.",
        ge=1,
    )
    steps: int | None = option(
        None, "Optimiser steps, over as many epochs as that takes.", ge=1, aliases=("max_steps",)
    )
    epochs: float | None = option(None, "Passes over the rows, when `steps` isn't given; 1 by default.", gt=0)
    max_length: int | None = option(
        None,
        "Longest sequence in tokens; longer ones are dropped and counted. By default the model's limit.",
        ge=2,
    )
    save_every: int = option(50, "Steps between checkpoints; 0 saves at the end only.", ge=0)
    log_every: int = option(
        10, "Steps between lines in the run's log; metrics are recorded at every step.", ge=1
    )
    on_collapse: str = option(
        "stop",
        "If training collapses: stop the run; resume from its best checkpoint with a lower learning rate (rollback); "
        "score the collapsed weights first (branch); or only report it (warn).",
        choices=ON_COLLAPSE,
    )
    max_rollbacks: int = option(
        3, "With `rollback` and `branch`: after this many, the next collapse ends the run.", ge=1
    )
    rollback_lr_factor: float = option(0.5, "Multiplies the learning rate at each of them.", gt=0, le=1)

    def __attrs_post_init__(self) -> None:
        if self.steps is not None and self.epochs is not None:
            raise ValueError("both 'steps' and 'epochs' set the length of training; keep one")


def resolve_batch_size(params: Any, rows: int | None) -> int:
    """How many rows one step takes: as many as the params say, else the default, or all `rows` if there are known to be fewer."""
    if params.batch_size is not None:
        return int(params.batch_size)
    default: int = params.default_batch_size
    return default if rows is None else min(default, max(rows, 1))


def resolve_steps(params: Any, rows: int) -> tuple[int, int | None]:
    """How long to train: optimiser steps, and how many rows they take in all.

    Args:
        params: with `steps`, `epochs` and `batch_size`.
        rows: how many rows there are.

    Returns:
        `(steps, limit)`. With `steps` each batch is full and `limit` is None; with epochs the last batch may be
        smaller, so that each row is taken exactly as often as another (but for a part of an epoch).
    """
    if params.steps is not None:
        return params.steps, None
    epochs = 1.0 if params.epochs is None else params.epochs
    limit = max(round(epochs * rows), 1)
    return math.ceil(limit / resolve_batch_size(params, rows)), limit


def lora_spec(params: Any) -> LoraSpec:
    """The trained adapter."""
    modules = params.target_modules
    return LoraSpec(
        rank=params.lora_rank,
        alpha=params.lora_alpha,
        targets=(modules,) if isinstance(modules, str) else tuple(modules),
    )


def adam_params(params: Any, learning_rate: float) -> AdamParams:
    """All settings of one optimiser step: servers' own defaults differ, so none is left to them."""
    return AdamParams(
        learning_rate=learning_rate,
        beta1=params.beta1,
        beta2=params.beta2,
        eps=params.eps,
        weight_decay=params.weight_decay,
        grad_clip=params.grad_clip,
    )
