"""`rl` on the mock backend: it learns, it is exact, it resumes, and it says what is wrong instead of training on it."""

import asyncio
import json

import attrs
import numpy as np
import pytest

from evsys.errors import AlgorithmError, DataError, StoreError
from evsys.types import (
    HarborTask,
    Message,
    Rollout,
    RolloutLimits,
    SamplingParams,
    TrainingBatch,
    VerifierSpec,
)
from evsys_algo_rl import RL
from evsys_algo_rl.batches import make_data
from evsys_algo_rl.groups import judge
from evsys_runtime.training.algorithm import BaseAlgorithm
from evsys_runtime.training.rollout_groups import run_groups

LEARNS = {"batch_size": 8, "group_size": 8, "steps": 12, "learning_rate": 0.03}


def rows(count=12, verifier="lower", expected=None):
    found = [
        HarborTask(
            task_id=f"task-{i}",
            instruction=f"say {i}",
            verifier=VerifierSpec(name=verifier, expected=expected),
        )
        for i in range(count)
    ]
    return Tasks(found)


class Tasks(list):
    @property
    def fingerprint(self):
        return f"sha256:{len(self)}"


# --- it learns -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("advantage", ["mean", "mean_std", "rloo", "batch_std"])
async def test_rewards_rise(new_run, advantage):
    run = new_run()
    result = await run.train(rows(), **LEARNS, advantage=advantage)
    rewards = run.values("reward")
    assert (result.status, result.steps) == ("completed", 12)
    assert np.mean(rewards[-3:]) > np.mean(rewards[:3]) + 0.2


@pytest.mark.parametrize(
    "params",
    [
        {"loss": "ppo"},
        {"loss": "cispo"},
        {"loss": "gspo", "clip_low": 0.2, "clip_high": 0.2},
        {"loss": "dro"},
        {"loss": "ppo", "ratio_cap": 2.0, "mask_token_ratio": [0.5, 2.0]},
        {"loss_agg": "sequence"},
        {"loss_agg": "constant", "learning_rate": 0.03},
        {"kl_coef": 0.001},
        {"kl_coef": 0.001, "kl_estimator": "k1"},
        {"entropy_coef": 0.001},
        {"substeps": 2, "loss": "ppo"},
        {"max_staleness": 2},
        {"filter_groups": True},
    ],
    ids=str,
)
async def test_rewards_rise_with_each_setting(new_run, params):
    run = new_run()
    await run.train(rows(), **{**LEARNS, **params})
    rewards = run.values("reward")
    assert np.mean(rewards[-3:]) > np.mean(rewards[:3]) + 0.15


async def test_without_a_difference_in_reward_nothing_changes_and_the_run_stops(new_run):
    run = new_run()
    result = await run.train(rows(verifier="same", expected=0.5), steps=50, max_flat_steps=3)
    assert result.steps == 3
    assert "in the last 3 steps no group had rewards that differ (their mean is 0.5)" in result.stop_reason
    assert run.values("zero_variance_share") == [1.0] * 3
    assert run.values("grad_norm") == [0.0] * 3


async def test_rollouts_that_were_cut_off_may_have_no_loss(new_run):
    run = new_run()
    result = await run.train(rows(), steps=20, overlong="mask", max_tokens=3, loss="dro", max_flat_steps=3)
    cut, flat = run.values("truncated_share"), run.values("zero_variance_share")
    assert cut[-3:] == flat[-3:] == [1.0] * 3  # the mock hardly ever ends a turn so early
    assert result.steps < 20
    assert run.values("grad_norm")[-1] == 0.0


async def test_at_the_first_step_policy_and_sampler_are_the_same(new_run):
    run = new_run()
    await run.train(rows(), steps=1)
    for name in ("ratio_mean", "ratio_max", "ratio_p01", "ratio_p99"):
        assert run.values(name) == [1.0]
    assert run.values("kl_sampler_trainer_max") == [0.0]


