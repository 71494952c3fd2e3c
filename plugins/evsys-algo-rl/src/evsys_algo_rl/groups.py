"""Rollouts of one task, judged: which can be learnt from, with what reward, and why the others can't."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

import attrs
import numpy as np

from evsys.types import NoScore, Rollout
from evsys_algo_rl.advantages import is_flat
from evsys_algo_rl.shaping import LARGEST, is_reward, shaped
from evsys_runtime.training.rollout_groups import learnable

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from evsys_algo_rl.params import RLParams
    from evsys_runtime.training.trajectories import Trajectory

__all__ = ["Member", "TaskGroup", "bad_reward", "judge"]


@attrs.frozen(kw_only=True, eq=False)
class Member:
    """A rollout that can be learnt from.

    `reward` is the shaped one, `length` counts what the model wrote. `trained` is False where the rollout counts for the mean
    of its group and has no loss of its own.
    """

    rollout: Rollout
    trajectories: tuple[Trajectory, ...]
    reward: float
    length: int
    trained: bool = True


@attrs.frozen(kw_only=True, eq=False)
class TaskGroup:
    """All rollouts of a task from one sampling.

    `position` is where the task was in the order of the data, `version` how many optimiser steps were behind the policy
    that acted, `lost` counts by reason what can't be learnt from.
    """

    task_id: str
    position: int
    version: int
    rollouts: tuple[Rollout, ...]
    members: tuple[Member, ...]
    lost: Mapping[str, int] = attrs.field(factory=dict)

    @cached_property
    def rewards(self) -> NDArray[np.float64]:
        """Of the members."""
        return np.array([member.reward for member in self.members], dtype=np.float64)

    def flat(self, estimator: str) -> bool:
        """True where nothing can be learnt from it."""
        return not any(member.trained for member in self.members) or is_flat(estimator, self.rewards)


def judge(
    task_id: str,
    rollouts: Sequence[Rollout],
    params: RLParams,
    *,
    position: int,
    version: int,
    max_length: int | None = None,
) -> TaskGroup:
    """Take from a group what can be learnt from, and count the rest.

    Args:
        task_id: of the group's task.
        rollouts: all of them, by sample index.
        params: of the algorithm.
        position: where the task was in the order of the data.
        version: optimiser steps behind the policy that acted.
        max_length: longest sequence that can be trained.
    """
    members: list[Member] = []
    lost: Counter[str] = Counter()
    for rollout in rollouts:
        found = _member(rollout, params, max_length)
        if isinstance(found, Member):
            members.append(found)
        else:
            lost[found] += 1
    return TaskGroup(
        task_id=task_id,
        position=position,
        version=version,
        rollouts=tuple(rollouts),
        members=tuple(members),
        lost=dict(lost),
    )


def bad_reward(rollouts: Iterable[Rollout]) -> str | None:
    """The error of the first rollout whose reward can't be trained on; None if there isn't one."""
    for rollout in rollouts:
        score = rollout.score
        if rollout.error is None and not isinstance(score, NoScore) and not is_reward(score.value):
            return (
                f"a rollout of task {rollout.task_id!r} has the reward {score.value:g}: such can't be trained on, and are left "
                f"out as bad_reward; rewards lie within ±{LARGEST:g}"
            )
    return None


def _member(rollout: Rollout, params: RLParams, max_length: int | None) -> Member | str:
    """A rollout as a member of its group, or the reason why it can't be one."""
    if rollout.error is not None:
        return "error"
    if isinstance(rollout.score, NoScore):
        return "no_score"
    if not is_reward(rollout.score.value):
        return "bad_reward"
    rows = learnable(rollout, max_length)
    if isinstance(rows, str):
        return rows
    length = sum(row.sampled for row in rows)
    return Member(
        rollout=rollout,
        trajectories=tuple(rows),
        reward=shaped(rollout.score.value, length, params.longest_of(len(rollout.turns)), params),
        length=length,
        trained=not (params.overlong == "mask" and rollout.truncated),
    )
