import math

import pytest

from evsys.types import NoScore, Rollout, Score, Usage
from evsys_verifiers_std.economics import CostPerTask, TimePerTask, TokensPerTask

METRICS = [CostPerTask(), TimePerTask(), TokensPerTask()]


def rollouts(**tasks):
    """Rollouts with these usages; every second one has no score."""
    return {
        name: [
            Rollout(
                task_id=name,
                sample_index=i,
                score=Score(value=1.0) if i % 2 == 0 else NoScore(reason="crashed"),
                usage=Usage(**usage),
            )
            for i, usage in enumerate(usages)
        ]
        for name, usages in tasks.items()
    }


def test_an_attempt_is_averaged_over_samples_and_then_over_tasks_crashed_ones_included():
    tasks = rollouts(
        a=[{"prompt_tokens": 10, "completion_tokens": 2, "seconds": 1.0, "cost_usd": 0.5}] * 3,
        b=[
            {"prompt_tokens": 10, "completion_tokens": 0, "seconds": 3.0, "cost_usd": 0.1},
            {"prompt_tokens": 10, "completion_tokens": 20, "seconds": 5.0, "cost_usd": 0.3},
        ],
    )
    assert CostPerTask().compute_rollouts(tasks) == pytest.approx((0.5 + 0.2) / 2)
    assert TimePerTask().compute_rollouts(tasks) == (1.0 + 4.0) / 2
    assert TokensPerTask().compute_rollouts(tasks) == (12 + 20) / 2


def test_a_task_whose_price_nobody_knows_has_none_and_never_costs_nothing():
    known, free = {"prompt_tokens": 1, "cost_usd": 0.2}, {"prompt_tokens": 1, "cost_usd": 0.0}
    unknown, unused = {"prompt_tokens": 1}, {}
    tasks = rollouts(a=[known, unused], b=[known, unknown], c=[free])
    metric = CostPerTask()
    assert metric.task_value(tasks["a"]) == 0.1
    assert math.isnan(metric.task_value(tasks["b"]))
    assert metric.task_value(tasks["c"]) == 0.0
    assert metric.compute_rollouts(tasks) == 0.05
    assert math.isnan(metric.compute_rollouts({"b": tasks["b"]}))


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
def test_less_is_better_below_nothing_there_is_nothing_and_no_task_gives_no_number(metric):
    assert (metric.direction, metric.value_range) == ("min", (0.0, math.inf))
    assert math.isnan(metric.compute_rollouts({}))
    assert math.isnan(metric.compute_rollouts({"a": []}))