async def test_a_sampler_that_is_another_model_than_the_trainer_is_told(new_run):
    class Shifted:
        """A policy whose sampler tells other logprobs than it has."""

        def __init__(self, client):
            self._client = client

        def __getattr__(self, name):
            return getattr(self._client, name)

        async def sampling_client(self):
            sampler = await self._client.sampling_client()
            plain = sampler.sample

            async def sample(prompt, params, n=1):
                found = await plain(prompt, params, n)
                moved = [attrs.evolve(s, logprobs=[lp - 0.3 for lp in s.logprobs]) for s in found.sequences]
                return attrs.evolve(found, sequences=moved)

            sampler.sample = sample
            return sampler

    result = await new_run().train(rows(), steps=2, fields={"client": Shifted})
    assert any("different logprobs with the same weights" in warning for warning in result.warnings)


async def test_a_loss_of_the_project_trains(new_run, registry):
    def reinforce(data, logprobs):
        return -sum(
            np.sum(d.loss_inputs["weights"] * d.loss_inputs["advantages"] * lp)
            for d, lp in zip(data, logprobs, strict=True)
        )

    registry.register("loss", "reinforce", reinforce)
    run = new_run()
    await run.train(rows(), **LEARNS, loss="reinforce")
    assert np.mean(run.values("reward")[-3:]) > np.mean(run.values("reward")[:3]) + 0.15


async def test_a_subclass_may_choose_what_is_learnt(new_run):
    seen = []

    class Watched(RL):
        async def batch_of(self, groups, step_idx):
            seen.append([group.task_id for group in groups])
            return await super().batch_of(groups, step_idx)

    run = new_run()
    await run.train(rows(), algorithm=Watched)
    assert [tuple(ids) for ids in seen] == [row_ids for _, _, row_ids in run.run.batches()]


# --- exactly -----------------------------------------------------------------------------------------------------------


class Synchronous(RL):
    """The same training without a pipeline: one sampling after the other, each waited for."""

    async def build_batch(self, step_idx):
        config, ctx = self.config, self.ctx
        snapshot = await ctx.clients.policy.sampling_client()
        numbers = self.take_rows(step_idx)
        found = run_groups(
            ctx,
            [ctx.data[number] for number in numbers],
            config.group_size,
            snapshot=snapshot,
            sampling=SamplingParams(max_tokens=config.max_tokens, temperature=1.0, seed=step_idx),
            limits=RolloutLimits(n_concurrent=config.n_concurrent, max_turns=1, wave=True, keep="errors"),
            step=step_idx,
        )
        groups = [
            judge(g.task.task_id, g.rollouts, config, position=g.place, version=snapshot.version)
            async for g in found
        ]
        await snapshot.close()
        return TrainingBatch(
            data=make_data(groups, config, None),
            loss_fn=config.loss,
            row_ids=tuple(group.task_id for group in groups),
            metrics={"reward": float(np.mean([r for group in groups for r in group.rewards]))},
        )


async def test_without_staleness_the_pipeline_equals_a_synchronous_run_bit_for_bit(new_run):
    pipelined, plain = new_run("pipelined"), new_run("plain")
    await pipelined.train(rows(), steps=8, max_staleness=0)
    await plain.train(rows(), steps=8, algorithm=Synchronous)
    assert pipelined.values("loss") == plain.values("loss")
    assert pipelined.weights() == plain.weights()
    assert pipelined.run.batches() == plain.run.batches()


async def test_deterministic_runs_have_no_staleness_and_others_one_round(new_run):
    for deterministic, oldest in ((True, 0.0), (False, 1.0)):
        run = new_run(f"run-{deterministic}")
        await run.train(rows(), steps=5, fields={"deterministic": deterministic})
        assert run.values("staleness_max") == [0.0] + [oldest] * 4


@pytest.mark.parametrize("staleness", [1, 3])
async def test_no_group_is_older_than_allowed(new_run, staleness):
    run = new_run()
    await run.train(rows(), steps=8, max_staleness=staleness)
    assert max(run.values("staleness_max")) == staleness
    assert run.values("groups") == [4.0] * 8


