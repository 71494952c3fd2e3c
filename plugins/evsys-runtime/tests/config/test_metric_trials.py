"""Metrics are tried on made-up rewards before anything is spent."""

import pytest

HEAD = """\
version: 1
name: x
metadata:
  success_metric: val.mean_reward
  benchmark: {name: val, path: data/val.jsonl, num_samples: 3, metrics: [mean_reward, tried]}
run:
  data: {path: data/train.jsonl}
  model: {name: evsys/tiny}
  algorithm: {kind: sft}
  backend: {kind: mock}
"""


@pytest.fixture
def of_rewards(registry):
    """Registers the metric `tried`, which computes what a test says."""

    def register(function, **declared):
        body = {"direction": "max", "compute": lambda _self, rewards: function(rewards), **declared}
        registry.register("metric", "tried", type("Tried", (), body))

    return register


@pytest.mark.parametrize(
    ("compute", "reason"),
    [
        (lambda rewards: rewards.values(), "AttributeError: 'list' object has no attribute 'values'"),
        (lambda rewards: 1 / sum(rewards[0]), "ZeroDivisionError"),
        (lambda _rewards: "0.5", "it returned str, not a number"),
        (lambda _rewards: float("nan"), "gives nan for made-up rewards"),
    ],
)
def test_a_metric_that_fails_is_a_problem_with_its_line_and_a_hint(problems, of_rewards, compute, reason):
    of_rewards(compute)
    [problem] = problems(HEAD)
    assert problem.startswith("exp.yaml:5:")
    assert "$.metadata.benchmark.metrics[1]: the metric 'tried'" in problem
    assert reason in problem
    assert "a list with one inner list per task" in problem


def test_the_place_in_the_metric_is_named(problems, of_rewards):
    of_rewards(lambda rewards: rewards.items())
    [problem] = problems(HEAD)
    assert f"({__file__}:" in problem


def test_it_receives_lists_of_as_many_rewards_as_the_entry_has_samples(load, of_rewards):
    seen = []
    of_rewards(lambda rewards: seen.append(rewards) or 0.5)
    load(HEAD)
    assert seen == [[[0.0] * 3, [1.0] * 3, [1.0, 0.0, 1.0]]]


def test_the_rewards_are_within_what_the_verifiers_declare(load, registry, of_rewards, project):
    seen = []
    of_rewards(lambda rewards: seen.extend(rewards) or 0.5)

    class Stars:
        reward_range = (1.0, 5.0)

        def __call__(self, model_output, expected, params):
            return 1.0

    registry.register("verifier", "stars", Stars)
    tasks = project / "data" / "val.jsonl"
    tasks.write_text(tasks.read_text(encoding="utf-8").replace("exact_match", "stars"), encoding="utf-8")
    load(HEAD)
    assert seen == [[1.0] * 3, [5.0] * 3, [5.0, 1.0, 5.0]]


def test_a_metric_of_rollouts_that_fails_is_a_warning_since_rollouts_are_made_up_too(load, registry):
    class Tried:
        direction = "min"

        def compute_rollouts(self, task_rollouts):
            return task_rollouts["passed"][0].metadata["latency"]

    registry.register("metric", "tried", Tried)
    assert any("'tried' fails on made-up rewards: KeyError: 'latency'" in one for one in load(HEAD).warnings)


def test_a_metric_of_rollouts_may_be_unknown(load, registry):
    class Tried:
        direction = "min"

        def compute_rollouts(self, task_rollouts):
            return float("nan")

    registry.register("metric", "tried", Tried)
    assert not any("tried" in one for one in load(HEAD).warnings)
