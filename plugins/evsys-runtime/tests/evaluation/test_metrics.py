import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evsys import Registry
from evsys.errors import ConfigError, PluginContractError, PluginNotFoundError
from evsys.types import MetricValue, NoScore, Rollout, Score, Usage
from evsys_runtime.evaluation.metrics import (
    BoundMetric,
    Scores,
    bind_metric,
    breakdown,
    rewards_by_task,
    score,
)


def rollouts(rewards: dict[str, list[float | None]]) -> dict[str, list[Rollout]]:
    """Rollouts of tasks; None is a rollout without a score."""
    return {
        task: [
            Rollout(
                task_id=task,
                sample_index=index,
                score=NoScore(reason="lost") if value is None else Score(value=value),
                usage=Usage(completion_tokens=10 * (index + 1)),
            )
            for index, value in enumerate(values)
        ]
        for task, values in rewards.items()
    }


def scores(rewards: dict[str, list[float | None]], clusters: dict[str, str] | None = None) -> Scores:
    made = rollouts(rewards)
    return Scores(rewards=rewards_by_task(made), rollouts=made, clusters=clusters or {})


def value(metric: BoundMetric, given: Scores, **options) -> MetricValue:
    values, failures = score([metric], given, **options)
    assert failures == []
    return values[metric.name]


# --- binding ----------------------------------------------------------------------------------------------------


def test_a_family_is_bound_with_its_k_under_the_name_that_was_asked_for(registry):
    metric = bind_metric("pass@3", registry=registry, num_samples=4, pass_threshold=0.5)
    assert (metric.name, metric.needs_samples, metric.direction) == ("pass@3", 3, "max")
    assert metric.plugin.pass_threshold == 0.5


def test_the_threshold_goes_only_to_a_metric_whose_config_names_it(registry):
    assert bind_metric("mean_reward", registry=registry, pass_threshold=0.5)
    own = bind_metric("pass@2", {"pass_threshold": 0.9}, registry=registry, pass_threshold=0.5)
    assert own.plugin.pass_threshold == 0.9


@pytest.mark.parametrize("k", [2, 5])
def test_more_samples_than_are_drawn_are_refused_with_the_fix(registry, k):
    with pytest.raises(
        ConfigError, match=f"pass@{k} needs {k} samples.*draws 1.*num_samples to at least {k}"
    ) as caught:
        bind_metric(f"pass@{k}", registry=registry, num_samples=1, path="$.metrics[0]")
    assert caught.value.problems[0].path == "$.metrics[0]"


def test_params_are_checked(registry):
    with pytest.raises(ConfigError, match="tresh"):
        bind_metric("pass@2", {"pass_tresh": 1}, registry=registry)
    with pytest.raises(PluginNotFoundError, match="mean_rewrd"):
        bind_metric("mean_rewrd", registry=registry)


