import asyncio
from collections import Counter

import pytest

from evsys import Registry
from evsys.types import (
    Completion,
    HarborTask,
    Message,
    NoScore,
    Policy,
    Rollout,
    RolloutLimits,
    SampledSequence,
    SampleResult,
    SamplingParams,
    Score,
    Usage,
    VerifierSpec,
)
from evsys_runtime.config.model import AgentConfig, BenchmarkConfig
from evsys_runtime.evaluation.benchmarks import bind_benchmark
from evsys_runtime.evaluation.evaluator import Evaluator
from evsys_runtime.rendering.chat import ChatTemplateRenderer
from evsys_std.agents import ChatAgent
from evsys_std.engine import DirectEngine


class Model:
    """Answers the text of the last message; counts how many calls are open."""

    def __init__(self, wait: int = 1) -> None:
        self.wait = wait
        self.open = self.most = 0
        self.seeds: list[int] = []
        self.together: list[int] = []

    async def generate(self, messages, sampling, *, n=1, tools=()):
        self.open += 1
        self.most = max(self.most, self.open)
        self.seeds.append(sampling.seed)
        for _ in range(self.wait):
            await asyncio.sleep(0)
        self.together.append(self.open)
        self.open -= 1
        usage = Usage(prompt_tokens=3, completion_tokens=2)
        return [
            Completion(
                message=Message(role="assistant", content=messages[-1].content),
                finish_reason="stop",
                usage=usage,
            )
        ] * n


async def right(task, rollout):
    return Score(value=float(rollout.output == task.instruction))


def tasks(count: int) -> list[HarborTask]:
    return [HarborTask(task_id=f"t{i}", instruction=f"say {i}") for i in range(count)]


def policy(model=None, agent=None, verify=right, num_samples=1, **fields) -> Policy:
    return Policy(
        model=model or Model(),
        agent=agent or ChatAgent(),
        verify=verify,
        num_samples=num_samples,
        sampling=SamplingParams(seed=3),
        **fields,
    )


def run(count: int, limits: RolloutLimits | None = None, engine=None, **fields) -> list[Rollout]:
    async def collect():
        stream = (engine or DirectEngine()).run(tasks(count), policy(**fields), limits or RolloutLimits())
        return [rollout async for rollout in stream]

    return asyncio.run(collect())


def keys(rollouts: list[Rollout]) -> list[tuple[str, int]]:
    return [(rollout.task_id, rollout.sample_index) for rollout in rollouts]


WAVE = RolloutLimits(n_concurrent=4, wave=True)


@pytest.mark.parametrize(
    "limits",
    [
        *(RolloutLimits(n_concurrent=n) for n in (1, 3, 100, 10**12)),
        *(WAVE, RolloutLimits(n_concurrent=10**12, wave=True)),
    ],
)
@pytest.mark.parametrize(("count", "samples"), [(0, 3), (1, 1), (7, 3)])
def test_every_sample_of_every_task_comes_once(limits, count, samples):
    rollouts = run(count, limits, num_samples=samples)
    assert Counter(keys(rollouts)) == Counter((f"t{i}", s) for i in range(count) for s in range(samples))
    assert all(rollout.score == Score(value=1.0) for rollout in rollouts)
    assert all(rollout.usage.completion_tokens == 2 for rollout in rollouts)


@pytest.mark.parametrize("wave", [False, True])
@pytest.mark.parametrize("n", [1, 4, 10])
def test_no_more_than_the_limit_run_at_once(wave, n):
    model = Model(wait=3)
    run(10, RolloutLimits(n_concurrent=n, wave=wave), model=model, num_samples=2)
    assert model.most == n


def test_waves_are_the_same_groups_each_time_in_the_order_of_the_tasks():
    model = Model()
    rollouts = run(5, WAVE, model=model, num_samples=2)
    assert keys(rollouts) == [(f"t{i}", s) for i in range(5) for s in range(2)]
    assert model.together == [4, 3, 2, 1] * 2 + [2, 1]


def test_without_waves_whoever_finishes_first_comes_first():
    class Uneven(Model):
        async def generate(self, messages, sampling, *, n=1, tools=()):
            self.wait = 20 if messages[-1].content == "say 0" else 1
            return await super().generate(messages, sampling, n=n, tools=tools)

    assert keys(run(3, RolloutLimits(n_concurrent=3), model=Uneven()))[-1] == ("t0", 0)