async def test_nothing_is_sampled_beyond_the_last_step(new_run):
    run = new_run()
    await run.train(rows(), steps=3, max_staleness=2)
    recorded = list(run.run.record.read_rollouts("training"))
    assert len(recorded) == 3 * 4 * 4


@pytest.mark.parametrize(
    "params",
    [
        {},
        {"filter_groups": True},
        {"substeps": 3},
        {"kl_coef": 0.05},
        {"kl_coef": 0.05, "substeps": 2, "loss": "ppo"},
        {"entropy_coef": 0.01},
    ],
    ids=str,
)
async def test_a_run_that_goes_on_from_a_checkpoint_has_the_same_bits(new_run, params):
    config = {"config": {"algorithm": {"kind": "rl"}, "backend": {"kind": "mock", "params": {}}}}
    whole, halved = new_run("whole"), new_run("halved")
    await whole.train(rows(), steps=8, save_every=1, fields=config, **params)

    await halved.train(rows(), steps=8, save_every=1, fields={**config, "max_steps": 4}, **params)
    await halved.train(rows(), steps=8, save_every=1, resume=True, fields=config, **params)
    assert halved.run.batches() == whole.run.batches()
    assert halved.values("loss") == whole.values("loss")
    assert halved.weights() == whole.weights()


async def test_a_run_whose_batches_have_a_loss_of_their_own_does_not_go_on_with_another(new_run):
    class Own(RL):
        async def batch_of(self, groups, step_idx):
            batch = await super().batch_of(groups, step_idx)
            batch.loss_fn = "cispo"
            return batch

    run, params = (
        new_run(),
        {"algorithm": Own, "steps": 4, "save_every": 1, "substeps": 2, "loss": "ppo", "clip_low": 0.1},
    )
    await run.train(rows(), fields={"max_steps": 1}, **params)
    with pytest.raises(StoreError, match="sampled and not yet trained"):
        await run.train(rows(), resume=True, **params)


async def test_the_state_is_json(new_run):
    run = new_run()
    async with run.attempt(rows()) as ctx:
        algorithm = RL(batch_size=2, group_size=2, steps=4, substeps=2, learning_rate=0.1, max_tokens=3)
        await algorithm.setup(ctx)
        await algorithm.build_batch(0)
        state = algorithm.state()
        assert json.loads(json.dumps(state)) == state
        assert len(state["pending"]) == 1
        await algorithm._close()


async def test_an_epoch_takes_each_task_once(new_run):
    run = new_run()
    result = await run.train(rows(10), steps=None, epochs=1, batch_size=4)
    assert result.steps == 3
    taken = [row_id for _, _, ids in run.run.batches() for row_id in ids]
    assert sorted(taken) == sorted(f"task-{i}" for i in range(10))


async def test_groups_without_a_difference_are_replaced(new_run):
    seen = []

    class Watched(RL):
        async def batch_of(self, groups, step_idx):
            seen.extend(groups)
            return await super().batch_of(groups, step_idx)

    run = new_run()
    params = {"group_size": 2, "max_refill": 4.0, "learning_rate": 1e-3}
    await run.train(rows(40), algorithm=Watched, steps=6, filter_groups=True, **params)
    assert len(seen) == 6 * 4
    assert not any(group.flat("mean") for group in seen)
    filtered = run.values("groups_filtered")
    assert sum(filtered) > 0
    assert run.values("zero_variance_share") == [n / (4 + n) for n in filtered]


async def test_what_rollouts_took_is_in_the_result(new_run):
    run = new_run()
    result = await run.train(rows(), steps=2)
    recorded = [line["rollout"]["usage"] for line in run.run.record.read_rollouts("training")]
    assert result.usage.completion_tokens == sum(usage["completion_tokens"] for usage in recorded)
    assert result.usage.prompt_tokens == sum(usage["prompt_tokens"] for usage in recorded)
    assert result.usage.trained_tokens > 0
    assert result.usage.cost_usd == 0.0