class Median:
    """A user's metric: no mean over tasks, no direction."""

    name = "median"

    def compute(self, task_rewards):
        means = sorted(sum(r) / len(r) for r in task_rewards)
        return means[len(means) // 2]


def test_an_undeclared_direction_is_max_and_marked(registry):
    registry.register("metric", "median", Median)
    metric = bind_metric("median", registry=registry)
    assert (metric.direction, metric.declared) == ("max", False)
    assert bind_metric("mean_reward", registry=registry).declared


def test_a_direction_that_is_none_is_refused(registry):
    class Sideways(Median):
        direction = "sideways"

    registry.register("metric", "sideways", Sideways)
    with pytest.raises(PluginContractError, match="sideways"):
        bind_metric("sideways", registry=registry)


# --- computing --------------------------------------------------------------------------------------------------


def test_only_scored_rewards_count_and_a_task_without_any_is_left_out_and_counted(registry):
    metric = bind_metric("mean_reward", registry=registry)
    found = value(metric, scores({"a": [1.0, None], "b": [0.0, 0.5], "c": [None, None]}))
    assert found.value == 0.625
    assert (found.n, found.excluded) == (2, 1)


def test_tasks_with_too_few_scored_samples_are_left_out_of_pass_at_k(registry):
    metric = bind_metric("pass@2", registry=registry, num_samples=2)
    found = value(metric, scores({"a": [1.0, 0.0], "b": [0.0, None], "c": [0.0, 0.0]}))
    assert (found.value, found.n, found.excluded) == (0.5, 2, 1)


@pytest.mark.parametrize("rewards", [{}, {"a": [None]}, {"a": [1.0], "b": [0.0]}])
def test_nothing_to_compute_on_is_not_available_and_neither_zero_nor_one(registry, rewards):
    found = value(bind_metric("pass@2", registry=registry), scores(rewards))
    assert (found.value, found.low, found.high, found.method) == (None, None, None, "not available")
    assert found.excluded == len(rewards)


def test_a_mean_over_tasks_has_the_interval_of_a_mean(registry):
    metric = bind_metric("mean_reward", registry=registry)
    assert value(metric, scores({str(i): [float(i % 2)] for i in range(10)})).method == "wilson"
    assert value(metric, scores({str(i): [float(i % 2), 1.0] for i in range(10)})).method == "t"
    clusters = {str(i): str(i // 2) for i in range(10)}
    found = value(metric, scores({str(i): [i / 10] for i in range(10)}, clusters))
    assert found.method == "clustered t"
    assert found.low < found.value < found.high


def test_any_other_metric_is_resampled_with_a_seed(registry):
    class RootMean(Median):
        def compute(self, task_rewards):
            return (sum(sum(rewards) for rewards in task_rewards) / len(task_rewards)) ** 0.5

    registry.register("metric", "root_mean", RootMean)
    metric = bind_metric("root_mean", registry=registry)
    given = scores({str(i): [i / 30] for i in range(30)})
    first = value(metric, given, seed=1)
    assert first.method == "bootstrap"
    assert first.low < first.value < first.high
    assert value(metric, given, seed=1) == first
    assert value(metric, given, seed=2) != first


class Tokens:
    """Economics: computed from whole rollouts, less is better."""

    name = "tokens"
    direction = "min"

    def compute_rollouts(self, task_rollouts):
        every = [r for rollouts in task_rollouts.values() for r in rollouts]
        return sum(r.usage.completion_tokens for r in every) / len(every)


def test_a_metric_of_whole_rollouts_sees_those_without_a_score(registry):
    registry.register("metric", "tokens", Tokens)
    metric = bind_metric("tokens", registry=registry)
    found = value(metric, scores({"a": [None, None], "b": [1.0, 1.0]}))
    assert (found.value, found.direction, found.n, found.excluded) == (15.0, "min", 2, 0)
    assert metric.task_value([1.0]) is None


class MeanTokens(Tokens):
    """The same as a mean over tasks of a value of each; a task without any token can't be told."""

    value_range = (0.0, float("inf"))

    def task_value(self, rollouts):
        used = [r.usage.completion_tokens for r in rollouts]
        return sum(used) / len(used) if "unpriced" not in rollouts[0].task_id else float("nan")

    def compute_rollouts(self, task_rollouts):
        return sum(map(self.task_value, task_rollouts.values())) / len(task_rollouts)


def test_a_metric_of_rollouts_that_is_a_mean_over_tasks_has_the_interval_of_one(registry):
    registry.register("metric", "tokens", MeanTokens)
    metric = bind_metric("tokens", registry=registry)
    found = value(metric, scores({"a": [None], "b": [1.0, 1.0], "c": [1.0, None, 0.0]}))
    assert (found.value, found.n, found.method) == (15.0, 3, "t")
    assert (found.low, found.high) == (
        pytest.approx(15 - 4.302653 * 5 / 3**0.5),
        pytest.approx(15 + 4.302653 * 5 / 3**0.5),
    )
    few = value(metric, scores({"a": [None], "b": [1.0] * 9}))
    assert few.low == 0.0


def test_a_task_that_a_metric_of_rollouts_cannot_tell_is_left_out_and_counted(registry):
    registry.register("metric", "tokens", MeanTokens)
    metric = bind_metric("tokens", registry=registry)
    found = value(metric, scores({"a": [1.0], "unpriced": [1.0]}))
    assert (found.value, found.n, found.excluded) == (10.0, 1, 1)
    nothing = value(metric, scores({"unpriced": [1.0]}))
    assert (nothing.value, nothing.method, nothing.excluded) == (None, "not available", 1)


def clustered(rewards, **options):
    return Scores(
        rewards=rewards,
        rollouts=rollouts(rewards),
        clusters={task: task[0] for task in rewards},
        **options,
    )


HIGH = {f"{c}{i}": [1.0, float(c != "a" or i > 0)] for c in "abcde" for i in range(5)}


@pytest.mark.parametrize(
    ("declared", "reward_range", "high"),
    [
        (None, None, None),
        ((0.0, 1.0), None, 1.0),
        ("rewards", None, 1.0),  # all rewards are 0 or 1
        ("rewards", (0.0, 1.0), 1.0),
        ("rewards", (0.0, 5.0), None),
    ],
)
def test_an_interval_keeps_to_what_metric_and_verifiers_declare(registry, declared, reward_range, high):
    class Ranged(registry.get("metric", "mean_reward")):
        value_range = declared

    registry.register("metric", "ranged", Ranged)
    found = value(bind_metric("ranged", registry=registry), clustered(HIGH, reward_range=reward_range))
    assert found.method == ("clustered t" if declared is None else "clustered score")
    assert found.high <= high if high is not None else found.high > 1.0


@pytest.mark.parametrize("declared", ["reward", (1.0, 0.0), (0.0,), 3.0, ("a", "b")])
def test_a_range_that_is_none_is_refused(registry, declared):
    class Odd(Median):
        value_range = declared

    registry.register("metric", "odd", Odd)
    with pytest.raises(PluginContractError, match="value_range"):
        bind_metric("odd", registry=registry)


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ("raise", "ZeroDivisionError: by zero"),
        (float("nan"), "it gave nan"),
        (float("inf"), "it gave inf"),
        ("text", "it returned str"),
        ("0.5", "it returned str"),
        (None, "it returned NoneType"),
    ],
)
def test_a_failing_metric_has_no_value_but_a_reason_and_the_others_are_computed(registry, said, reason):
    class Broken:
        name = "broken"
        direction = "min"

        def compute(self, task_rewards):
            if said == "raise":
                raise ZeroDivisionError("by zero")
            return said

    registry.register("metric", "broken", Broken)
    metrics = [bind_metric(name, registry=registry) for name in ("broken", "mean_reward")]
    values, [failure] = score(metrics, scores({"a": [1.0], "b": [0.0]}))
    assert values["broken"] == MetricValue(
        value=None, direction="min", method="failed", reason=values["broken"].reason
    )
    assert reason in values["broken"].reason
    assert values["mean_reward"].value == 0.5
    assert failure.boundary == "evaluation"
    assert "'broken' failed" in str(failure)


def test_what_a_metric_returned_instead_of_a_number_is_named(registry):
    class Listed:
        def compute(self, task_rewards):
            return [1.0]

    class Late:
        async def compute(self, task_rewards):
            return 1.0

    for name, plugin in (("listed", Listed), ("late", Late)):
        registry.register("metric", name, plugin)
    metrics = [bind_metric(name, registry=registry) for name in ("listed", "late")]
    _values, failures = score(metrics, scores({"a": [1.0]}))
    assert "it returned list, not a number" in str(failures[0])
    assert "define it with a plain `def`" in str(failures[1])


@settings(max_examples=25)
@given(
    st.dictionaries(
        st.text(max_size=3),
        st.lists(st.none() | st.sampled_from([0.0, 0.25, 1.0]), min_size=2, max_size=4),
        min_size=1,
        max_size=8,
    ),
    st.data(),
)
def test_the_order_in_which_rollouts_finished_changes_nothing(rewards, data):
    registry = Registry(entry_points=())
    registry.register("metric", "median", Median)
    metrics = [bind_metric("median", registry=registry)]
    made = rollouts(rewards)
    order = data.draw(st.permutations(list(made)))
    shuffled = {task: data.draw(st.permutations(made[task])) for task in order}
    assert rewards_by_task(shuffled) == rewards_by_task(made)
    first = score(metrics, Scores(rewards=rewards_by_task(made), rollouts=made))
    second = score(metrics, Scores(rewards=rewards_by_task(shuffled), rollouts=shuffled))
    assert first == second


def test_one_task_alone_has_a_value_where_its_samples_suffice(registry):
    registry.register("metric", "median", Median)
    assert bind_metric("mean_reward", registry=registry).task_value([1.0, 0.0]) == 0.5
    assert bind_metric("pass@2", registry=registry).task_value([1.0]) is None
    assert bind_metric("pass@2", registry=registry).task_value([0.0, 1.0]) == 1.0
    assert bind_metric("median", registry=registry).task_value([0.25]) == 0.25


def test_parts_are_scored_by_label(registry):
    metrics = [bind_metric("mean_reward", registry=registry)]
    given = scores({"a": [1.0], "b": [0.0], "c": [1.0], "d": [None]})
    parts = breakdown(metrics, given, {"topic": {"a": "x", "b": "x", "c": "y", "d": "y"}})
    assert {
        label: (m["mean_reward"].value, m["mean_reward"].n, m["mean_reward"].excluded)
        for label, m in parts["topic"].items()
    } == {
        "x": (0.5, 2, 0),
        "y": (1.0, 1, 1),
    }


def test_a_config_of_any_make_may_name_the_threshold(registry):
    from dataclasses import dataclass

    class Base:
        name = "m"

        def __init__(self, pass_threshold):
            self.pass_threshold = pass_threshold

        def compute(self, task_rewards):
            return 0.0

    @dataclass
    class Plain:
        pass_threshold: float = 1.0

    @attrs.define
    class Attrs:
        pass_threshold: float = 1.0

    for name, config in (("plain", Plain), ("attrs", Attrs)):
        registry.register("metric", name, type(name, (Base,), {"Config": config, "__module__": __name__}))
        assert bind_metric(name, registry=registry, pass_threshold=0.25).plugin.pass_threshold == 0.25


def test_a_metric_receives_lists_of_rewards_of_its_own(registry):
    class Sorting:
        direction = "max"

        def compute(self, task_rewards):
            assert type(task_rewards) is list
            for rewards in task_rewards:
                assert type(rewards) is list
                rewards.sort()
            return task_rewards[0][0]

    registry.register("metric", "sorting", Sorting)
    given = scores({"a": [1.0, 0.0], "b": [0.5, 0.25]})
    assert value(bind_metric("sorting", registry=registry), given).value == 0.0
    assert given.rewards == {"a": (1.0, 0.0), "b": (0.5, 0.25)}


def test_a_metric_of_several_tasks_has_no_value_of_one_task(registry):
    class Slope:
        direction = "max"

        def compute(self, task_rewards):
            first, second, *_ = task_rewards
            return second[0] - first[0]

    registry.register("metric", "slope", Slope)
    metric = bind_metric("slope", registry=registry)
    assert value(metric, scores({"a": [0.0], "b": [1.0]})).value == 1.0
    assert metric.task_value([1.0]) is None
