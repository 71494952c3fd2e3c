import asyncio
import threading

import aiohttp
import pytest
from merging import RENDERER, Splitting, sampled_in

from evsys.errors import BudgetExceeded, RolloutError, StoreError
from evsys.types import Message, NoScore, RolloutLimits, SamplingParams, Score
from evsys_runtime.evaluation.agents import FunctionAgent
from evsys_runtime.evaluation.rollouts import TrainingRollouts
from evsys_runtime.experiment.state.seeds import Seeds
from evsys_runtime.serving.rollouts import RolloutEndpoints
from evsys_runtime.training.trajectories import RejectedRolloutError, to_datum, trajectories

LIMITS = RolloutLimits(n_concurrent=4, timeout_seconds=5, max_turns=2)


async def asks(task, model, ctx):
    first = [Message(role="user", content=task.instruction)]
    [one] = await model.generate(first, ctx.sampling)
    second = [*first, one.message, Message(role="user", content="again")]
    [two] = await model.generate(second, ctx.sampling)
    return two.message.content


class Written:
    """A record that keeps the threads in which it was called."""

    def __init__(self, error=None):
        self.lines, self.threads, self.error = [], set(), error

    def rollout(self, step, rollout, *, phase="training", **facts):
        if self.error is not None:
            raise self.error
        self.threads.add(threading.current_thread())
        self.lines.append((step, rollout, phase))


@pytest.fixture
def collect(registry):
    """Runs the training rollouts of some tasks."""

    def run(agent, sampler, tasks, *, record=None, num_samples=2, step=3, seed=None, limits=LIMITS, **fields):
        rollouts = TrainingRollouts(
            renderer=RENDERER,
            agent=FunctionAgent(agent),
            registry=registry,
            seeds=Seeds(base_seed=5),
            record=record,
            **fields,
        )

        async def main():
            sampling = SamplingParams(max_tokens=60, seed=seed)
            stream = rollouts.collect(
                tasks, sampler, num_samples, sampling=sampling, limits=limits, step=step
            )
            found = [rollout async for rollout in stream]
            await rollouts.close()
            return found

        return asyncio.run(main())

    return run


def test_a_users_function_is_trained_on_what_the_sampler_said(collect, task):
    sampler = Splitting("hello ab", "yes", version=12)
    found = collect(asks, sampler, [task("a"), task("b")])
    assert [(r.task_id, r.sample_index) for r in found] == [("a", 0), ("a", 1), ("b", 0), ("b", 1)]
    data = [sampled_in(trajectories(rollout)) for rollout in found]
    logged = sorted((tokens, logprobs) for _, tokens, logprobs, _ in sampler.log)
    assert sorted(turn for turns in data for turn in turns) == logged
    assert all(len(trajectories(rollout)) == 1 for rollout in found)
    [one] = trajectories(found[0])
    datum = to_datum(one, 1.0)
    assert [*datum.tokens.tolist(), int(datum.loss_inputs["target_tokens"][-1])] == one.tokens.tolist()
    assert {rollout.policy_version for rollout in found} == {12}
    assert found[0].score == Score(value=1.0)


def test_seeds_come_from_the_run_the_step_and_the_place(collect, task):
    async def once(task, model, ctx):
        return str(ctx.seed)

    def seeds(**fields):
        return [rollout.output for rollout in collect(once, Splitting("x"), [task("a"), task("b")], **fields)]

    assert len(set(seeds())) == 4
    assert seeds() == seeds()
    assert not set(seeds()) & set(seeds(step=4))
    assert not set(seeds()) & set(seeds(seed=1))


def test_every_rollout_goes_on_record_in_a_thread_under_the_step_that_it_is_for(collect, task):
    record = Written()
    found = collect(asks, Splitting("yes"), [task("a"), task("b")], record=record)
    assert [(step, phase) for step, _, phase in record.lines] == [(4, "training")] * 4
    assert [rollout for _, rollout, _ in record.lines] == found
    assert threading.main_thread() not in record.threads


def test_a_record_that_cannot_be_written_is_told(collect, task):
    with pytest.raises(StoreError, match="disk full"):
        collect(asks, Splitting("yes"), [task("a")], record=Written(StoreError("disk full")))


