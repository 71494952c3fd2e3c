"""How often a chain of stages ends early although it has forgotten no more than it may, and how often a real loss is found."""

from __future__ import annotations

import math

import attrs
import numpy as np
import pytest

from evsys.types import ArmResult, EvaluationResult, MetricValue
from evsys_runtime.experiment import Experiment
from evsys_runtime.experiment.open_session import bound_benchmarks
from evsys_runtime.experiment.stages.forgetting import forgetting_of, stop_reason

LEVEL = 0.05
NAMES = "abcd"
TEXT = """
continual:
  LIMIT
  datasets:
DATASETS
run:
  model: {name: evsys/tiny}
  algorithm: {kind: sft, params: {learning_rate: 0.2, steps: 12, batch_size: 1, lora_rank: 4}}
  backend: {kind: mock}
"""


@attrs.frozen
class Chain:
    """A plan of four stages, and the means to simulate what they scored."""

    experiment: Experiment
    benchmarks: tuple

    def stops(self, scores):
        """Whether any stage isn't begun; `scores(row, stage)` gives the rewards of each task, [n, samples]."""
        plan, results = self.experiment.plan, {}
        for stage, arm in enumerate(plan.arms):
            if stop_reason(plan, arm, results, self.benchmarks) is not None:
                return True
            results[arm.run_id] = self._result(
                arm, {name: scores(row, stage) for row, name in enumerate(NAMES)}
            )
        return False

    def matrix(self, scores):
        plan = self.experiment.plan
        results = {
            arm.run_id: self._result(arm, {name: scores(row, stage) for row, name in enumerate(NAMES)})
            for stage, arm in enumerate(plan.arms)
        }
        return forgetting_of(plan, results, self.benchmarks)[0]

    @staticmethod
    def _result(arm, rewards):
        return ArmResult(
            run_id=arm.run_id,
            arm=arm.name,
            repeat=0,
            seed=0,
            identity="",
            status="completed",
            evaluations=tuple(scoring(name, *each) for name, each in rewards.items()),
        )


def scoring(name, rewards, clusters):
    tasks = [f"t{task}" for task in range(len(rewards))]
    value = float(rewards.mean())
    return EvaluationResult(
        benchmark=name,
        split="val",
        step=12,
        status="completed",
        num_samples=rewards.shape[1],
        metrics={"mean_reward": MetricValue(value=value, low=value, high=value)},
        task_rewards={task: tuple(row) for task, row in zip(tasks, rewards.tolist(), strict=True)},
        clusters=dict(zip(tasks, map(str, clusters), strict=True)) if clusters is not None else {},
    )


@pytest.fixture
def chain(project):
    def made(limit):
        for name in NAMES:
            project.write(f"{name}.jsonl", [{"prompt": "say x", "completion": "x"}])
            verifier = {"name": "exact_match", "expected": "x"}
            project.write(
                f"t{name}.jsonl",
                [{"task_id": f"t{i}", "instruction": f"say {i}", "verifier": verifier} for i in range(10)],
            )
        entries = "".join(f"\n  - {{name: {name}, path: t{name}.jsonl}}" for name in NAMES)
        datasets = "\n".join(
            f"  - {{name: {name}, path: {name}.jsonl, transforms: [{{kind: jsonl_to_chat}}]}}"
            for name in NAMES
        )
        text = TEXT.replace("LIMIT", limit).replace("DATASETS", datasets)
        metadata = f"\nmetadata:\n  success_metric: a.mean_reward\n  benchmark:{entries}\n"
        experiment = project.experiment(text, metadata=metadata)
        return Chain(experiment, bound_benchmarks(experiment.plan, experiment.options))

    return made


def drawn(rng, kind, loss, *, tasks=50, then=0.6):
    """Rewards of a model that loses `loss` of its score `then` right after each benchmark's own stage, and nothing later."""
    samples = 1 if kind == "one sample" else 4
    clusters = np.arange(tasks) // 3 if kind == "clusters" else None
    ability = rng.normal(0.0, 0.15, (len(NAMES), tasks))
    if clusters is not None:
        ability = ability[:, clusters]

    def scores(row, stage):
        # Around the mean the abilities are symmetric and within bounds, so that the true means are exact.
        centre = then - (loss if stage > row else 0.0)
        chances = centre + np.clip(ability[row] - ability[row].mean(), -0.25, 0.25)
        chances += centre - chances.mean()
        together = 0.0 if clusters is None else rng.normal(0.0, 0.05, tasks)[clusters]
        noisy = np.clip(chances + together, 0.0, 1.0)
        if kind == "partial credit":
            return rng.beta(4 * noisy + 0.01, 4 * (1 - noisy) + 0.01, (samples, tasks)).T, clusters
        return (rng.random((samples, tasks)) < noisy).astype(float).T, clusters

    return scores


TRIALS = [
    pytest.param(25, id="few"),
    pytest.param(2000, id="many", marks=[pytest.mark.slow, pytest.mark.timeout(1800)]),
]


@pytest.mark.parametrize("trials", TRIALS)
@pytest.mark.parametrize("kind", ["one sample", "samples", "partial credit", "clusters"])
@pytest.mark.parametrize(
    ("limit", "loss"),
    [
        ("maximum_loss: 0", 0.0),
        ("maximum_loss: 0.1", 0.1),
        ("minimum_retention: 0.9", 0.0),
        ("minimum_retention: 0.9", 0.06),
    ],
)
def test_a_chain_within_its_limit_ends_early_in_at_most_5_of_100(chain, kind, limit, loss, trials):
    made, rng = chain(limit), np.random.default_rng(7)
    stopped = np.mean([made.stops(drawn(rng, kind, loss)) for _ in range(trials)])
    print(f"{kind}, {limit}, true loss {loss}: {stopped:.4f} of {trials}")  # noqa: T201
    assert stopped <= LEVEL + 3 * math.sqrt(LEVEL * (1 - LEVEL) / trials)


@pytest.mark.parametrize("kind", ["one sample", "samples", "partial credit", "clusters"])
def test_a_chain_that_forgets_most_ends_early(chain, kind):
    made, rng = chain("maximum_loss: 0.1"), np.random.default_rng(8)
    stopped = np.mean([made.stops(drawn(rng, kind, 0.5, tasks=60, then=0.75)) for _ in range(20)])
    assert stopped >= 0.9


def test_what_the_tasks_cannot_tell_is_reported_as_undecided(chain):
    made = chain("maximum_loss: 0.1")
    found = made.matrix(drawn(np.random.default_rng(9), "one sample", 0.1))

    assert {test.outcome for test in found.tests} == {"undecided"}
    assert [(test.benchmark, test.stage) for test in found.tests] == [
        ("a", "2-b"),
        ("a", "3-c"),
        ("b", "3-c"),
    ]
    assert [test.level for test in found.tests] == pytest.approx([0.05 / 3] * 3)
    assert found.stopped == ()
    for test in found.tests:
        assert test.low < 0.0 < test.high


def test_a_small_loss_on_many_tasks_is_shown_to_be_within_the_limit(chain):
    found = chain("maximum_loss: 0.1").matrix(drawn(np.random.default_rng(9), "samples", 0.0, tasks=400))

    assert {test.outcome for test in found.tests} == {"within"}
    for row, own in zip(found.changes, found.own, strict=True):
        assert all(change is None for change in row[: own + 1])
        assert all(abs(change) < 0.1 for change in row[own + 1 :])