def test_seeds_depend_on_the_place_and_not_on_concurrency():
    seeds = []
    for limits in (RolloutLimits(n_concurrent=1), RolloutLimits(n_concurrent=8), WAVE):
        model = Model()
        run(6, limits, model=model, num_samples=2)
        seeds.append(sorted(model.seeds))
    assert seeds[0] == seeds[1] == seeds[2]
    assert len(set(seeds[0])) == 12


def test_rollouts_carry_the_version_of_their_policy():
    assert {rollout.policy_version for rollout in run(3, version=17)} == {17}


class Flaky:
    """Loses its connection at each first attempt."""

    def __init__(self) -> None:
        self.met: Counter = Counter()

    async def run(self, task, model, tools, ctx):
        self.met[task.task_id, ctx.sample_index] += 1
        said = (await model.generate([Message(role="user", content=task.instruction)], ctx.sampling))[0]
        if self.met[task.task_id, ctx.sample_index] == 1:
            raise ConnectionError("gone")
        return said.message.content


@pytest.mark.parametrize("limits", [RolloutLimits(n_concurrent=2), WAVE])
def test_what_may_pass_is_tried_again_where_that_is_asked_for(limits):
    engine = Registry().build("rollout_engine", "direct", {"max_retries": 1, "retry_wait_seconds": 0})
    rollouts = run(3, limits, engine=engine, agent=Flaky())
    assert [rollout.score for rollout in rollouts] == [Score(value=1.0)] * 3
    assert {rollout.usage.prompt_tokens for rollout in rollouts} == {6}
    without = run(3, limits, agent=Flaky())
    assert {rollout.score.reason for rollout in without} == {"ConnectionError: gone"}


@pytest.mark.parametrize("limits", [RolloutLimits(n_concurrent=2), WAVE])
def test_an_agent_that_crashes_stops_no_other(limits):
    class Crashing:
        async def run(self, task, model, tools, ctx):
            if task.task_id in ("t0", "t3"):
                raise RuntimeError("boom")
            return task.instruction

    rollouts = {rollout.task_id: rollout for rollout in run(6, limits, agent=Crashing())}
    assert len(rollouts) == 6
    assert {task for task, rollout in rollouts.items() if isinstance(rollout.score, NoScore)} == {"t0", "t3"}
    assert rollouts["t0"].error == "RuntimeError: boom"


@pytest.mark.parametrize(
    "limits",
    [
        RolloutLimits(n_concurrent=2, timeout_seconds=0.05),
        RolloutLimits(n_concurrent=4, timeout_seconds=0.05, wave=True),
    ],
)
def test_an_agent_that_hangs_is_ended_by_its_own_deadline(limits):
    class Hanging:
        async def run(self, task, model, tools, ctx):
            if task.task_id == "t1":
                await asyncio.Event().wait()
            return task.instruction

    rollouts = {rollout.task_id: rollout for rollout in run(6, limits, agent=Hanging())}
    assert [task for task, rollout in rollouts.items() if rollout.timed_out] == ["t1"]
    assert sum(isinstance(rollout.score, Score) for rollout in rollouts.values()) == 5


def test_the_longest_time_of_an_agent_can_be_set_for_an_entry():
    class Hanging:
        async def run(self, task, model, tools, ctx):
            await asyncio.Event().wait()

    engine = Registry().build("rollout_engine", "direct", {"timeout_seconds": 0.01})
    [rollout] = run(1, RolloutLimits(timeout_seconds=3600.0), engine=engine, agent=Hanging())
    assert rollout.timed_out
    assert isinstance(rollout.score, NoScore)


def test_the_longest_time_of_a_rollout_includes_its_retries():
    assert DirectEngine().rollout_seconds(10.0) == 10.0
    assert DirectEngine(max_retries=2).rollout_seconds(10.0) == 30.0
    assert DirectEngine(max_retries=2, timeout_seconds=100.0).rollout_seconds(10.0) == 300.0


@pytest.mark.parametrize("limits", [RolloutLimits(n_concurrent=3), RolloutLimits(n_concurrent=3, wave=True)])
def test_closing_early_leaves_nothing_running(limits):
    started, cancelled = [], []

    class Slow:
        async def run(self, task, model, tools, ctx):
            started.append(task.task_id)
            if task.task_id == "t0":
                return "quick"
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                cancelled.append(task.task_id)
                raise
            return ""

    async def scenario():
        stream = DirectEngine().run(tasks(1 if limits.wave else 9), policy(agent=Slow()), limits)
        await anext(stream)
        await stream.aclose()
        return len(asyncio.all_tasks())

    assert asyncio.run(scenario()) == 1
    assert sorted(cancelled) == sorted(set(started) - {"t0"})


