"""The params of both distillations in addition to those of every training."""

from __future__ import annotations

from typing import ClassVar

import attrs

from evsys import option
from evsys_runtime import TrainingParams
from evsys_runtime.training.rollout_params import RolloutParams

__all__ = ["COOKBOOK", "ON_POLICY", "DistillationParams", "OPDParams"]

ON_POLICY = "On-policy distillation, https://thinkingmachines.ai/blog/on-policy-distillation/"
COOKBOOK = "Tinker cookbook, https://github.com/thinking-machines-lab/tinker-cookbook"
_RANK = "capacity: a teacher gives a signal for every token; " + COOKBOOK


@attrs.frozen(kw_only=True)
class DistillationParams(TrainingParams):
    """Params of `opd` and `sdft`. A step's batch is `batch_size` prompts, each answered `group_size` times."""

    default_batch_size: ClassVar[int] = 32

    batch_size: int | None = option(
        None,
        "Prompts of one step, each answered `group_size` times. By default 32, or all prompts if there are fewer.",
        ge=1,
        source=COOKBOOK,
    )
    learning_rate: float | None = option(1e-4, "Peak learning rate.", ge=0, source=f"{COOKBOOK}; {ON_POLICY}")
    lr_schedule: str = option(
        "constant",
        "From the peak to 0 by a line or half a cosine, or constant.",
        choices=("linear", "constant", "cosine"),
        source=COOKBOOK,
    )
    lora_rank: int | None = option(
        128,
        "Rank of the trained matrices; null trains all weights, where the backend can.",
        ge=1,
        source=_RANK,
    )
    max_tokens: int = option(256, "Most tokens of one answer.", ge=1, le=10_000_000)


@attrs.frozen(kw_only=True)
class OPDParams(DistillationParams, RolloutParams):
    """Params of `opd`."""

    group_size: int = option(4, "Answers to each prompt, or rollouts of each task.", ge=1, source=COOKBOOK)
    rollouts: bool = option(
        False,
        "Rows are tasks, as for `rl`: an agent works on each, and the student learns from its output in every turn.",
    )
    kl_coef: float = option(1.0, "Factor of the difference of logprobs.", gt=0, source=ON_POLICY)

    def __attrs_post_init__(self) -> None:
        DistillationParams.__attrs_post_init__(self)
        given = [
            field.name for field in attrs.fields(RolloutParams) if getattr(self, field.name) != field.default
        ]
        if given and not self.rollouts:
            raise ValueError(
                f"'{given[0]}' is for rollouts: true; a prompt is answered once, by the model alone"
            )
