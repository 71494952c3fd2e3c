"""The `direct` rollout engine: agents run in this process, on this event loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator, Sequence
from itertools import batched
from typing import ClassVar, NamedTuple

from evsys.types import HarborTask, Policy, Rollout, RolloutLimits
from evsys_runtime.evaluation.recording import run_rollout

__all__ = ["DirectEngine"]


class _Job(NamedTuple):
    task: HarborTask
    task_index: int
    sample_index: int


class DirectEngine:
    """Runs each task's samples side by side, a bounded number at once, with a deadline for each.

    For tasks that need no environment of their own. An agent that crashes is data, and stops no other.
    """

    name: ClassVar[str] = "direct"

    def run(
        self, tasks: Sequence[HarborTask], policy: Policy, limits: RolloutLimits
    ) -> AsyncGenerator[Rollout]:
        """Yield every rollout once: as they finish, or with `limits.wave` wave after wave in the order of the tasks.

        Work begins with the first rollout that is asked for, and ends when the generator is closed. At most
        `2 * n_concurrent` rollouts run or wait to be taken, so a slow reader slows the engine down.
        """
        jobs = (_Job(task, i, sample) for i, task in enumerate(tasks) for sample in range(policy.num_samples))
        width = min(limits.n_concurrent, max(1, len(tasks) * policy.num_samples))
        if limits.wave:
            return _waves(jobs, width, policy, limits)
        return _pool(jobs, width, policy, limits)


async def _act(job: _Job, policy: Policy, limits: RolloutLimits) -> Rollout:
    return await run_rollout(
        job.task,
        job.task_index,
        job.sample_index,
        policy,
        timeout_seconds=limits.timeout_seconds,
        max_turns=limits.max_turns,
    )


async def _waves(
    jobs: Iterator[_Job], width: int, policy: Policy, limits: RolloutLimits
) -> AsyncGenerator[Rollout]:
    """Fixed groups of `width`: a sampler sees the same prompts together each time."""
    for wave in batched(jobs, width):
        async with asyncio.TaskGroup() as group:
            running = [group.create_task(_act(job, policy, limits)) for job in wave]
        for task in running:
            yield task.result()


async def _pool(
    jobs: Iterator[_Job], width: int, policy: Policy, limits: RolloutLimits
) -> AsyncGenerator[Rollout]:
    """`width` workers that take the next job as they become free."""
    finished: asyncio.Queue[Rollout | None] = asyncio.Queue()
    slots = asyncio.Semaphore(2 * width)

    async def work() -> None:
        for job in jobs:
            await slots.acquire()
            finished.put_nowait(await _act(job, policy, limits))

    async def work_all() -> None:
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(width):
                    group.create_task(work())
        finally:
            finished.put_nowait(None)

    workers = asyncio.create_task(work_all())
    try:
        while (rollout := await finished.get()) is not None:
            slots.release()
            yield rollout
        await workers
    finally:
        workers.cancel()
        await asyncio.gather(workers, return_exceptions=True)
