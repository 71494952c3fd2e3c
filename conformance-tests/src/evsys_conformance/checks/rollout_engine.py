"""What a rollout engine keeps: every rollout once, each of its own task, crashed ones included."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import pytest

from evsys.types import (
    AgentContext,
    HarborTask,
    NoScore,
    Policy,
    Rollout,
    RolloutLimits,
    SamplingParams,
    Score,
    VerifierSpec,
)
from evsys_conformance.checks.plugin import PluginConformance
from evsys_conformance.declare import check
from evsys_conformance.fakes import FakeModel
from evsys_conformance.running import run

__all__ = ["RolloutEngineConformance"]

_TASKS = [
    HarborTask(
        task_id=f"t-{i}", instruction=f"Say {i}.", verifier=VerifierSpec(name="exact_match", expected="yes")
    )
    for i in range(5)
]
_SAMPLES = 3


class _Agent:
    """Answers with the task's own instruction, and keeps count of how many act at once."""

    def __init__(self, failing: str | None = None, *, slow: bool = False) -> None:
        self._failing = failing
        self._slow = slow
        self.acting = self.most = 0
        self.began = asyncio.Event()

    async def run(self, task: HarborTask, model: Any, tools: Sequence[Any], ctx: AgentContext) -> str:
        self.acting += 1
        self.most = max(self.most, self.acting)
        self.began.set()
        try:
            for _ in range(3):
                await asyncio.sleep(0)
            if self._slow:
                await asyncio.Event().wait()
            if task.task_id == self._failing:
                raise RuntimeError("the agent stumbled")
            return f"{task.instruction} {ctx.sample_index}"
        finally:
            self.acting -= 1


async def _verify(_task: HarborTask, _rollout: Rollout) -> Score | NoScore:
    return Score(value=1.0)


class RolloutEngineConformance(PluginConformance):
    """Checks of the kind `rollout_engine`, with an agent that needs no model."""

    kind: ClassVar[str | None] = "rollout_engine"

    @pytest.fixture
    def tasks(self) -> list[HarborTask]:
        """Tasks that the engine can run."""
        return list(_TASKS)

    @check()
    def test_every_rollout_comes_once(self, plugin: Any, tasks: list[HarborTask]) -> None:
        """Each sample of each task is yielded exactly once."""
        found = sorted((r.task_id, r.sample_index) for r in run(_all(plugin, tasks, _Agent())))
        assert found == sorted((task.task_id, i) for task in tasks for i in range(_SAMPLES))

    @check()
    def test_each_rollout_is_of_its_task(self, plugin: Any, tasks: list[HarborTask]) -> None:
        """A rollout holds what the agent said to that task and sample, with its score."""
        wanted = {task.task_id: task.instruction for task in tasks}
        for rollout in run(_all(plugin, tasks, _Agent())):
            assert rollout.output == f"{wanted[rollout.task_id]} {rollout.sample_index}"
            assert rollout.score == Score(value=1.0)

    @check()
    def test_a_crash_is_data_and_stops_no_other(self, plugin: Any, tasks: list[HarborTask]) -> None:
        """The rollouts of an agent that fails say so and have no score; the others are as they were."""
        rollouts = run(_all(plugin, tasks, _Agent(failing=tasks[1].task_id)))
        crashed = [r for r in rollouts if r.task_id == tasks[1].task_id]
        assert len(rollouts) == len(tasks) * _SAMPLES
        assert all("stumbled" in (r.error or "") for r in crashed), "the error doesn't say what happened"
        assert all(isinstance(r.score, NoScore) for r in crashed), "a crash is no score, never a reward"
        assert [r.task_id for r in rollouts if r.error and r not in crashed] == []

    @check()
    def test_runs_no_more_at_once_than_allowed(self, plugin: Any, tasks: list[HarborTask]) -> None:
        """`n_concurrent` is kept."""
        agent = _Agent()
        run(_all(plugin, tasks, agent, RolloutLimits(n_concurrent=2)))
        assert agent.most <= 2

    @check()
    def test_a_rollout_that_takes_too_long_is_ended(self, plugin: Any, tasks: list[HarborTask]) -> None:
        """`timeout_seconds` is kept, and the rollout says that its time was over."""

        async def within() -> list[Rollout]:
            async with asyncio.timeout(3):
                return await _all(plugin, tasks[:1], _Agent(slow=True), RolloutLimits(timeout_seconds=0.02))

        assert [r.timed_out for r in run(within())] == [True] * _SAMPLES

    @check()
    def test_closing_it_ends_what_runs(self, plugin: Any, tasks: list[HarborTask]) -> None:
        """When nobody wants more rollouts, no agent goes on."""

        async def close() -> int:
            agent = _Agent(slow=True)
            limits = RolloutLimits(n_concurrent=2)
            rollouts = plugin.run(tasks, _policy(agent), limits)
            asking = asyncio.create_task(anext(rollouts))
            async with asyncio.timeout(5):
                await agent.began.wait()
            asking.cancel()
            await asyncio.wait([asking], timeout=1.0)
            await rollouts.aclose()
            await asyncio.sleep(0)
            return agent.acting

        assert run(close()) == 0


def _policy(agent: _Agent) -> Policy:
    make: Callable[..., Policy] = Policy
    return make(
        model=FakeModel(), agent=agent, verify=_verify, sampling=SamplingParams(seed=1), num_samples=_SAMPLES
    )


async def _all(
    engine: Any, tasks: Sequence[HarborTask], agent: _Agent, limits: RolloutLimits | None = None
) -> list[Rollout]:
    return [rollout async for rollout in engine.run(tasks, _policy(agent), limits or RolloutLimits())]
