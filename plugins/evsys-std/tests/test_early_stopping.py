"""`early_stopping`: when a run is asked to stop, and what the reason says."""

import asyncio
import json
from pathlib import Path
from types import SimpleNamespace

import pytest
from small_project import METADATA, RUN, Project

from evsys import Registry
from evsys.errors import ConfigError, RunError
from evsys.types import EvaluationResult, MetricValue, StopFlag
from evsys_std.early_stopping import EarlyStopping


class Context(SimpleNamespace):
    """As much of a run as the callback looks at."""

    def __init__(self, **given):
        super().__init__(
            **{
                "attempt": 1,
                "deterministic": False,
                "evaluate": None,
                "record": None,
                "stop": StopFlag(),
                "heartbeat": lambda: None,
                **given,
            }
        )

    @property
    def stop_requested(self):
        return self.stop.reason

    def request_stop(self, reason):
        self.stop.set(reason)


def score(step, value, *, benchmark="val", split="val", direction="max", **more):
    metrics = {"mean_reward": MetricValue(value=value, direction=direction)}
    status = "completed" if more.get("status") is None else more.pop("status")
    return EvaluationResult(
        benchmark=benchmark, split=split, step=step, status=status, metrics=metrics, **more
    )


def train(callback, ctx, losses, first=1):
    async def steps():
        for step, loss in enumerate(losses, first):
            await callback.evsys_step_finished(ctx, step, {"loss": loss})
            if ctx.stop_requested:
                return step
        return None

    return asyncio.run(steps())


def test_a_loss_that_no_longer_falls_ends_the_run():
    ctx = Context()
    assert train(EarlyStopping(monitor="loss", patience=2), ctx, [3.0, 2.0, 2.5, 1.5, 1.5, 1.75, 1.0]) == 6
    assert ctx.stop_requested == (
        "early_stopping: loss has not fallen for 2 steps since 1.5 at step 4; it is 1.75 at step 6"
    )


def test_a_change_below_min_delta_is_no_improvement():
    ctx = Context()
    callback = EarlyStopping(monitor="loss", patience=2, min_delta=0.1)
    assert train(callback, ctx, [1.0, 0.95, 0.91, 0.85]) == 3
    assert "not fallen by more than 0.1 for 2 steps since 1 at step 1" in ctx.stop_requested
    assert (
        train(EarlyStopping(monitor="loss", patience=2, min_delta=0.1), Context(), [1.0, 0.95, 0.85]) is None
    )


def test_a_value_that_is_no_number_is_no_improvement():
    assert train(EarlyStopping(monitor="loss", patience=2), Context(), [1.0, float("nan"), float("nan")]) == 3
    assert train(EarlyStopping(monitor="loss", patience=2), Context(), [float("nan"), 1.0, 0.5]) is None


def test_the_direction_of_a_score_is_that_of_its_metric_unless_it_is_given():
    for direction, given, values, stops in [
        ("max", None, [0.5, 0.4, 0.3], True),
        ("max", None, [0.5, 0.6, 0.7], False),
        ("min", None, [0.5, 0.4, 0.3], False),
        ("max", "min", [0.5, 0.4, 0.3], False),
    ]:
        ctx = Context()
        callback = EarlyStopping(monitor="val.mean_reward", patience=2, direction=given)
        for step, value in enumerate(values):
            callback.evsys_evaluation_finished(ctx, score(step, value, direction=direction))
        assert (ctx.stop_requested is not None) == stops


def test_a_training_metric_whose_direction_is_not_known_needs_one():
    registry = Registry(entry_points=())
    registry.register("callback", "early_stopping", EarlyStopping)
    with pytest.raises(ConfigError, match="'kl' has no known direction; give max or min"):
        registry.build("callback", "early_stopping", {"monitor": "kl"})
    for params in ({"monitor": "kl", "direction": "min"}, {"monitor": "reward"}, {"monitor": "val.pass@1"}):
        registry.build("callback", "early_stopping", params)


