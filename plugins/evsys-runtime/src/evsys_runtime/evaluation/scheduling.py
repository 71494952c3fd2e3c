"""Which rollouts run when: as many at once as is allowed, or in fixed waves. Shared by all engines that run single rollouts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Sequence
from itertools import batched
from typing import NamedTuple

from evsys.types import HarborTask, Rollout

__all__ = ["Job", "jobs_of", "scheduled"]


class Job(NamedTuple):
    """One sample of one task; `task_index` counts in the list that the engine was given."""

    task: HarborTask
    task_index: int
    sample_index: int


def jobs_of(tasks: Sequence[HarborTask], num_samples: int) -> Iterator[Job]:
    """Every sample of every task, in the order of the tasks."""
    return (Job(task, i, sample) for i, task in enumerate(tasks) for sample in range(num_samples))


def scheduled(
    jobs: Iterator[Job], width: int, run: Callable[[Job], Awaitable[Rollout]], *, wave: bool
) -> AsyncGenerator[Rollout]:
    """Yield the rollout of every job once.

    Work begins with the first rollout asked for, and ends when the generator is closed. Without waves at most
    `2 * width` rollouts run or wait to be taken, so a slow reader slows the work down.

    Args:
        jobs: what is to be run.
        width: how many at once.
        run: runs one job; it is cancelled when the generator is closed.
        wave: cut the jobs into groups of `width`, one after another, and yield in their order.
    """
    return _waves(jobs, width, run) if wave else _pool(jobs, width, run)


async def _waves(
    jobs: Iterator[Job], width: int, run: Callable[[Job], Awaitable[Rollout]]
) -> AsyncGenerator[Rollout]:
    """Fixed groups of `width`: a sampler sees the same prompts together each time."""

    async def one(job: Job) -> Rollout:
        return await run(job)

    for wave in batched(jobs, width):
        async with asyncio.TaskGroup() as group:
            running = [group.create_task(one(job)) for job in wave]
        for task in running:
            yield task.result()


async def _pool(
    jobs: Iterator[Job], width: int, run: Callable[[Job], Awaitable[Rollout]]
) -> AsyncGenerator[Rollout]:
    """`width` workers that take the next job as they become free."""
    finished: asyncio.Queue[Rollout | None] = asyncio.Queue()
    slots = asyncio.Semaphore(2 * width)

    async def work() -> None:
        for job in jobs:
            await slots.acquire()
            finished.put_nowait(await run(job))

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