def test_cancelling_the_reader_cancels_the_rollouts():
    cancelled = []

    class Slow:
        async def run(self, task, model, tools, ctx):
            try:
                await asyncio.Event().wait()
            finally:
                cancelled.append(task.task_id)

    async def read(limits):
        return [rollout async for rollout in DirectEngine().run(tasks(4), policy(agent=Slow()), limits)]

    async def scenario(limits):
        reader = asyncio.create_task(read(limits))
        for _ in range(5):
            await asyncio.sleep(0)
        reader.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reader
        return len(asyncio.all_tasks())

    for wave in (False, True):
        cancelled.clear()
        assert asyncio.run(scenario(RolloutLimits(n_concurrent=4, wave=wave))) == 1
        assert sorted(cancelled) == ["t0", "t1", "t2", "t3"]


def test_a_slow_reader_slows_the_engine_down():
    started = []

    class Counting:
        async def run(self, task, model, tools, ctx):
            started.append(task.task_id)
            return "x"

    async def scenario():
        stream = DirectEngine().run(tasks(100), policy(agent=Counting()), RolloutLimits(n_concurrent=4))
        await anext(stream)
        for _ in range(200):
            await asyncio.sleep(0)
        ahead = len(started)
        rest = [rollout async for rollout in stream]
        return ahead, len(rest)

    ahead, rest = asyncio.run(scenario())
    assert ahead <= 2 * 4 + 1
    assert rest == 99


def test_a_verifier_waits_for_nobody_else():
    """One rollout's verdict is still out when all others are done."""
    release = asyncio.Event()

    async def verify(task, rollout):
        if task.task_id == "t0":
            await release.wait()
        return Score(value=1.0)

    async def scenario():
        order = []
        async for rollout in DirectEngine().run(
            tasks(5), policy(verify=verify), RolloutLimits(n_concurrent=2)
        ):
            order.append(rollout.task_id)
            if len(order) == 4:
                release.set()
        return order

    assert asyncio.run(scenario())[-1] == "t0"


def test_a_benchmark_with_crashes_and_hangs_ends_and_counts_everything():
    """200 tasks x 4 samples: 5 % of the agents crash, 5 % of the verdicts, 2 % of the agents hang."""

    class Sampler:
        version = 0

        async def sample(self, prompt, params, n=1):
            await asyncio.sleep(0)
            return SampleResult(
                sequences=[SampledSequence(tokens=[111, 107, 257], logprobs=[0.0] * 3, finish_reason="stop")]
            )

        async def close(self): ...

    class Unreliable(ChatAgent):
        async def run(self, task, model, tools, ctx):
            number = int(task.task_id)
            if number % 20 == 0:
                raise RuntimeError("crashed")
            if number % 50 == 1:
                await asyncio.Event().wait()
            return await super().run(task, model, tools, ctx)

    def verifier(model_output, expected, params, rollout):
        if int(rollout.task_id) % 20 == 10:
            raise KeyError("no reward written")
        return float(model_output == expected)

    registry = Registry()
    registry.register("agent", "unreliable", Unreliable)
    registry.register("verifier", "unreliable", verifier)
    benchmark_tasks = [
        HarborTask(task_id=str(i), instruction="?", verifier=VerifierSpec(name="unreliable", expected="ok"))
        for i in range(200)
    ]
    entry = BenchmarkConfig(
        name="b",
        path="x",
        num_samples=4,
        metrics=("mean_reward", "pass@2"),
        agent=AgentConfig(kind="unreliable"),
    )
    benchmark = bind_benchmark(entry, benchmark_tasks, registry=registry)
    rollouts: list[Rollout] = []

    class Record:
        def metrics(self, step, values, *, phase="training"): ...

        def rollout(self, step, rollout, *, phase="training", **facts):
            rollouts.append(rollout)

    evaluator = Evaluator(
        [benchmark],
        ChatTemplateRenderer(),
        seeds=lambda *_: 0,
        registry=registry,
        record=Record(),
        timeout_seconds=0.3,
    )
    result = asyncio.run(evaluator.score(benchmark, Sampler(), 0))
    assert result.status == "invalid"
    assert result.scored + result.no_score == len(rollouts) == 800
    assert result.no_score == 4 * (10 + 10 + 4)
    assert sum(rollout.timed_out for rollout in rollouts) == 4 * 4
    boundaries = Counter(rollout.score.boundary for rollout in rollouts if isinstance(rollout.score, NoScore))
    assert boundaries == {"rollout": 56, "verifier": 40}
    assert result.metrics["mean_reward"].value == 1.0
    assert result.metrics["mean_reward"].excluded == 24
    assert "96 of 800 rollouts have no score" in result.failure.message
