"""Rollouts by the task that they are of, which of them can be learnt from, and what they took: for algorithms that learn from rollouts."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import attrs

from evsys.errors import AlgorithmError, PluginContractError
from evsys.types import Usage
from evsys.types.rollouts import MOST_TURNS
from evsys_runtime.evaluation.streams import closing
from evsys_runtime.training.trajectories import RejectedRolloutError, Trajectory, trajectories

if TYPE_CHECKING:
    from evsys.protocols import SamplingClient
    from evsys.types import HarborTask, NoScore, Rollout, RolloutLimits, RunContext, SamplingParams, Score

__all__ = [
    "Group",
    "learnable",
    "nothing_learnable",
    "out_of_turns",
    "run_groups",
    "shares",
    "usage_of_rollouts",
    "usage_of_verdicts",
]


@attrs.frozen(kw_only=True, eq=False)
class Group:
    """All rollouts of one task, by sample index. `place` is the task's place among those asked for."""

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
        PluginContractError: the run makes no rollouts, or the engine gave one that no one had asked for, or too few.
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


def learnable(rollout: Rollout, max_length: int | None) -> list[Trajectory] | str:
    """The trainable sequences of a rollout, or in a word why there are none: `error`, `too_long`, or as
    `trajectories` says.

    Args:
        rollout: judged or not.
        max_length: longest sequence that can be trained.
    """
    if rollout.error is not None:
        return "error"
    try:
        rows = trajectories(rollout)
    except RejectedRolloutError as rejected:
        return rejected.reason
    if max_length is not None and any(len(row) > max_length for row in rows):
        return "too_long"
    return rows


def nothing_learnable(
    rollouts: Sequence[Rollout], lost: Mapping[str, int], step_idx: int, example: str | None = None
) -> AlgorithmError:
    """The error that says what became of all rollouts of a batch.

    Args:
        rollouts: of the batch.
        lost: how many of them can't be learnt from, by reason.
        step_idx: of the batch, counted from 0.
        example: a reason in none of the rollouts.

    Returns:
        The error; it has the fact `not_finite` if the model's own numbers aren't finite.
    """
    told = ", ".join(f"{number} {reason}" for reason, number in sorted(lost.items()))
    reasons = (rollout.error or getattr(rollout.score, "reason", None) for rollout in rollouts)
    found = next((text for text in reasons if text is not None), None) or example
    hint = "the agent never called the model" if lost.get("no_turns") == len(rollouts) else found
    message = f"none of the {len(rollouts)} rollouts of step {step_idx + 1} can be learnt from: {told}"
    if lost.get("bad_logprob") == len(rollouts) or any("not_finite" in one.metadata for one in rollouts):
        message = f"sampling for step {step_idx + 1} met numbers that aren't finite ({told})"
        return AlgorithmError(message, hint=hint, not_finite="sampling")
    return AlgorithmError(message, hint=hint)


def out_of_turns(rollouts: Sequence[Rollout], max_turns: int | None) -> str | None:
    """The warning if agents ran out of turns; None if none did."""
    if not any("refused_calls" in rollout.metadata for rollout in rollouts):
        return None
    return f"agents asked for more than {max_turns or MOST_TURNS} answers (max_turns), and were cut short"


def shares(rollouts: Sequence[Rollout], lost: Mapping[str, int]) -> dict[str, float]:
    """How many rollouts a batch has, and what share of them was cut off, was cut short, or can't be learnt from.

    Args:
        rollouts: of the batch.
        lost: how many of them can't be learnt from, by reason.
    """
    count = max(len(rollouts), 1)
    return {
        "rollouts": float(len(rollouts)),
        "truncated_share": sum(rollout.truncated for rollout in rollouts) / count,
        "out_of_turns_share": sum("refused_calls" in rollout.metadata for rollout in rollouts) / count,
        "retried_share": sum("failed_before" in rollout.metadata for rollout in rollouts) / count,
        "rejected_share": sum(lost.values()) / count,
        **{f"rejected/{reason}": float(number) for reason, number in sorted(lost.items())},
    }


def usage_of_rollouts(rollouts: Sequence[Rollout]) -> Usage:
    """The usage of rollouts, tokens and money of the model and of judging, summed at once: adding up hundreds of
    `Usage` one by one would slow down each step.

    Rollouts are concurrent, and alongside the training, so their seconds don't add up to any.
    """
    return _summed([rollout.usage for rollout in rollouts]) + usage_of_verdicts(
        rollout.score for rollout in rollouts
    )


def usage_of_verdicts(scores: Iterable[Score | NoScore]) -> Usage:
    """The usage of verdicts."""
    return _summed([score.usage for score in scores if score.usage is not None])


def _summed(used: Sequence[Usage]) -> Usage:
    costs = [one.cost_usd for one in used if one.cost_usd is not None]
    return Usage(
        prompt_tokens=sum(one.prompt_tokens for one in used),
        completion_tokens=sum(one.completion_tokens for one in used),
        trained_tokens=sum(one.trained_tokens for one in used),
        cost_usd=sum(costs) if costs else None,
        unpriced=sum(one.without_price for one in used),
    )