def test_a_score_that_arrives_late_is_named_by_the_step_that_it_judges():
    ctx = Context()
    callback = EarlyStopping(monitor="val.mean_reward", patience=1)
    callback.evsys_evaluation_finished(ctx, score(0, 0.5))
    train(callback, ctx, [1.0] * 13)
    callback.evsys_evaluation_finished(ctx, score(10, 0.25))
    assert ctx.stop_requested == (
        "early_stopping: val.mean_reward has not risen for 1 scorings since 0.5 at step 0; "
        "it is 0.25 at step 10, known after step 13"
    )


def test_scores_that_overtake_each_other_are_judged_in_the_order_of_their_steps():
    ctx = Context()
    callback = EarlyStopping(monitor="val.mean_reward", patience=2)
    callback.evsys_evaluation_finished(ctx, score(0, 0.1))
    callback.evsys_evaluation_finished(ctx, score(20, 0.3))
    callback.evsys_evaluation_finished(ctx, score(10, 0.2))
    assert ctx.stop_requested is None, "they rise by step, although the last to arrive is lower"
    callback.evsys_evaluation_finished(ctx, score(40, 0.25))
    assert ctx.stop_requested is None
    callback.evsys_evaluation_finished(ctx, score(30, 0.1))
    assert "since 0.3 at step 20; it is 0.25 at step 40" in ctx.stop_requested


@pytest.mark.parametrize(
    "other",
    [
        score(5, 0.1, benchmark="other"),
        score(5, 0.1, model="gpt"),
        score(5, 0.1, status="invalid"),
        score(5, None),
    ],
    ids=["another benchmark", "an API model", "an invalid scoring", "no value"],
)
def test_what_is_no_score_of_the_monitored_metric_is_not_judged(other):
    ctx = Context()
    callback = EarlyStopping(monitor="val.mean_reward", patience=1)
    callback.evsys_evaluation_finished(ctx, score(0, 0.5))
    callback.evsys_evaluation_finished(ctx, other)
    assert ctx.stop_requested is None


def test_nothing_is_chosen_by_a_test_entry():
    ctx = Context()
    callback = EarlyStopping(monitor="val.mean_reward", patience=1)
    with pytest.raises(RunError, match="scored on a `test` entry"):
        callback.evsys_evaluation_finished(ctx, score(0, 0.5, split="test"))
    for step in (5, 10):
        callback.evsys_evaluation_finished(ctx, score(step, 0.25, split="test"))
    train(callback, ctx, [1.0])
    assert ctx.stop_requested is None


def test_each_object_keeps_its_own_state():
    first, second = EarlyStopping(monitor="loss", patience=1), EarlyStopping(monitor="loss", patience=1)
    train(first, Context(), [1.0])
    assert train(second, Context(), [2.0, 1.5]) is None


def test_a_resumed_attempt_goes_on_from_what_the_earlier_one_had_come_to():
    record = SimpleNamespace(
        read_metrics=lambda phase: iter([{"step": s, "values": {"loss": v}} for s, v in [(1, 1.0), (2, 1.5)]])
    )
    ctx = Context(attempt=2, record=record)
    callback = EarlyStopping(monitor="loss", patience=2)
    callback.evsys_run_started(ctx)
    assert train(callback, ctx, [1.25], first=3) == 3
    assert "since 1 at step 1" in ctx.stop_requested

    ctx = Context(attempt=2, evaluate=SimpleNamespace(results=[score(0, 0.5), score(5, 0.25)], pending=[]))
    callback = EarlyStopping(monitor="val.mean_reward", patience=2)
    callback.evsys_run_started(ctx)
    callback.evsys_evaluation_finished(ctx, score(10, 0.5))
    assert "since 0.5 at step 0" in ctx.stop_requested