def test_what_failed_ran_out_of_time_or_was_cut_is_there_like_all_others(collect, task):
    async def odd(task, model, ctx):
        if task.task_id == "crash":
            raise ValueError("stumbled")
        if task.task_id == "hang":
            await asyncio.Event().wait()
        return await asks(task, model, ctx)

    record = Written()
    tasks = [task(name) for name in ("crash", "hang", "cut", "well")]
    sampler = Splitting("hello ab" * 20, "yes")
    limits = RolloutLimits(timeout_seconds=0.05)
    found = {r.task_id: r for r in collect(odd, sampler, tasks, record=record, num_samples=1, limits=limits)}
    assert len(record.lines) == 4
    assert found["crash"].error == "ValueError: stumbled"
    assert isinstance(found["crash"].score, NoScore)
    assert found["hang"].timed_out
    assert found["cut"].truncated
    assert found["well"].error is None
    with pytest.raises(RejectedRolloutError) as caught:
        trajectories(found["crash"])
    assert caught.value.reason == "no_turns"


def test_an_agent_that_never_asks_the_model_has_nothing_to_train(collect, task):
    async def knows(task):
        return "yes"

    [rollout] = collect(knows, Splitting("x"), [task("a")], num_samples=1)
    assert rollout.score == Score(value=1.0)
    with pytest.raises(RejectedRolloutError, match="no turn of the model"):
        trajectories(rollout)


def test_an_engine_that_fails_is_attributed(collect, task, registry):
    class Broken:
        async def run(self, tasks, policy, limits):
            raise ValueError("no engine")
            yield

    registry.register("rollout_engine", "harbor", Broken)
    with pytest.raises(RolloutError, match="no engine"):
        collect(asks, Splitting("x"), [task("a")], environment="null")


async def asks_over_http(task, ctx):
    endpoint = await ctx.endpoint()
    assert endpoint is await ctx.endpoint()
    asked = {"model": endpoint.model, "messages": [{"role": "user", "content": task.instruction}]}
    async with (
        aiohttp.ClientSession() as session,
        session.post(f"{endpoint.base_url}/chat/completions", json=asked) as response,
    ):
        return (await response.json())["choices"][0]["message"]["content"]


def test_an_agent_may_ask_at_an_address_of_its_own(registry, task):
    sampler = Splitting("yes")

    async def main():
        endpoints = RolloutEndpoints(model="m", tokenizer=RENDERER.tokenizer)
        rollouts = TrainingRollouts(
            renderer=RENDERER,
            agent=FunctionAgent(asks_over_http),
            registry=registry,
            seeds=Seeds(),
            endpoints=endpoints,
        )
        sampling = SamplingParams(max_tokens=60)
        stream = rollouts.collect([task("a")], sampler, 4, sampling=sampling, limits=LIMITS, step=0)
        found = [rollout async for rollout in stream]
        await endpoints.close()
        return found

    found = asyncio.run(main())
    assert [rollout.score for rollout in found] == [Score(value=1.0)] * 4
    assert [(r.turns[0].tokens, r.turns[0].logprobs) for r in found] == [e[1:3] for e in sampler.log]


def test_rollouts_that_ended_before_an_interruption_are_on_record(registry, task):
    async def half(task, model, ctx):
        if task.task_id == "b":
            await asyncio.Event().wait()
        return await asks(task, model, ctx)

    record = Written()
    rollouts = TrainingRollouts(
        renderer=RENDERER, agent=FunctionAgent(half), registry=registry, seeds=Seeds(), record=record
    )

    async def main():
        first = asyncio.Event()

        async def run():
            tasks, sampling = [task("a"), task("b")], SamplingParams(max_tokens=60)
            async for _ in rollouts.collect(
                tasks, Splitting("yes"), 1, sampling=sampling, limits=LIMITS, step=0
            ):
                first.set()

        running = asyncio.create_task(run())
        await first.wait()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await rollouts.close()
        await rollouts.close()

    asyncio.run(main())
    assert [rollout.task_id for _, rollout, _ in record.lines] == ["a"]