async def test_no_tasks_are_told_as_that(new_run):
    with pytest.raises(DataError, match="there are no rows to train on"):
        await new_run().train(rows(0))


# --- bad input ---------------------------------------------------------------------------------------------------------


async def test_rewards_that_are_no_numbers_are_no_rewards(new_run):
    with pytest.raises(
        AlgorithmError, match="none of the 16 rollouts of step 1 can be learnt from: 16 no_score"
    ) as told:
        await new_run().train(rows(verifier="not_a_number"))
    assert "gave value nan, no finite number" in told.value.hint


async def test_some_rewards_that_are_no_numbers_are_counted(new_run):
    data = Tasks([*rows(6), *(attrs.evolve(t, task_id=f"bad-{t.task_id}") for t in rows(6, "not_a_number"))])
    run = new_run()
    result = await run.train(data, batch_size=12, steps=1)
    assert result.metrics["no_score_share"] == 0.5


@pytest.mark.parametrize("reward", ["1.7e308", "-1e200", "1e13"])
async def test_rewards_too_large_to_train_on_are_left_out_counted_and_named(new_run, reward):
    huge = (attrs.evolve(task, task_id=f"huge-{task.task_id}") for task in rows(6, "same", reward))
    run = new_run()
    result = await run.train(Tasks([*rows(6), *huge]), batch_size=12, steps=2)
    assert result.metrics["rejected/bad_reward"] == 6 * 4
    assert result.metrics["rejected_share"] == 0.5
    assert all(np.isfinite(value) for value in result.metrics.values())
    [warning] = [text for text in result.warnings if "bad_reward" in text]
    assert f"has the reward {float(reward):g}" in warning
    with pytest.raises(AlgorithmError, match="16 bad_reward") as told:
        await new_run().train(rows(12, "same", reward))
    assert f"has the reward {float(reward):g}" in told.value.hint


async def test_an_agent_that_never_calls_the_model_is_told_as_that(new_run):
    async def silent(task):
        return "I know it anyway"

    with pytest.raises(AlgorithmError, match="none of the 16 rollouts of step 1 can be learnt from") as told:
        await new_run().train(rows(), agent=silent)
    assert told.value.hint == "the agent never called the model"


async def test_an_agent_that_crashes_sometimes_costs_its_rollouts_only(new_run):
    async def shaky(task, model, ctx):
        if ctx.sample_index == 0:
            raise OSError("the sandbox is gone")
        found = await model.generate([Message(role="user", content=task.instruction)], ctx.sampling)
        return found[0].message.content

    run = new_run()
    result = await run.train(rows(), agent=shaky)
    assert run.values("error_share") == [0.25] * 4
    assert result.status == "completed"


async def test_an_agent_that_always_crashes_is_told_with_its_own_words(new_run):
    async def broken(task):
        raise OSError("the sandbox is gone")

    with pytest.raises(AlgorithmError) as told:
        await new_run().train(rows(), agent=broken)
    assert "16 error" in told.value.message
    assert "the sandbox is gone" in told.value.hint


async def test_tasks_that_cannot_be_judged_are_told_before_anything_is_sampled(new_run):
    data = Tasks([*rows(3), HarborTask(task_id="lost", instruction="?"), *rows(2, verifier="lowr")])
    run = new_run()
    with pytest.raises(DataError) as told:
        await run.train(data)
    assert "task 'lost': it has no verifier" in told.value.message
    assert "lowr" in told.value.message
    assert list(run.run.record.read_rollouts("training")) == []


async def test_a_conversation_that_does_not_fit_is_left_out_and_counted(new_run):
    with pytest.raises(AlgorithmError, match="16 too_long"):
        await new_run().train(rows(), max_length=8)


