"""The contract of a rollout engine: every rollout once, each of its own task, crashed ones included."""

from __future__ import annotations

import asyncio
from collections import Counter
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
from evsys_conformance.findings import breach, require, require_equal
from evsys_conformance.running import run

__all__ = ["RolloutEngineConformance"]

_TASKS = [
    HarborTask(
        task_id=f"t-{i}", instruction=f"Say {i}.", verifier=VerifierSpec(name="exact_match", expected="yes")
    )
    for i in range(5)
]
_SAMPLES = 3
_SAMPLING = SamplingParams(seed=1, temperature=0.25, max_tokens=17)


class _Agent:
    """Answers with the task's own instruction, and records how many act at once and with which contexts."""

    def __init__(self, failing: str | None = None, *, slow: bool = False) -> None:
        self._failing = failing
        self._slow = slow
        self.acting = self.most = 0
        self.began = asyncio.Event()
        self.told: dict[tuple[str, int], AgentContext] = {}

    async def run(self, task: HarborTask, model: Any, tools: Sequence[Any], ctx: AgentContext) -> str:
        self.told[task.task_id, ctx.sample_index] = ctx
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
        """Tasks that the engine can run, two at least."""
        return list(_TASKS)

    @check()
    def test_every_rollout_comes_once(self, plugin: Any, tasks: list[HarborTask]) -> None:
        """Each sample of each task is yielded exactly once."""
        found = Counter((r.task_id, r.sample_index) for r in run(_all(plugin, tasks, _Agent())))
        wanted = Counter((task.task_id, i) for task in tasks for i in range(_SAMPLES))
        require(
            found == wanted,
            "rollouts are missing, or came more than once: (task_id, sample_index) and how often",
            seen={"missing": dict(wanted - found), "too many": dict(found - wanted)},
            wanted=f"{len(tasks)} tasks x {_SAMPLES} samples, each once",
        )

    @check()
    def test_each_rollout_is_of_its_task(self, plugin: Any, tasks: list[HarborTask]) -> None:
        """A rollout holds what the agent said to that task and sample, with its score."""
        instructions = {task.task_id: task.instruction for task in tasks}
        for rollout in run(_all(plugin, tasks, _Agent())):
            name = f"sample {rollout.sample_index} of task {rollout.task_id!r}"
            require_equal(
                rollout.output,
                f"{instructions[rollout.task_id]} {rollout.sample_index}",
                f"the output of {name} isn't what the agent answered there",
            )
            require_equal(
                rollout.score, Score(value=1.0), f"{name} doesn't have the score of `policy.verify`"
            )

    @check()
    def test_agents_are_told_what_the_policy_says(self, plugin: Any, tasks: list[HarborTask]) -> None:
        """An agent's context holds the policy's sampling and system prompt, the limit of turns, and a seed of its own for
        each sample, the same one in another run.
        """
        agent, again = _Agent(), _Agent()
        limits = RolloutLimits(max_turns=5)
        for one in (agent, again):
            run(_all(plugin, tasks, one, limits))
        for (task, sample), ctx in agent.told.items():
            require_equal(
                (ctx.sampling.temperature, ctx.sampling.max_tokens, ctx.system_prompt, ctx.max_turns),
                (_SAMPLING.temperature, _SAMPLING.max_tokens, "Be kind.", 5),
                f"the agent of task {task!r}, sample {sample}, gets another temperature, max_tokens, system_prompt or "
                "max_turns than policy and limits say",
            )
        seeds = {key: ctx.seed for key, ctx in agent.told.items()}
        require(
            len(set(seeds.values())) == len(seeds),
            "two samples have the same seed",
            seen=seeds,
            wanted="a seed of its own for each (task_id, sample_index)",
        )
        require_equal(
            {key: ctx.seed for key, ctx in again.told.items()}, seeds, "in another run the seeds are others"
        )

    @check()
    def test_a_crash_is_data_and_stops_no_other(self, plugin: Any, tasks: list[HarborTask]) -> None:
        """The rollouts of an agent that fails say so and have no score; the others are as they were."""
        failing = tasks[1].task_id
        rollouts = run(_all(plugin, tasks, _Agent(failing=failing)))
        require_equal(
            len(rollouts), len(tasks) * _SAMPLES, "an agent crashed, and the number of rollouts is another"
        )
        for rollout in rollouts:
            if rollout.task_id != failing:
                require(
                    rollout.error is None,
                    f"an agent crashed, and the rollout of another task, {rollout.task_id!r}, has an error",
                    seen=rollout.error,
                )
                continue
            require(
                "stumbled" in (rollout.error or ""),
                "the error of a crashed rollout doesn't say what happened",
                seen=rollout.error,
                wanted="a string with the message of the agent's exception",
            )
            require(
                isinstance(rollout.score, NoScore),
                "a crashed rollout has a score",
                seen=rollout.score,
                wanted="evsys.types.NoScore(reason=...): a crash is never a reward",
            )

    @check()
    def test_runs_no_more_at_once_than_allowed(self, plugin: Any, tasks: list[HarborTask]) -> None:
        """`n_concurrent` is kept."""
        agent = _Agent()
        run(_all(plugin, tasks, agent, RolloutLimits(n_concurrent=2)))
        require(
            agent.most <= 2,
            "more agents act at once than allowed",
            seen=agent.most,
            wanted="at most limits.n_concurrent = 2",
        )

    @check()
    def test_a_rollout_that_takes_too_long_is_ended(self, plugin: Any, tasks: list[HarborTask]) -> None:
        """`timeout_seconds` is kept, and the rollout says that its time was over."""

        async def within() -> list[Rollout]:
            await _all(plugin, tasks[:1], _Agent())  # whatever it needs to begin isn't the rollout's time
            async with asyncio.timeout(2):
                return await _all(plugin, tasks[:1], _Agent(slow=True), RolloutLimits(timeout_seconds=0.02))

        try:
            rollouts = run(within())
        except TimeoutError:
            breach(
                "agents that never end continue for two seconds",
                wanted="limits.timeout_seconds = 0.02 is kept",
            )
        for rollout in rollouts:
            require(
                rollout.timed_out,
                "its time was over, and the rollout doesn't say so",
                wanted="timed_out=True",
            )
        require_equal(
            len(rollouts), _SAMPLES, "the time of all was over, and the number of rollouts is another"
        )

    @check()
    def test_closing_it_ends_what_runs(self, plugin: Any, tasks: list[HarborTask]) -> None:
        """When no one wants more rollouts, no agent continues."""

        async def close() -> int:
            agent = _Agent(slow=True)
            limits = RolloutLimits(n_concurrent=2)
            rollouts = plugin.run(tasks, _policy(agent), limits)
            asking = asyncio.create_task(anext(rollouts))
            async with asyncio.timeout(5):
                await agent.began.wait()
            asking.cancel()
            await asyncio.wait([asking], timeout=1.0)
            if hasattr(
                rollouts, "aclose"
            ):  # an iterator that is no generator has been told by the cancellation
                await rollouts.aclose()
            await asyncio.sleep(0)
            return agent.acting

        require_equal(run(close()), 0, "its iterator was closed, and agents still act")


def _policy(agent: _Agent) -> Policy:
    make: Callable[..., Policy] = Policy
    return make(
        model=FakeModel(),
        agent=agent,
        verify=_verify,
        sampling=_SAMPLING,
        num_samples=_SAMPLES,
        system_prompt="Be kind.",
    )


async def _all(
    engine: Any, tasks: Sequence[HarborTask], agent: _Agent, limits: RolloutLimits | None = None
) -> list[Rollout]:
    return [rollout async for rollout in engine.run(tasks, _policy(agent), limits or RolloutLimits())]
