"""The params of `rl`, with the reasons for their defaults."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs
from attrs import validators

from evsys import option
from evsys_algo_rl.aggregation import AGGREGATIONS
from evsys_runtime import TrainingParams
from evsys_runtime.training.rollout_params import RolloutParams

__all__ = ["OVERLONG", "GuardParams", "RLParams"]

OVERLONG = ("keep", "mask", "penalise")
"""The treatment of truncated rollouts: nothing, no loss on them, or a lower reward from before the limit."""

_COOKBOOK = "Tinker cookbook, https://github.com/thinking-machines-lab/tinker-cookbook"
_DR_GRPO = "Dr. GRPO, https://arxiv.org/abs/2503.20783"
_DAPO = "DAPO, https://arxiv.org/abs/2503.14476"
_MISMATCH = "https://github.com/verl-project/verl/pull/3694"
_KL = "http://joschu.net/blog/kl-approx.html"
_ASYNC = "ScaleRL, https://arxiv.org/abs/2510.13786"

ADVANTAGES = ("mean", "mean_std", "rloo", "batch_std", "none")
BUILTIN_SETTINGS: Mapping[str, tuple[str, ...]] = {
    "importance_sampling": (),
    "ppo": ("clip_low", "clip_high", "dual_clip"),
    "cispo": ("clip_low", "clip_high"),
    "gspo": ("clip_low", "clip_high"),
    "dro": ("beta",),
}
"""The built-in policy losses with their settings. Any other name is a registered loss's."""

KL_ESTIMATORS = ("k1", "k2", "k3")


def _bounds(_instance: Any, field: attrs.Attribute[Any], value: tuple[float, float] | None) -> None:
    if value is not None and not (0 <= value[0] < 1 < value[1]):
        raise ValueError(f"'{field.name}' must be [low, high] with 0 <= low < 1 < high, got {list(value)}")


def _bounded(help: str, source: str) -> Any:
    return attrs.field(default=None, validator=_bounds, metadata={"help": help, "source": source})


@attrs.frozen(kw_only=True)
class GuardParams:
    """A second opinion that is never part of the reward: a verifier of the same rollouts, or a benchmark."""

    verifier: str | None = option(
        None,
        "A verifier that judges the same rollouts; it can't be the one that gives the reward.",
        min_len=1,
    )
    benchmark: str | None = option(
        None,
        "Instead of a verifier, a benchmark by its name, its id, or the path of its tasks, which are scored by their own verifiers.",
        min_len=1,
    )
    transforms: tuple[Mapping[str, Any], ...] = option(
        (), "Transforms that make tasks of the benchmark's rows, as `{kind, params}`."
    )
    tasks: int = option(16, "Number of benchmark tasks to draw and sample once at each check.", ge=1)
    params: Mapping[str, Any] = option(attrs.Factory(dict), "Its params.")
    expected: str | None = option(
        None,
        "Key of the tasks' metadata that holds what it expects; by default what the reward's verifier expects.",
        min_len=1,
    )
    every: int = option(1, "Samplings from one check to the next.", ge=1)
    start: int = option(5, "Checks that make up the start, which later ones are compared with.", ge=1)
    margin: float = option(
        0.05, "Tolerated growth of the gap between reward and guard, both scaled to 0..1.", ge=0, lt=1
    )
    level: float = option(
        0.05, "Largest probability of an alarm in a whole run whose gap doesn't grow.", gt=0, lt=1
    )
    action: str = option(
        "report", "Action on an alarm: report it, or also stop the run.", choices=("report", "stop")
    )

    def __attrs_post_init__(self) -> None:
        if (self.verifier is None) == (self.benchmark is None):
            raise ValueError("a guard needs a 'verifier' or a 'benchmark', and not both")

    @property
    def words(self) -> str:
        """A description of the judging verifier or benchmark."""
        return (
            f"the benchmark {self.benchmark!r}" if self.verifier is None else f"the guard {self.verifier!r}"
        )