async def test_what_an_agent_makes_up_is_not_trained(new_run):
    async def forger(task, ctx):
        return Rollout(task_id=task.task_id, sample_index=ctx.sample_index, output="aaaa")

    with pytest.raises(AlgorithmError, match="16 no_turns"):
        await new_run().train(rows(), agent=forger)


async def test_temperatures_other_than_one_are_warned_of(new_run):
    result = await new_run().train(rows(), temperature=0.7, steps=1)
    assert any("temperature isn't 1" in warning for warning in result.warnings)


# --- collapse, stops -----------------------------------------------------------------------------------------------------


async def test_a_training_that_collapses_ends_as_that(new_run):
    run = new_run()
    result = await run.train(rows(), steps=200, learning_rate=0.0, algorithm=Cliff)
    assert result.status == "collapsed"
    assert result.stop_reason.startswith("the reward fell from")
    assert result.steps < 30
    assert result.final_checkpoint is not None


async def test_a_collapsed_run_stays_collapsed_when_it_is_taken_up_again(new_run):
    run = new_run()
    first = await run.train(rows(), steps=200, learning_rate=0.0, algorithm=Cliff)
    again = await run.train(rows(), steps=200, learning_rate=0.0, algorithm=Cliff, resume=True)
    assert (again.status, again.steps, again.stop_reason) == ("collapsed", first.steps, first.stop_reason)


async def test_a_collapse_may_only_be_told(new_run):
    result = await new_run().train(rows(), steps=30, learning_rate=0.0, algorithm=Cliff, on_collapse="warn")
    assert (result.status, result.steps) == ("completed", 30)
    assert any("training collapsed: the reward fell" in warning for warning in result.warnings)


class Cliff(RL):
    """Its rewards are good for ten steps, and then bad."""

    async def batch_of(self, groups, step_idx):
        batch = await super().batch_of(groups, step_idx)
        batch.metrics |= {"reward": 0.8 if step_idx < 10 else 0.1, "zero_variance_share": 0.5}
        return batch


async def test_cancelling_ends_rollouts_and_closes_policies(new_run):
    started = asyncio.Event()

    async def waits(task):
        started.set()
        await asyncio.Event().wait()

    run = new_run()
    async with run.attempt(rows(), agent=waits) as ctx:
        training = asyncio.create_task(RL(batch_size=2, group_size=2, steps=2, learning_rate=0.1).train(ctx))
        await started.wait()
        training.cancel()
        with pytest.raises(asyncio.CancelledError):
            await training
        others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        assert others == []


async def test_listeners_get_the_rollouts_of_each_step(new_run):
    from evsys import HookManager, hookimpl

    class Listener:
        def __init__(self):
            self.seen = []

        @hookimpl
        def evsys_rollouts_finished(self, step, phase, rollouts):
            self.seen.append((step, phase, len(rollouts)))

    listener, hooks = Listener(), HookManager()
    hooks.register(listener)
    await new_run().train(rows(), fields={"hooks": hooks})
    assert listener.seen == [(step, "training", 16) for step in range(1, 5)]


async def test_what_a_step_takes_at_most_is_foreseen_from_its_tasks(new_run):
    async with new_run().attempt(rows()) as ctx:
        algorithm = RL(
            batch_size=3, group_size=5, max_tokens=7, max_turns=2, steps=4, n_concurrent=10, kl_coef=0.1
        )
        algorithm.ctx = ctx
        await BaseAlgorithm.setup(algorithm, ctx)
        algorithm._max_length = algorithm.longest_sequence(ctx)
        found = algorithm.foreseen(0)
        renderer = ctx.clients.policy.renderer
        asked = [ctx.data[row].instruction for row in algorithm.take_rows(0)]
        lengths = [len(renderer.render_prompt([Message(role="user", content=text)])) for text in asked]
    assert (found.answers, found.answer_tokens, found.at_once, found.readings) == (15, 14, 10, 1)
    assert found.prompt_tokens == sum(lengths)
    assert [len(datum.tokens) + 1 - 14 for datum in found.data] == [n for n in lengths for _ in range(5)]
