"""Rollouts by the task that they are of, as algorithms that compare rollouts of one task want them."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from typing import TYPE_CHECKING

import attrs

from evsys.errors import PluginContractError
from evsys_runtime.evaluation.streams import closing

if TYPE_CHECKING:
    from evsys.protocols import SamplingClient
    from evsys.types import HarborTask, Rollout, RolloutLimits, RunContext, SamplingParams

__all__ = ["Group", "run_groups"]


@attrs.frozen(kw_only=True, eq=False)
class Group:
    """All rollouts of one task, by sample index. `place` is the task's place among those that were asked for."""

    task: HarborTask
    rollouts: tuple[Rollout, ...]
    place: int = 0


async def run_groups(
    ctx: RunContext,
    tasks: Sequence[HarborTask],
    group_size: int,
    *,
    snapshot: SamplingClient,
    sampling: SamplingParams,
    limits: RolloutLimits,
    step: int,
) -> AsyncGenerator[Group]:
    """Run the tasks through `ctx.rollouts`, and yield each group when the last of its rollouts has ended.

    A rollout that failed is a member of its group like any other. See `TrainingRollouts.collect` for the arguments.

    Raises:
        PluginContractError: the run makes no rollouts, or the engine gave one that nobody had asked for, or too few.
    """
    if ctx.rollouts is None:
        raise PluginContractError("this run makes no rollouts: ctx.rollouts is None")
    open_groups: dict[str, list[tuple[int, dict[int, Rollout]]]] = {}
    for place, task in enumerate(tasks):  # a task may be there twice
        open_groups.setdefault(task.task_id, []).append((place, {}))
    rollouts = ctx.rollouts.collect(tasks, snapshot, group_size, sampling=sampling, limits=limits, step=step)
    left = len(tasks)
    async with closing(rollouts) as stream:
        async for rollout in stream:
            waiting = open_groups.get(rollout.task_id, [])
            found = next((group for group in waiting if rollout.sample_index not in group[1]), None)
            if found is None or not 0 <= rollout.sample_index < group_size:
                raise PluginContractError(
                    f"the engine gave sample {rollout.sample_index} of task {rollout.task_id!r} once too often"
                )
            place, members = found
            members[rollout.sample_index] = rollout
            if len(members) == group_size:
                waiting.remove(found)
                left -= 1
                ordered = tuple(members[index] for index in range(group_size))
                yield Group(task=tasks[place], rollouts=ordered, place=place)
    if left:
        raise PluginContractError(f"the engine ended, and {left} of {len(tasks)} tasks lack rollouts")
