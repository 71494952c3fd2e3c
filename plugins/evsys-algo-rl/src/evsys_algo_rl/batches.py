"""From judged groups to a training batch: advantages, shares of the loss, one datum a sequence."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np

from evsys.types import Datum
from evsys_algo_rl.advantages import advantages
from evsys_algo_rl.aggregation import token_shares
from evsys_runtime import PolicyObjective, to_datum
from evsys_runtime.training.trajectories import Trajectory, to_data

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from evsys.types import LossFn
    from evsys_algo_rl.groups import Member, TaskGroup
    from evsys_algo_rl.params import RLParams

__all__ = ["References", "make_data", "objective"]

type References = Mapping[int, NDArray[np.float64]]
"""The reference's logprobs of each trajectory's sampled tokens, [N], by the trajectory's `id`."""

BY_ADVANTAGE = ("importance_sampling", "ppo", "cispo", "gspo")
"""Losses whose terms are multiplied by the advantage as a whole, so that a share of the loss may be in it. Servers know
these by name, and not all of them know weights alongside."""


NO_SIGNAL = "importance_sampling"
"""The loss of a batch in which nothing is trained: with advantages of 0 its gradient is 0."""


def is_trained(groups: Sequence[TaskGroup]) -> bool:
    """True where some member of some group has a loss."""
    return any(member.trained for group in groups for member in group.members)


def objective(
    params: RLParams, groups: Sequence[TaskGroup] | None = None
) -> tuple[str | LossFn, Mapping[str, Any]]:
    """The loss of a batch and its settings: the named one, or it with corrections and penalties around it."""
    if groups is not None and not is_trained(groups):
        return NO_SIGNAL, {}
    in_loss = params.kl_coef if params.kl_estimator != "k1" else 0.0
    corrections = (params.ratio_cap, params.mask_token_ratio, params.mask_sequence_ratio)
    if not in_loss and all(each is None for each in corrections):
        return params.loss, params.loss_settings
    around = PolicyObjective(
        loss=params.loss,
        params=params.loss_settings,
        ratio_cap=params.ratio_cap,
        token_bounds=params.mask_token_ratio,
        sequence_bounds=params.mask_sequence_ratio,
        kl_coef=in_loss,
        kl_estimator=params.kl_estimator if in_loss else "k3",
    )
    return around, {}


def make_data(groups: Sequence[TaskGroup], params: RLParams, references: References | None) -> list[Datum]:
    """Every sequence of every trained member, with its advantage and its share of the loss.

    If no member is trained all of them are there, with advantages of 0.

    Args:
        groups: of one optimiser step.
        params: of the algorithm.
        references: needed where `kl_coef` isn't 0.
    """
    members = [member for group in groups for member in group.members]
    if not is_trained(groups):
        rows = [row for member in members for row in member.trajectories]
        return to_data(rows, [0.0] * len(rows))
    values = advantages(params.advantage, [group.rewards for group in groups])
    pairs = zip(members, chain.from_iterable(values), strict=True)
    trained = [(member, float(advantage)) for member, advantage in pairs if member.trained]
    shares = token_shares(params.loss_agg, [member.length for member, _ in trained], params.longest)
    bonus = _bonus(params, [member for member, _ in trained], references)
    each: list[tuple[Trajectory, Any, float]] = [
        (row, advantage, share)
        for (member, advantage), share in zip(trained, shares, strict=True)
        for row in member.trajectories
    ]
    if bonus is not None:
        each = [(row, advantage + bonus(row), share) for row, advantage, share in each]
    if objective(params)[0] in BY_ADVANTAGE:  # which the share can be folded into
        rows, weighted = [row for row, _, _ in each], [advantage * share for _, advantage, share in each]
        return to_data(rows, weighted) if bonus is None else list(map(to_datum, rows, weighted))
    return [_weighted(to_datum(row, value), row, share, references) for row, value, share in each]


def _weighted(datum: Datum, row: Trajectory, share: float, references: References | None) -> Datum:
    """A datum whose share of the loss is in its weights, since a part of the loss doesn't hang on the advantage."""
    inputs = {**datum.loss_inputs, "weights": datum.loss_inputs["weights"] * share}
    if references is not None:
        inputs["ref_logprobs"] = references[id(row)][1:]
    return Datum(tokens=datum.tokens, loss_inputs=inputs, meta=datum.meta)


def _bonus(
    params: RLParams, members: Sequence[Member], references: References | None
) -> Callable[[Trajectory], NDArray[np.float64]] | None:
    """The bonus of each token in addition to the rollout's reward, [N]; None if there isn't one.

    Both are policy gradients: of the entropy, E[-log p], against its mean over the batch, and of the KL divergence,
    E[log p - log ref]. As terms of the loss the gradient of their estimates would be 0 in the mean.
    """
    in_reward = params.kl_coef if params.kl_estimator == "k1" else 0.0
    if not in_reward and not params.entropy_coef:
        return None
    rows = [row for member in members for row in member.trajectories]
    total, count = sum(float(row.logprobs.sum()) for row in rows), sum(row.sampled for row in rows)
    mean = total / max(count, 1)

    def bonus(row: Trajectory) -> NDArray[np.float64]:
        found = params.entropy_coef * (mean - row.logprobs)
        if in_reward and references is not None:
            found = found - in_reward * np.where(row.mask, row.logprobs - references[id(row)], 0.0)
        return np.where(row.mask, found, 0.0)

    return bonus
