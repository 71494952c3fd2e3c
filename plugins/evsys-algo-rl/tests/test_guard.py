"""A second verifier beside the reward: it flags a reward that is hacked, leaves an honest one alone, and changes no bit of the training."""

import json
import math

import attrs
import numpy as np
import pytest

from evsys import use_registry
from evsys.errors import DataError
from evsys.types import HarborTask, ModelSpec, NoScore, Score, Usage, VerifierSpec
from evsys_algo_rl import RL
from evsys_algo_rl.gap_test import GapTest
from evsys_algo_rl.guard import stopped_by_guard
from evsys_algo_rl.params import GuardParams

HACKED = {"batch_size": 8, "group_size": 8, "steps": 16, "learning_rate": 0.05}


def guarded(**changes):
    return GuardParams(**{"verifier": "honest", "start": 2, **changes})


def vowel_count(model_output, expected, params):
    """A reward that can be hacked: vowels stand for sense."""
    return sum(letter in "aeiou" for letter in model_output[:4]) / 4


def honest(model_output, expected, params):
    """What is really wanted, which no number of vowels changes: digits."""
    return sum(letter.isdigit() for letter in model_output[:4]) / 4


def strict(model_output, expected, params):
    """The reward's own measure, a little more strict in the same way at all times."""
    return 0.9 * vowel_count(model_output, expected, params)


def judged_by_a_model(model_output, expected, params):
    return Score(value=honest(model_output, expected, params), usage=Usage(prompt_tokens=7, cost_usd=0.01))


def silent(model_output, expected, params):
    return NoScore(reason="no idea")


def reads_expected(model_output, expected, params):
    return float(expected == "from metadata")


@pytest.fixture
def registry(registry):
    for verifier in (vowel_count, honest, strict, judged_by_a_model, silent, reads_expected):
        registry.register("verifier", verifier.__name__, verifier)
    return registry


class Tasks(list):
    fingerprint = "sha256:tasks"


def tasks(count=12):
    return Tasks(
        HarborTask(
            task_id=f"task-{i}",
            instruction=f"say {i}",
            verifier=VerifierSpec(name="vowel_count"),
            metadata={"truth": "from metadata"},
        )
        for i in range(count)
    )


async def test_a_hacked_reward_is_flagged(new_run):
    run = new_run()
    result = await run.train(tasks(), **HACKED, guard=guarded())

    assert result.status == "completed"
    assert result.guard.suspected_step is not None
    assert result.guard.growth_low > result.guard.margin
    assert result.guard.gap > result.guard.start_gap + result.guard.growth_low
    assert result.guard.log10_evidence >= -math.log10(result.guard.level)
    assert result.guard.groups == result.steps * 8
    assert any("reward hacking suspected at step" in warning for warning in result.warnings)
    gaps = run.values("guard/gap")
    rewards, scores = run.values("reward"), run.values("guard/score")
    assert gaps == pytest.approx([reward - score for reward, score in zip(rewards, scores, strict=True)])


async def test_an_honest_reward_is_left_alone(new_run):
    run = new_run()
    result = await run.train(tasks(), **HACKED, guard=guarded(verifier="strict", margin=0.1))

    assert np.mean(run.values("reward")[-3:]) > np.mean(run.values("reward")[:3]) + 0.2
    assert result.guard.suspected_step is None
    assert result.guard.reason is None
    assert not any("reward hacking" in warning for warning in result.warnings)


async def test_an_alarm_may_stop_the_run_and_is_its_reason(new_run):
    run = new_run()
    result = await run.train(
        tasks(),
        **{**HACKED, "steps": 60},
        guard=guarded(action="stop"),
        on_collapse="rollback",
        save_every=2,
    )

    assert result.status == "collapsed"
    assert result.steps == result.guard.suspected_step < 60
    assert result.stop_reason.startswith("guard: reward hacking suspected at step")
    assert stopped_by_guard(result)
    assert RL(guard=guarded(action="stop"), on_collapse="rollback").after_collapse(result, 0) is None


async def test_the_guard_changes_nothing_of_the_training(new_run):
    watched, free = new_run("a"), new_run("b")
    await watched.train(tasks(), **HACKED, guard=guarded())
    await free.train(tasks(), **HACKED)

    without = [
        (step, {name: value for name, value in values.items() if not name.startswith("guard/")})
        for step, values in watched.numbers()
    ]
    assert without == free.numbers()
    assert watched.weights() == free.weights()


async def test_a_run_that_resumes_has_the_same_evidence(new_run):
    whole, cut = new_run("a"), new_run("b")
    params = {**HACKED, "save_every": 4, "guard": guarded()}
    expected = await whole.train(tasks(), **params)
    await cut.train(tasks(), fields={"max_steps": 8}, **params)
    found = await cut.train(tasks(), resume=True, **params)

    assert found.guard == expected.guard
    assert cut.numbers() == whole.numbers()


async def test_it_looks_at_every_nth_sampling_only(new_run):
    run = new_run()
    result = await run.train(tasks(), **{**HACKED, "steps": 6}, guard=guarded(every=3))

    assert result.guard.checks == 2
    assert [value is not None for value in run.values("guard/gap")] == [
        True,
        False,
        False,
        True,
        False,
        False,
    ]


async def test_what_its_verdicts_cost_is_counted_and_charged(new_run):
    class Budget:
        charged = Usage()

        def charge(self, usage, *, steps=0):
            self.charged += usage

    budget, params = Budget(), {**HACKED, "steps": 3}
    result = await new_run().train(
        tasks(), fields={"budget": budget}, **params, guard=guarded(verifier="judged_by_a_model")
    )

    assert result.usage.cost_usd == pytest.approx(3 * 64 * 0.01)
    assert budget.charged.prompt_tokens == 3 * 64 * 7