def test_what_each_rollout_uses_is_charged_and_a_spent_budget_ends_the_collecting(collect, task):
    charged = []

    def charge(usage):
        charged.append(usage.completion_tokens)
        if len(charged) == 3:
            raise BudgetExceeded("nothing is left")

    with pytest.raises(BudgetExceeded):
        collect(asks, Splitting("hello ab", "yes"), [task("a"), task("b")], charge=charge)
    assert len(charged) == 3
    assert min(charged) > 0


def test_how_long_a_rollout_may_take_is_known_while_it_is_under_way(registry, task):
    rollouts = TrainingRollouts(
        renderer=RENDERER, agent=FunctionAgent(asks), registry=registry, seeds=Seeds(base_seed=5)
    )

    async def main():
        seen = [rollouts.patience]
        stream = rollouts.collect(
            [task("a")], Splitting("x"), 1, sampling=SamplingParams(max_tokens=60), limits=LIMITS, step=0
        )
        async for _ in stream:
            seen.append(rollouts.patience)
        return [*seen, rollouts.patience]

    assert asyncio.run(main()) == [0.0, 5, 0.0]


# --- failures -------------------------------------------------------------------------------------------------------


def failing(*samples, error=RuntimeError):
    """An agent whose first attempts at some samples fail; it notes the seeds of all attempts."""
    left = set(samples)
    seeds = []

    async def act(task, model, ctx):
        [said] = await model.generate([Message(role="user", content=task.instruction)], ctx.sampling)
        seeds.append(ctx.seed)
        if (task.task_id, ctx.sample_index) in left:
            left.discard((task.task_id, ctx.sample_index))
            raise error("gone")
        return said.message.content

    return act, seeds


def test_rollouts_that_failed_are_sampled_again_with_other_seeds(collect, task):
    record = Written()
    act, seeds = failing(("a", 1), ("b", 3))
    found = collect(
        act, Splitting("yes"), [task("a"), task("b")], record=record, num_samples=4, max_retries=1
    )
    assert sorted((r.task_id, r.sample_index) for r in found) == [(t, n) for t in "ab" for n in range(4)]
    assert all(rollout.error is None for rollout in found)
    again = {(r.task_id, r.sample_index): r for r in found if "failed_before" in r.metadata}
    assert set(again) == {("a", 1), ("b", 3)}
    assert again["a", 1].metadata["failed_before"] == ["RuntimeError: gone"]
    assert again["a", 1].metadata["attempts"] == 2
    assert len(set(seeds)) == 10
    assert [rollout for _, rollout, _ in record.lines] == found


def test_what_attempts_took_is_counted_and_charged_once(collect, task):
    charged = []
    act, _ = failing(("a", 1))
    found = collect(act, Splitting("yes"), [task("a")], num_samples=4, max_retries=1, charge=charged.append)
    assert len(charged) == 5
    assert sum(used.tokens for used in charged) == sum(rollout.usage.tokens for rollout in found)


def test_retries_are_bounded(collect, task):
    async def broken(task, model, ctx):
        if task.task_id == "a":
            raise RuntimeError("gone")
        return "yes"

    found = collect(broken, Splitting("yes"), [task(name) for name in "abc"], num_samples=1, max_retries=3)
    [lost] = [rollout for rollout in found if rollout.error is not None]
    assert (lost.task_id, len(lost.metadata["failed_before"])) == ("a", 3)


def test_nothing_is_tried_again_where_most_of_the_work_failed(collect, task):
    act, seeds = failing(("a", 0), ("a", 1), ("a", 2))
    found = collect(act, Splitting("yes"), [task("a")], num_samples=4, max_retries=1)
    assert sum(rollout.error is not None for rollout in found) == 3
    assert len(seeds) == 4


def test_what_hangs_is_not_tried_again(collect, task):
    attempts = []

    async def hangs(task, model, ctx):
        attempts.append(task.task_id)
        if task.task_id == "a":
            await asyncio.Event().wait()
        return "yes"

    limits = RolloutLimits(n_concurrent=4, timeout_seconds=0.05)
    found = collect(
        hangs, Splitting("yes"), [task(n) for n in "abc"], num_samples=1, max_retries=1, limits=limits
    )
    assert [rollout.timed_out for rollout in found].count(True) == 1
    assert len(attempts) == 3
