"""Answers in conversations: an agent works on tasks, and what the student said in every turn is what it is judged by."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING

from evsys.types import SamplingParams, Score
from evsys_algo_distill.answers import Answer, Answers
from evsys_runtime import run_groups
from evsys_runtime.training.retreat import OTHER_SAMPLES
from evsys_runtime.training.rollout_groups import (
    Group,
    learnable,
    nothing_learnable,
    out_of_turns,
    shares,
    usage_of_rollouts,
)

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

    from evsys.protocols import SamplingClient
    from evsys.types import HarborTask, Rollout, RunContext
    from evsys_algo_distill.params import OPDParams

__all__ = ["answers_in_turns"]


async def answers_in_turns(
    ctx: RunContext,
    tasks: Sequence[HarborTask],
    params: OPDParams,
    *,
    student: SamplingClient,
    step_idx: int,
    max_length: int | None,
    warn: Callable[[str], None],
) -> Answers:
    """Let an agent work on each task `group_size` times with the student as its model, at temperature 1.

    Each sequence of a rollout is an answer: as many as the turns make where a template rewrites what was said before.

    Args:
        ctx: the run.
        tasks: of this step.
        params: of the algorithm.
        student: who answers.
        step_idx: the step, counted from 0.
        max_length: longest sequence that student and teacher can read.
        warn: is notified of what is odd.

    Raises:
        AlgorithmError: nothing can be learnt from any rollout.
    """
    groups = run_groups(
        ctx,
        tasks,
        params.group_size,
        snapshot=student,
        # Without a seed of its own in a first attempt, as it always was.
        sampling=SamplingParams(
            max_tokens=params.max_tokens, seed=ctx.retreats * OTHER_SAMPLES if ctx.retreats else None
        ),
        limits=params.limits(wave=ctx.deterministic),
        step=step_idx,
    )
    rollouts = await _in_order_of_tasks(groups, ctx)
    if (cut := out_of_turns(rollouts, params.max_turns)) is not None:
        warn(cut)
    await ctx.hooks.emit(
        "evsys_rollouts_finished", ctx=ctx, step=step_idx + 1, phase="training", rollouts=rollouts
    )
    lost: Counter[str] = Counter()
    kept: list[Rollout] = []
    answers: list[Answer] = []
    for rollout in rollouts:
        rows = learnable(rollout, max_length)
        if isinstance(rows, str):
            lost[rows] += 1
        else:
            kept.append(rollout)
            answers += [Answer(trajectory=row) for row in rows]
    if not answers:
        raise nothing_learnable(rollouts, lost, step_idx)
    return Answers(
        answers=answers,
        row_ids=tuple(task.task_id for task in tasks),
        used=usage_of_rollouts(rollouts),
        charged=True,
        metrics={**shares(rollouts, lost), **_means(kept, answers)},
    )


async def _in_order_of_tasks(groups: AsyncGenerator[Group], ctx: RunContext) -> tuple[Rollout, ...]:
    by_place: dict[int, tuple[Rollout, ...]] = {}
    async with aclosing(groups) as stream:
        async for group in stream:
            by_place[group.place] = group.rollouts
            ctx.heartbeat()
    return tuple(rollout for place in sorted(by_place) for rollout in by_place[place])


def _means(kept: Sequence[Rollout], answers: Sequence[Answer]) -> dict[str, float]:
    """Of the rollouts learnt from, called as `rl` calls them; no reward where none of them is judged."""
    rewards = [rollout.score.value for rollout in kept if isinstance(rollout.score, Score)]
    found = {
        "sequences": float(len(answers)),
        "length_mean": sum(answer.trajectory.sampled for answer in answers) / len(kept),
        "turns_mean": sum(len(answer.trajectory.spans) for answer in answers) / len(kept),
    }
    return found | ({"reward": sum(rewards) / len(rewards)} if rewards else {})
