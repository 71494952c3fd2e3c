"""Measures of rollouts and of steps, which show a failing training while it runs."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from evsys.types import Score
from evsys_algo_rl.shaping import is_reward
from evsys_runtime.training.rollout_groups import shares

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from evsys.types import Datum, ForwardResult, Rollout
    from evsys_algo_rl.groups import Member, TaskGroup

__all__ = ["QUANTILES", "mismatch_warning", "ratio_metrics", "repetition", "rollout_metrics"]

QUANTILES = (0.01, 0.5, 0.99)

MISMATCH = 0.01
"""Mean KL, in nats a token, from which on sampler and trainer aren't one model any more: rounding gives far less."""

LOOKED_AT = 32
"""Rollouts of a step whose texts are looked at for repetition."""

NGRAM = 4

MULTIPLIERS = tuple(np.uint64(0x9E3779B97F4A7C15 ** (i + 1) % 2**64) for i in range(NGRAM))
"""Of a hash of four tokens: odd numbers without a pattern."""


def rollout_metrics(groups: Sequence[TaskGroup], estimator: str) -> dict[str, float]:
    """Rewards, their components, shares of what went wrong, and lengths, over all rollouts of a step."""
    rollouts = [rollout for group in groups for rollout in group.rollouts]
    members = [member for group in groups for member in group.members]
    lost: Counter[str] = sum((Counter(group.lost) for group in groups), Counter())
    count = max(len(rollouts), 1)
    found = {
        "groups": float(len(groups)),
        **shares(rollouts, lost),
        "zero_variance_share": sum(group.flat(estimator) for group in groups) / max(len(groups), 1),
        "timed_out_share": sum(rollout.timed_out for rollout in rollouts) / count,
        "error_share": lost["error"] / count,
        "no_score_share": lost["no_score"] / count,
    }
    return found | _rewards(rollouts, members) | _lengths(members)


def _rewards(rollouts: Sequence[Rollout], members: Sequence[Member]) -> dict[str, float]:
    values: dict[str, list[float]] = defaultdict(list)
    for rollout in rollouts:
        score = rollout.score
        if isinstance(score, Score) and rollout.error is None and is_reward(score.value):
            values["reward"].append(score.value)
            for name, value in score.components.items():
                values[f"reward/{name}"].append(value)
    if members:
        values["reward_shaped"] = [member.reward for member in members]
    # Divided first: components may be as large as they like, and the sum of such may be no number.
    return {name: math.fsum(x / len(numbers) for x in numbers) for name, numbers in values.items()}


def _lengths(members: Sequence[Member]) -> dict[str, float]:
    if not members:
        return {}
    lengths = [member.length for member in members]
    rows = [row for member in members for row in member.trajectories]
    logprobs = np.concatenate([row.logprobs for row in rows])  # 0 where nothing was sampled
    return {
        "length_mean": sum(lengths) / len(lengths),
        "length_max": float(max(lengths)),
        "turns_mean": sum(len(row.spans) for row in rows) / len(members),
        "sequences": float(len(rows)),
        # -log p of what was drawn from p is the entropy of p in the mean
        "entropy": -float(logprobs.sum()) / max(sum(lengths), 1),
        "repetition": repetition([_completion_tokens(member) for member in members[:LOOKED_AT]]),
    }


def _completion_tokens(member: Member) -> NDArray[np.int64]:
    return np.concatenate(
        [row.tokens[span.start : span.end] for row in member.trajectories for span in row.spans]
    )


def repetition(texts: Sequence[NDArray[np.int64]]) -> float:
    """The share of runs of four tokens in the same text before, over all texts."""
    if not texts:
        return 0.0
    ids = np.concatenate(texts).astype(np.uint64)
    hashes = np.zeros(max(len(ids) - NGRAM + 1, 0), np.uint64)
    for i, multiplier in enumerate(MULTIPLIERS):
        hashes += ids[i : i + len(hashes)] * multiplier  # wraps around
    every = hashes.tolist()
    repeated = total = start = 0
    for tokens in texts:
        runs = len(tokens) - NGRAM + 1
        if runs > 0:
            total += runs
            repeated += runs - len(set(every[start : start + runs]))
        start += len(tokens)
    return repeated / max(total, 1)


def ratio_metrics(data: Sequence[Datum], result: ForwardResult) -> dict[str, float]:
    """How far the trained policy is from the one that sampled, over the positions that have a loss.

    `kl_sampler_trainer` is KL(sampler || trainer) by the estimator that is never negative (k3,
    http://joschu.net/blog/kl-approx.html), `_max` its largest term; `ratio_pNN` are quantiles of trainer over
    sampler.
    """
    if not result.logprobs:
        return {}
    policy = np.concatenate(result.logprobs).astype(np.float64, copy=False)
    sampled = np.concatenate([datum.loss_inputs["logprobs"] for datum in data])
    weights = np.concatenate([datum.loss_inputs["weights"] for datum in data])
    log_ratio = (policy - sampled)[(weights != 0) & np.isfinite(policy)]
    if log_ratio.size == 0:
        return {}
    with np.errstate(over="ignore"):
        ratio = np.exp(log_ratio)
    terms = ratio - 1.0 - log_ratio
    found = {"kl_sampler_trainer": float(terms.mean()), "kl_sampler_trainer_max": float(terms.max())}
    quantiles = np.quantile(ratio, QUANTILES)
    return found | {
        f"ratio_p{round(share * 100):02d}": float(value)
        for share, value in zip(QUANTILES, quantiles, strict=True)
    }


def mismatch_warning(metrics: Mapping[str, float]) -> str | None:
    """The warning if sampler and trainer disagree though no step lies between them; else None.

    Every ratio is wrong then, and training continues as if it were right.
    """
    divergence = metrics.get("kl_sampler_trainer", 0.0)
    if metrics.get("staleness_max") != 0.0 or divergence < MISMATCH:
        return None
    return (
        "sampler and trainer give the same tokens different logprobs with the same weights: look at what the backend samples "
        "with (temperature, top_p, precision, adapter), and at kl_sampler_trainer; mask_token_ratio limits the harm"
    )
