"""Which checkpoint is the best: by scores on what isn't the test, else by rewards; and who is told of it."""

import asyncio
from pathlib import Path
from types import SimpleNamespace

import pytest

from evsys.types import Checkpoint, EvaluationResult, MetricValue
from evsys_runtime.config.plan import SuccessMetric
from evsys_runtime.experiment.arm.best_checkpoint import BestCheckpoint, _entry


class Client:
    def __init__(self):
        self.kept = []

    async def keep_state(self, state):
        self.kept.append(state["path"])


def checkpoint(step):
    return Checkpoint(step=step, directory=Path(f"/run/checkpoints/{step}"), state={"path": f"state-{step}"})


def scored(step, value, benchmark="val", **fields):
    metrics = {"accuracy": MetricValue(value=value)}
    return EvaluationResult(
        benchmark=benchmark, split="val", step=step, metrics=metrics, **{"status": "completed", **fields}
    )


class Run:
    """A run that is followed."""

    def __init__(self, **fields):
        self.best = BestCheckpoint(**fields)
        self.client = Client()
        self.ctx = SimpleNamespace(clients=SimpleNamespace(policy=self.client))

    def steps(self, rewards, every=2):
        for step, reward in enumerate(rewards, start=1):
            self.best.evsys_step_finished(step, {} if reward is None else {"reward": reward})
            if step % every == 0:
                self.save(step)
        return self

    def save(self, step):
        asyncio.run(self.best.evsys_checkpoint_saved(self.ctx, checkpoint(step)))

    def score(self, evaluation):
        asyncio.run(self.best.evsys_evaluation_finished(self.ctx, evaluation))

    @property
    def order(self):
        return [one.step for one in self.best.rank()]


def test_rewards_are_compared_by_their_mean_over_the_last_steps():
    run = Run().steps([0.1, 0.2, 0.9, 0.8, 0.0, 0.0, 0.0, 0.0])
    assert run.order == [4, 6, 8, 2]
    assert run.best.place(Path("/run")) == "checkpoints/4"


def test_scores_count_more_than_rewards_where_there_is_more_than_one():
    run = Run(entry="val", metric="accuracy").steps([0.1, 0.2, 0.9, 0.8, 0.0, 0.0])
    run.score(scored(6, 0.7))
    assert run.order[0] == 4
    run.score(scored(2, 0.8))
    assert run.order == [2, 6, 4]


@pytest.mark.parametrize(
    "other",
    [
        scored(4, 9.0, benchmark="other"),
        scored(4, 9.0, model="an api model"),
        scored(4, 9.0, status="invalid"),
        scored(4, None),
    ],
)
def test_what_says_nothing_of_these_weights_counts_for_nothing(other):
    run = Run(entry="val", metric="accuracy").steps([None] * 6)
    run.score(scored(2, 0.8))
    run.score(scored(6, 0.7))
    run.score(other)
    assert run.order == [2, 6, 4]


def test_less_may_be_better():
    run = Run(entry="val", metric="accuracy", sign=-1.0).steps([None] * 4)
    run.score(scored(2, 0.8))
    run.score(scored(4, 0.7))
    assert run.order == [4, 2]


def test_of_equals_the_later_one_is_taken():
    assert Run().steps([1.0] * 6).order == [6, 4, 2]


def test_a_reward_that_is_none_is_left_out():
    run = Run().steps([0.5, 0.5, float("nan"), float("inf")])
    assert run.order == [4, 2]
    assert run.best.best.step == 4


def test_without_scores_and_rewards_none_is_the_best_and_the_last_comes_first():
    run = Run().steps([None] * 6)
    assert run.best.best is None
    assert run.best.place(Path("/run")) is None
    assert run.order == [6, 4, 2]


def test_what_came_too_late_is_left_out():
    run = Run().steps([0.1, 0.2, 0.9, 0.8, 1.0, 1.0])
    assert [one.step for one in run.best.rank(at_most=5)] == [4, 2]


def test_the_backend_is_told_of_each_new_one_once():
    run = Run(entry="val", metric="accuracy").steps([0.1, 0.2, 0.9, 0.8, 0.0, 0.0])
    assert run.client.kept == ["state-2", "state-4"]
    run.score(scored(6, 0.7))
    run.score(scored(4, 0.6))
    assert run.client.kept == ["state-2", "state-4", "state-6"]


def test_an_attempt_begins_with_the_one_that_earlier_ones_have_left():
    earlier = Run().steps([0.1, 0.2, 0.9, 0.8])
    later = Run()
    later.best = BestCheckpoint(rewards=dict(earlier.best._rewards), saved=dict(earlier.best._saved))
    asyncio.run(later.best.evsys_run_started(later.ctx))
    later.best.evsys_step_finished(5, {"reward": 9.0})
    later.save(6)
    assert later.client.kept == ["state-4", "state-6"]
    nothing = Run()
    asyncio.run(nothing.best.evsys_run_started(nothing.ctx))
    assert nothing.client.kept == []


def test_a_backend_that_keeps_everything_needs_not_be_told():
    run = Run()
    run.ctx.clients.policy = object()
    run.steps([0.1, 0.2])
    assert run.best.best.step == 2


def entry(name, split="val", metrics=("accuracy",)):
    return SimpleNamespace(
        name=name, split=split, metrics=[SimpleNamespace(name=metric) for metric in metrics]
    )


@pytest.mark.parametrize(
    ("entries", "chosen"),
    [
        ([entry("other"), entry("own")], "own"),
        ([entry("other"), entry("own", split="test")], "other"),
        ([entry("other", metrics=("loss",)), entry("own", split="test")], None),
        ([], None),
    ],
)
def test_the_test_never_says_which_is_the_best(entries, chosen):
    success = SuccessMetric(benchmark="own", metric="accuracy", direction="max")
    assert _entry(success, entries) == chosen
