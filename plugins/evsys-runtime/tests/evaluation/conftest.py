"""A registry with a few plugins of the test's own, an engine without concurrency, a model that follows a script, and one that
listens to all that is told.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any, ClassVar

import attrs
import numpy as np
import pytest

from evsys import Registry
from evsys.types import (
    HarborTask,
    Policy,
    Rollout,
    RolloutLimits,
    SampledSequence,
    SampleResult,
    SamplingParams,
    VerifierSpec,
)
from evsys_runtime.evaluation.recording import run_rollout
from evsys_runtime.rendering.chat import ChatTemplateRenderer


class Script:
    """A sampling client whose answer to a prompt's last message is `answer(text)`; keeps what it was asked."""

    def __init__(self, answer: Callable[[str], str] = lambda _text: "yes", version: int = 0) -> None:
        self.answer = answer
        self.version = version
        self.asked: list[tuple[str, SamplingParams]] = []
        self.closed = 0
        self.tokenizer = ChatTemplateRenderer().tokenizer

    async def sample(self, prompt: Sequence[int], params: SamplingParams, n: int = 1) -> SampleResult:
        text = self.tokenizer.decode(prompt)
        self.asked.append((text, params))
        last = text.removesuffix("<|im_start|>assistant\n").rpartition("<|im_start|>user\n")[2]
        await asyncio.sleep(0)
        tokens = self.tokenizer.encode(self.answer(last.removesuffix("<|im_end|>\n")) + "<|im_end|>")
        sequence = SampledSequence(tokens=tokens, logprobs=[-1.0] * len(tokens), finish_reason="stop")
        return SampleResult(sequences=[sequence] * n)

    async def compute_logprobs(self, tokens: Sequence[int]) -> np.ndarray:
        raise NotImplementedError

    async def close(self) -> None:
        self.closed += 1


class OneByOne:
    """A rollout engine: everything in order, nothing side by side."""

    name = "one_by_one"

    async def run(
        self, tasks: Sequence[HarborTask], policy: Policy, limits: RolloutLimits
    ) -> AsyncIterator[Rollout]:
        for index, task in enumerate(tasks):
            for sample in range(policy.num_samples):
                yield await run_rollout(
                    task,
                    index,
                    sample,
                    policy,
                    timeout_seconds=limits.timeout_seconds,
                    max_turns=limits.max_turns,
                )


class Ask:
    """An agent: one question, one answer."""

    async def run(self, task: HarborTask, model: Any, tools: Sequence[Any], ctx: Any) -> str:
        from evsys.types import Message

        [completion] = await model.generate([Message(role="user", content=task.instruction)], ctx.sampling)
        return completion.message.content


def equals(model_output: str, expected: Any, params: Mapping[str, Any]) -> float:
    return float(model_output == expected)


class Mean:
    """A metric that is a mean over tasks."""

    name: ClassVar[str] = "mean"
    direction: ClassVar[str] = "max"

    def task_value(self, rewards: Sequence[float]) -> float:
        return sum(rewards) / len(rewards)

    def compute(self, task_rewards: Sequence[Sequence[float]]) -> float:
        return sum(map(self.task_value, task_rewards)) / len(task_rewards)


class PassAtK:
    """A family of metrics with a Config, a threshold, and a need for samples."""

    name: ClassVar[str] = "pass@k"
    direction: ClassVar[str] = "max"

    @attrs.frozen(kw_only=True)
    class Config:
        k: int
        pass_threshold: float = 1.0

    def __init__(self, *, k: int, pass_threshold: float = 1.0) -> None:
        self.needs_samples = k
        self.pass_threshold = pass_threshold

    def task_value(self, rewards: Sequence[float]) -> float:
        return float(any(reward >= self.pass_threshold for reward in rewards[: self.needs_samples]))

    def compute(self, task_rewards: Sequence[Sequence[float]]) -> float:
        return sum(map(self.task_value, task_rewards)) / len(task_rewards)


class Notes:
    """A recorder, a log and hooks in one, each a list."""

    def __init__(self) -> None:
        self.lines: list[tuple] = []
        self.rollouts: list[tuple] = []
        self.events: list[tuple] = []
        self.emitted: list[tuple] = []

    def metrics(self, step, values, *, phase="training"):
        self.lines.append((step, dict(values), phase))

    def rollout(self, step, rollout, *, phase="training", **facts):
        self.rollouts.append((step, rollout.task_id, rollout.sample_index, phase, facts))

    def info(self, event, **facts):
        self.events.append((event, facts))

    warning = info

    async def emit(self, hook, /, **arguments):
        self.emitted.append((hook, arguments))
        return []


@pytest.fixture
def registry() -> Registry:
    registry = Registry(entry_points=())
    registry.register("verifier", "equals", equals)
    registry.register("metric", "mean_reward", Mean)
    registry.register("metric", "pass@k", PassAtK)
    registry.register("rollout_engine", "direct", OneByOne)
    registry.register("agent", "chat", Ask)
    return registry


@pytest.fixture
def script() -> type[Script]:
    return Script


@pytest.fixture
def task() -> Callable[..., HarborTask]:
    """Makes a task that expects "yes"."""

    def make(
        task_id: str = "t", instruction: str = "well?", verifier: str = "equals", **fields: Any
    ) -> HarborTask:
        expected, params = fields.pop("expected", "yes"), fields.pop("params", {})
        spec = VerifierSpec(name=verifier, expected=expected, params=params)
        return HarborTask(task_id=task_id, instruction=instruction, verifier=spec, **fields)

    return make


@pytest.fixture
def notes() -> Notes:
    return Notes()