@attrs.frozen(kw_only=True)
class RLParams(TrainingParams, RolloutParams):
    """Params of `rl`. A step's batch is `batch_size` groups of `group_size` rollouts."""

    # --- what differs from other trainings ---
    batch_size: int = option(
        32,
        "Groups of one optimiser step: so many tasks, each rolled out `group_size` times.",
        ge=1,
        source=_COOKBOOK,
        aliases=("groups_per_step",),
    )
    learning_rate: float | None = option(
        4e-5, "Peak learning rate; small models tolerate more, such as 3e-4.", ge=0, source=_COOKBOOK
    )
    lr_schedule: str = option(
        "constant",
        "From the peak to 0 by a line or half a cosine, or constant.",
        choices=("linear", "constant", "cosine"),
        source=_COOKBOOK,
    )

    # --- rollouts ---
    group_size: int = option(
        8,
        "Rollouts of each task, which are compared with each other; 1 only where `advantage` is none.",
        ge=1,
        source="below 4 the baseline is noise; " + _COOKBOOK,
        aliases=("num_samples",),
    )
    temperature: float = option(
        1.0, "Sampling temperature; ratios and KL are only right at 1.", gt=0, source=_COOKBOOK
    )
    max_tokens: int = option(256, "Most tokens of one answer.", ge=1, le=10_000_000)
    max_staleness: int | None = option(
        None,
        "How many samplings the policy may be ahead of the one that a group was sampled by; above 0 rollouts and training "
        "overlap. By default 0 where the run is deterministic, else 1.",
        ge=0,
        source=_ASYNC,
    )
    substeps: int = option(
        1, "Optimiser steps on each sampling, each on `batch_size` groups of it.", ge=1, source=_COOKBOOK
    )

    # --- what is learnt from them ---
    advantage: str = option(
        "mean",
        "Reward minus the group's mean; that over the group's standard deviation, or the whole batch's; reward minus the "
        "mean of the others; or the reward itself.",
        choices=ADVANTAGES,
        source=_DR_GRPO,
    )
    loss: str = option(
        "importance_sampling",
        "importance_sampling, ppo, cispo, gspo, dro, or the name of a registered loss.",
        min_len=1,
        source=_COOKBOOK,
    )
    loss_params: Mapping[str, Any] = option(
        attrs.Factory(dict), "Further settings of the loss, such as `beta` of dro."
    )
    clip_low: float | None = option(
        None,
        "How far below 1 a ratio may go, for ppo, cispo and gspo; by default that of the loss.",
        ge=0,
        le=1,
        source=_DAPO,
    )
    clip_high: float | None = option(
        None,
        "How far above 1 a ratio may go, for ppo, cispo and gspo; by default that of the loss.",
        ge=0,
        source=_DAPO,
    )
    loss_agg: str = option(
        "token",
        "The mean over all tokens of the batch, over the means of rollouts, or over the longest possible rollouts.",
        choices=AGGREGATIONS,
        source=_DAPO,
    )
    ratio_cap: float | None = option(
        None,
        "Truncated importance sampling: a token counts with at most this ratio of policy to sampler, such as 2.",
        gt=1,
        source=_MISMATCH,
    )
    mask_token_ratio: tuple[float, float] | None = _bounded(
        "Tokens whose ratio is outside [low, high] have no loss, such as [0.5, 2].", _MISMATCH
    )
    mask_sequence_ratio: tuple[float, float] | None = _bounded(
        "Sequences whose geometric mean of ratios is outside [low, high] have no loss, such as [0.99, 1.01].",
        _MISMATCH,
    )
    kl_coef: float = attrs.field(
        default=0.0,
        validator=validators.ge(0),
        metadata={
            "help": "Weight of the KL divergence from the weights that the run started from; 1e-3 to 1e-2 keep a style.",
            "source": _KL,
            "requires": "prompt_logprobs",
        },
    )
    kl_estimator: str = option(
        "k3",
        "How it is estimated: k2 and k3 are terms of the loss, k1 goes into the reward.",
        choices=KL_ESTIMATORS,
        source=_KL,
    )
    entropy_coef: float = option(
        0.0, "Bonus reward for tokens of low probability at sampling.", ge=0, source=_ASYNC
    )
    filter_groups: bool = option(
        False, "Leave out groups whose rewards are all equal, and sample others instead.", source=_DAPO
    )
    max_refill: float = option(
        1.0, "With `filter_groups`, at most so many times `batch_size` further groups a step.", ge=0
    )
    overlong: str = option(
        "keep",
        "Truncated rollouts: judged like others, without a loss, or with a reward that falls before the limit.",
        choices=OVERLONG,
        source=_DAPO,
    )
    overlong_buffer: int | None = option(
        None,
        "With `overlong: penalise`, over how many tokens the reward falls by 1; by default a quarter of the limit.",
        ge=1,
        source=_DAPO,
    )
    length_penalty: float = option(
        0.0, "Taken from the reward of a right answer for each time it is as long again as the target.", ge=0
    )
    length_target: int | None = option(
        None, "Length from which the penalty counts; by default half the limit.", ge=1
    )

    # --- when it is over ---
    guard: GuardParams | None = option(
        None,
        "A second verifier or a benchmark that detects a rising reward without a real improvement.",
    )
    max_flat_steps: int = option(
        10, "The run stops after so many steps in which no group had anything to learn from.", ge=1
    )

    def __attrs_post_init__(self) -> None:
        super().__attrs_post_init__()
        if self.group_size == 1 and self.advantage != "none":
            raise ValueError(
                f"'group_size' 1 leaves nothing to compare a rollout with, so advantage {self.advantage!r} is always 0; "
                "write at least 4, or advantage: none"
            )
        known = BUILTIN_SETTINGS.get(self.loss)
        unknown = [] if known is None else [name for name in self.loss_settings if name not in known]
        if unknown:
            can = f"knows {', '.join(known)}" if known else "has no settings"
            raise ValueError(f"loss {self.loss!r} {can}; '{unknown[0]}' means nothing to it")
        if self.loss == "cross_entropy":
            raise ValueError("loss 'cross_entropy' does not use rewards; algorithm `sft` trains with it")
        if self.overlong_buffer is not None and self.overlong != "penalise":
            raise ValueError("'overlong_buffer' means something with overlong: penalise only")

    @property
    def longest(self) -> int:
        """Most tokens that the model may write in one rollout; of one answer if there is no `max_turns`."""
        return self.longest_of(1)

    def longest_of(self, answers: int) -> int:
        """Most tokens of a rollout with so many answers: those of `max_turns` answers, or of its own if that is not set."""
        return self.max_tokens * (self.max_turns or max(answers, 1))

    @property
    def loss_settings(self) -> dict[str, Any]:
        """The settings that the loss is called with."""
        clips = {"clip_low": self.clip_low, "clip_high": self.clip_high}
        return {**self.loss_params, **{name: value for name, value in clips.items() if value is not None}}