def test_a_deterministic_run_waits_for_the_scores_of_the_steps_before():
    async def run():
        evaluate = SimpleNamespace(results=[], pending=[{"benchmark": "val", "step": 5}])
        ctx = Context(deterministic=True, evaluate=evaluate)
        callback = EarlyStopping(monitor="val.mean_reward", patience=1)
        callback.evsys_evaluation_finished(ctx, score(0, 0.5))
        step = asyncio.create_task(callback.evsys_step_finished(ctx, 6, {"loss": 1.0}))
        for _ in range(5):
            await asyncio.sleep(0)
        assert not step.done()
        evaluate.pending = []
        callback.evsys_evaluation_finished(ctx, score(5, 0.25))
        assert ctx.stop_requested is None, "it is judged at a step, as in each rerun"
        await step
        return ctx.stop_requested

    assert "it is 0.25 at step 5, known after step 6" in asyncio.run(run())


def test_a_score_that_another_arm_had_made_is_judged_without_being_told(monkeypatch):
    monkeypatch.setattr("evsys_std.early_stopping._LOOK_SECONDS", 0.001)

    async def run():
        evaluate = SimpleNamespace(results=[], pending=[{"benchmark": "val", "step": 0}])
        ctx = Context(deterministic=True, evaluate=evaluate)
        callback = EarlyStopping(monitor="val.mean_reward", patience=1)
        callback.evsys_evaluation_finished(ctx, score(5, 0.25))
        step = asyncio.create_task(callback.evsys_step_finished(ctx, 6, {"loss": 1.0}))
        for _ in range(5):
            await asyncio.sleep(0)
        assert not step.done()
        evaluate.pending, evaluate.results = [], [score(0, 0.5)]
        await asyncio.wait_for(step, 10)
        return ctx.stop_requested

    assert "since 0.5 at step 0; it is 0.25 at step 5" in asyncio.run(run())


def finished(result="completed"):
    return SimpleNamespace(status=result)


def test_a_name_that_nothing_has_is_told_at_the_end_of_a_run_with_those_that_there_were():
    callback = EarlyStopping(monitor="val.mean_rewrad")
    callback.evsys_evaluation_finished(Context(), score(0, 0.5))
    train(callback, Context(), [1.0])
    with pytest.raises(RunError, match=r"never had a value.*there were loss, val\.mean_reward"):
        callback.evsys_run_finished(finished())
    callback.evsys_run_finished(finished("failed"))


STEADY = """
from evsys import register_verifier

@register_verifier("steady")
def steady(model_output, expected, params):
    return 0.5
"""


def test_each_run_of_an_experiment_ends_by_its_own_scores_and_says_why(tmp_path):
    project = Project(tmp_path)
    project.code("plugins", STEADY)
    project.tasks([(f"t{i:02d}", "say a", "a") for i in range(12)], verifier="steady")
    metadata = METADATA.replace("max_tokens: 4", "max_tokens: 4\n    run_every: 2")
    callbacks = "callbacks: [{kind: early_stopping, params: {monitor: val.mean_reward, patience: 2}}]\n"
    text = f"run:{RUN}".replace("steps: 6", "steps: 40")
    results = [
        project.experiment(text, metadata=metadata, extra=f"n_repeats: 2\n{callbacks}", no_cache=True).run()
        for _ in range(2)
    ]
    for result in results:
        assert [arm.status for arm in result.arms] == ["completed", "completed"]
        for arm in result.arms:
            # 0.5 untrained, at 2 and at 4; a deterministic run knows the last of these at its next step
            assert arm.run.steps == 5
            assert arm.run.stop_reason == (
                "early_stopping: val.mean_reward has not risen for 2 scorings since 0.5 at step 0; "
                "it is 0.5 at step 4, known after step 5"
            )
            recorded = json.loads((Path(arm.run_dir) / "run_result.json").read_text(encoding="utf-8"))
            assert recorded["run"]["stop_reason"] == arm.run.stop_reason
    assert results[0].arms[0].warnings == results[1].arms[0].warnings
