"""Rollout engines that keep their contract, made with core alone."""

import asyncio
import zlib

from evsys.types import AgentContext, NoScore, Rollout


async def act(task, sample, policy, limits):
    seed = zlib.crc32(f"{policy.sampling.seed}/{task.task_id}/{sample}".encode())
    ctx = AgentContext(
        sampling=policy.sampling,
        seed=seed,
        sample_index=sample,
        max_turns=limits.max_turns,
        system_prompt=policy.system_prompt,
    )
    facts = {"task_id": task.task_id, "sample_index": sample}
    try:
        async with asyncio.timeout(limits.timeout_seconds):
            said = await policy.agent.run(task, policy.model, (), ctx)
    except TimeoutError:
        return Rollout(**facts, timed_out=True, score=NoScore(reason="its time was over"))
    except Exception as exc:
        return Rollout(**facts, error=f"{type(exc).__name__}: {exc}", score=NoScore(reason="crashed"))
    return Rollout(**facts, output=said, score=await policy.verify(task, Rollout(**facts, output=said)))


class OneByOne:
    async def run(self, tasks, policy, limits):
        for task in tasks:
            for sample in range(policy.num_samples):
                yield await act(task, sample, policy, limits)


class Iterator:
    """No generator: an object that is asked for the next rollout."""

    def run(self, tasks, policy, limits):
        return _Rollouts([(task, i, policy, limits) for task in tasks for i in range(policy.num_samples)])


class _Rollouts:
    def __init__(self, jobs):
        self.jobs = jobs[::-1]

    def __aiter__(self):
        return self

    async def __anext__(self):
        if not self.jobs:
            raise StopAsyncIteration
        return await act(*self.jobs.pop())
