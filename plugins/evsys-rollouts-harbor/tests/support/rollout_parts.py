"""Models, agents and policies for tests of rollouts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import attrs

from evsys.types import (
    Completion,
    HarborTask,
    Message,
    Policy,
    Rollout,
    RolloutLimits,
    SamplingParams,
    Score,
    Usage,
)


class Echo:
    """Answers with the last message, and counts how many calls are open."""

    def __init__(self, wait: int = 1) -> None:
        self.wait = wait
        self.open = self.most = self.calls = 0
        self.together: list[int] = []
        self.seeds: list[int | None] = []

    async def generate(self, messages, sampling, *, n=1, tools=()):
        self.calls += 1
        self.open += 1
        self.most = max(self.most, self.open)
        self.seeds.append(sampling.seed)
        for _ in range(self.wait):
            await asyncio.sleep(0)
        self.together.append(self.open)
        self.open -= 1
        message = Message(role="assistant", content=messages[-1].content)
        tokens = tuple(message.content.encode())
        return [
            Completion(
                message=message,
                finish_reason="stop",
                prompt_tokens=(1, 2, 3),
                tokens=tokens,
                logprobs=(-0.5,) * len(tokens),
                usage=Usage(prompt_tokens=3, completion_tokens=len(tokens)),
            )
        ] * n


class Asking:
    """Asks the model once, with the task's instruction."""

    async def run(self, task, model, tools, ctx):
        message = Message(role="user", content=task.instruction)
        return (await model.generate([message], ctx.sampling))[0].message.content


async def right(task: HarborTask, rollout: Rollout) -> Score:
    return Score(value=float(rollout.output == task.instruction))


def chat_tasks(count: int) -> list[HarborTask]:
    return [HarborTask(task_id=f"t{i}", instruction=f"say {i}") for i in range(count)]


def policy(
    model: Any = None, agent: Any = None, verify: Any = right, num_samples: int = 1, **fields: Any
) -> Policy:
    return Policy(
        model=model or Echo(),
        agent=agent or Asking(),
        verify=verify,
        num_samples=num_samples,
        sampling=SamplingParams(seed=3),
        **fields,
    )


def run(
    engine: Any, tasks: Sequence[HarborTask], a_policy: Policy, limits: RolloutLimits | None = None
) -> list[Rollout]:
    async def collect() -> list[Rollout]:
        return [rollout async for rollout in engine.run(tasks, a_policy, limits or RolloutLimits())]

    return asyncio.run(collect())


def timeless(rollouts: Sequence[Rollout]) -> list[Rollout]:
    """Rollouts in the order of their tasks, without what differs from run to run."""
    plain = [attrs.evolve(rollout, usage=attrs.evolve(rollout.usage, seconds=0.0)) for rollout in rollouts]
    return sorted(plain, key=lambda rollout: (rollout.task_id, rollout.sample_index))


async def until(happened: Callable[[], bool]) -> None:
    """Wait for what no event tells of: what other processes and threads do."""
    async with asyncio.timeout(20):
        while not happened():  # noqa: ASYNC110
            await asyncio.sleep(0.01)
