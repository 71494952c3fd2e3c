import inspect
import json
from pathlib import Path

import attrs
import numpy as np
import pytest

from evsys import structure, types, unstructure
from evsys.types import (
    ArmResult,
    Datum,
    EvaluationResult,
    Failure,
    MetricValue,
    ModelSpec,
    Rollout,
    RunContext,
    RunResult,
    StopFlag,
    TrainingBatch,
    Usage,
)

VALUES = [cls for _, cls in inspect.getmembers(types, inspect.isclass) if attrs.has(cls)]
MUTABLE = {TrainingBatch, StopFlag}


@pytest.mark.parametrize("cls", VALUES, ids=lambda cls: cls.__name__)
def test_values_are_keyword_only_slotted_and_frozen_but_for_those_that_are_amended(cls):
    assert all(field.kw_only for field in attrs.fields(cls))
    assert "__slots__" in vars(cls)
    frozen = cls.__setattr__ is not object.__setattr__
    assert frozen is (cls not in MUTABLE)


def datum(**inputs: np.ndarray) -> Datum:
    return Datum(tokens=np.arange(4), loss_inputs=inputs)


def test_loss_inputs_are_aligned_to_the_tokens():
    made = datum(target_tokens=np.zeros((4, 3)), weights=np.ones(4))
    assert made.loss_inputs["target_tokens"].shape == (4, 3)
    assert datum().loss_inputs == {}


@pytest.mark.parametrize("shape", [(3,), (5,), (3, 4), (4, 2, 2), ()])
def test_a_loss_input_of_another_shape_is_refused_by_name(shape):
    with pytest.raises(ValueError, match=r"loss input 'weights' has shape .*, expected \[4\] or \[4, K\]"):
        datum(weights=np.ones(shape))


def test_a_batch_may_be_amended():
    batch = TrainingBatch(data=[])
    batch.loss_fn = sum
    assert batch.loss_fn is sum


def test_usage_adds_up_and_keeps_an_unknown_price_unknown():
    known, unknown = Usage(prompt_tokens=1, seconds=0.5, cost_usd=0.1), Usage(completion_tokens=2)
    together = Usage(prompt_tokens=1, completion_tokens=2, seconds=0.5, cost_usd=0.1, unpriced=1)
    assert known + unknown == unknown + known == together
    assert (together + unknown + Usage(cost_usd=None, unpriced=3)).unpriced == 5
    assert (unknown + unknown) == Usage(completion_tokens=4, unpriced=2)
    assert known + known == Usage(prompt_tokens=2, seconds=1.0, cost_usd=0.2)
    assert Usage() + known == known


def test_tokens_without_a_price_are_of_unknown_cost_and_nothing_is_not():
    assert Usage(trained_tokens=1).without_price == 1
    assert Usage(prompt_tokens=1, unpriced=4).without_price == 4
    assert Usage(seconds=1.0).without_price == Usage(prompt_tokens=1, cost_usd=0.0).without_price == 0


class Nothing:
    """Stands for whatever the runtime would give."""


def context(**changes) -> RunContext:
    given = {
        "run_id": "a-s0",
        "arm": "a",
        "repeat": 0,
        "attempt": 1,
        "run_dir": Path("runs/a-s0"),
        "config": {},
        "model": ModelSpec(name="evsys/tiny"),
        "seeds": lambda purpose, index=0: 7,
        "data": [],
        **dict.fromkeys(("clients", "record", "checkpoints", "hooks", "log"), Nothing()),
    }
    return RunContext(**given | changes)


def test_a_run_context_can_be_built_with_core_alone():
    ctx = context()
    assert ctx.seeds("data", 3) == 7
    assert ctx.evaluate is None
    ctx.heartbeat()
    ctx.warn("odd")
    assert ctx.stop_requested is None


def test_the_first_reason_to_stop_is_kept_and_each_run_has_its_own():
    ctx, other = context(), context()
    ctx.request_stop("loss is nan")
    ctx.request_stop("too late")
    assert ctx.stop_requested == "loss is nan"
    assert other.stop_requested is None


def test_results_survive_a_record_of_json():
    result = ArmResult(
        run_id="a-s0",
        arm="a",
        repeat=0,
        seed=1,
        status="failed",
        identity="sha256:0",
        run=RunResult(status="failed", steps=3, metrics={"loss": 1.0}),
        evaluations=(
            EvaluationResult(
                benchmark="b",
                split="val",
                step=0,
                status="completed",
                metrics={"pass@1": MetricValue(value=None)},
                breakdown={"topic": {"x": {"pass@1": MetricValue(value=0.5, n=2)}}},
            ),
        ),
        failure=Failure(boundary="backend", message="no", error_type="OSError"),
    )
    assert structure(ArmResult, json.loads(json.dumps(unstructure(result)))) == result


@pytest.mark.parametrize("score", [types.Score(value=1.0), types.NoScore(reason="crashed")])
def test_rollouts_survive_a_record_of_json_whatever_their_score(score):
    rollout = Rollout(
        task_id="t",
        sample_index=0,
        messages=(types.Message(role="user", content="hi"),),
        turns=(types.Turn(message=types.Message(role="assistant"), tokens=(1, 2), logprobs=(-0.5, -1.0)),),
        score=score,
    )
    assert structure(Rollout, json.loads(json.dumps(unstructure(rollout)))) == rollout