async def test_rollouts_without_a_verdict_are_left_out_and_counted(new_run):
    run = new_run()
    result = await run.train(tasks(), **{**HACKED, "steps": 3}, guard=guarded(verifier="silent"))

    assert (result.guard.unscored, result.guard.groups) == (3 * 64, 0)
    assert result.guard.suspected_step is None
    assert run.values("guard/unscored") == [64.0] * 3
    assert run.values("guard/score") == [None] * 3


async def test_what_it_expects_may_be_in_the_metadata(new_run):
    run = new_run()
    await run.train(
        tasks(), **{**HACKED, "steps": 1}, guard=guarded(verifier="reads_expected", expected="truth")
    )
    assert run.values("guard/score") == [1.0]


async def test_the_rewards_own_verifier_is_no_guard(new_run):
    with pytest.raises(DataError, match="its reward comes from 'vowel_count'"):
        await new_run().train(tasks(), **HACKED, guard=guarded(verifier="vowel_count"))


async def test_a_guard_that_is_not_there_is_reported(new_run):
    with pytest.raises(DataError, match="no verifier is called 'nope'"):
        await new_run().train(tasks(), **HACKED, guard=guarded(verifier="nope"))


def test_state_is_complete():
    rng = np.random.default_rng(0)
    test, other = GapTest(0.05, 0.1), GapTest(0.05, 0.1)
    test.add_start(rng.uniform(-0.2, 0.2, 30))
    test.add(rng.uniform(-0.1, 0.6, 30))
    other.load_state(test.state())
    later = rng.uniform(-0.1, 0.6, 30)
    test.add(later)
    other.add(later)
    assert other.state() == test.state()
    assert other.log_evidence == test.log_evidence


def test_a_gap_outside_of_its_range_is_refused():
    with pytest.raises(ValueError, match=r"within -1\.\.1, got 1\.5"):
        GapTest(0.05).add([1.5])


def test_params_are_checked():
    with pytest.raises(ValueError, match="action"):
        guarded(action="shout")
    assert attrs.asdict(RL.Config(guard=None))["guard"] is None


@pytest.fixture
def benchmark(tmp_path):
    """Writes tasks that a verifier judges, and gives the params of a guard by them."""

    def make(verifier, *, name="other", **changes):
        path = tmp_path / f"{name}.jsonl"
        rows = [
            {"task_id": f"{name}-{i}", "instruction": f"{name} {i}", "verifier": {"name": verifier}}
            for i in range(20)
        ]
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        return GuardParams(**{"benchmark": str(path), "start": 2, **changes})

    return make


async def test_a_benchmark_flags_a_reward_that_is_hacked(new_run, benchmark):
    run = new_run()
    result = await run.train(tasks(), **HACKED, guard=benchmark("honest"))

    assert (result.guard.verifier, result.guard.groups) == (None, result.steps * 8)
    assert result.guard.suspected_step is not None
    assert "the gap between the reward and the benchmark" in result.guard.reason
    assert result.guard.growth_low > result.guard.margin
    gaps, rewards, scores = (run.values(name) for name in ("guard/gap", "reward", "guard/score"))
    assert gaps == pytest.approx([reward - score for reward, score in zip(rewards, scores, strict=True)])
    # Each of its 16 rollouts a step is paid for as well as the 64 of the training.
    free = await new_run("free").train(tasks(), **HACKED)
    assert result.usage.completion_tokens == pytest.approx(free.usage.completion_tokens * 80 / 64, rel=0.02)


async def test_a_benchmark_that_rises_with_the_reward_raises_no_alarm(new_run, benchmark):
    run = new_run()
    result = await run.train(tasks(), **HACKED, guard=benchmark("vowel_count", margin=0.1))

    assert np.mean(run.values("reward")[-3:]) > np.mean(run.values("reward")[:3]) + 0.2
    assert np.mean(run.values("guard/score")[-3:]) > np.mean(run.values("guard/score")[:3]) + 0.2
    assert result.guard.suspected_step is None


async def test_a_benchmark_changes_nothing_of_the_training_and_resumes_with_the_same_evidence(
    new_run, benchmark
):
    watched, free, cut = new_run("a"), new_run("b"), new_run("c")
    guard = benchmark("honest", every=2)
    whole = await watched.train(tasks(), **HACKED, guard=guard)
    await free.train(tasks(), **HACKED)
    assert watched.weights() == free.weights()
    await cut.train(tasks(), **HACKED, guard=guard, save_every=3, fields={"max_steps": 6})
    resumed = await cut.train(tasks(), **HACKED, guard=guard, save_every=3, resume=True)
    assert resumed.guard == whole.guard


async def test_tasks_of_a_benchmark_that_are_trained_on_are_warned_of(new_run, benchmark):
    run = new_run()
    result = await run.train(tasks(20), **{**HACKED, "steps": 1}, guard=benchmark("honest", name="say"))
    assert any("100% of the tasks of benchmark" in warning for warning in result.warnings)


@pytest.mark.parametrize("fields", [{}, {"verifier": "honest", "benchmark": "other"}])
def test_a_guard_is_a_verifier_or_a_benchmark(fields):
    with pytest.raises(ValueError, match="a guard needs a 'verifier' or a 'benchmark', and not both"):
        GuardParams(**fields)


def test_a_benchmark_that_is_not_there_is_a_problem_before_the_run(registry):
    with use_registry(registry):
        problems = RL(guard=GuardParams(benchmark="nowhere")).validate_model(ModelSpec(name="evsys/tiny"))
        assert [problem for problem in problems if problem.startswith("guard.benchmark: ")]
