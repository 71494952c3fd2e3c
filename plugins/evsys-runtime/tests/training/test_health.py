"""Health checks: nothing pointless goes on quietly."""

import numpy as np
import pytest

from evsys.errors import AlgorithmError, DataError, PluginContractError
from evsys.types import Datum, ForwardResult, OptimResult, TrainingBatch
from evsys_runtime.training.health import (
    LossTrend,
    VanishedGradient,
    check_batch,
    check_result,
    check_rows,
    loss_positions,
    trained_share_warning,
)
from evsys_runtime.training.warning_counts import WarningCounts


def datum(n=3, **inputs):
    arrays = {name: np.asarray(value) for name, value in inputs.items()}
    return Datum(tokens=np.arange(n), loss_inputs={"target_tokens": np.arange(n), **arrays})


def test_positions_with_a_loss_are_counted_by_weights_then_advantages_then_all():
    assert loss_positions(datum(weights=[0.0, 1.0, 0.5], advantages=[1.0, 1.0, 1.0])) == 2
    assert loss_positions(datum(advantages=[0.0, -1.0, 0.0])) == 1
    assert loss_positions(datum(weights=np.array([[0, 0], [0, 1], [1, 1]]))) == 2
    assert loss_positions(datum()) == 3


def test_a_batch_without_a_trainable_token_is_an_error_that_names_its_rows():
    batch = TrainingBatch(data=[datum(weights=[0.0] * 3)] * 2, row_ids=("r1", "r2"))
    with pytest.raises(
        AlgorithmError, match=r"step 5 \(rows r1, r2\) has no trainable token: all 6 weights are 0"
    ):
        check_batch(batch, 4)


def test_a_batch_whose_advantages_are_all_zero_is_allowed_and_counts_nothing():
    assert check_batch(TrainingBatch(data=[datum(advantages=[0.0] * 3)], loss_fn="ppo"), 0) == 0


def test_a_good_batch_tells_how_many_positions_have_a_loss():
    assert check_batch(TrainingBatch(data=[datum(weights=[1.0, 0.0, 1.0])] * 2), 0) == 4


@pytest.mark.parametrize(
    ("batch", "error", "message"),
    [
        (None, PluginContractError, "returned NoneType"),
        (TrainingBatch(data=[]), AlgorithmError, "has no data"),
        (TrainingBatch(data=[datum()], loss_fn=3), PluginContractError, "loss_fn is a int"),
        (TrainingBatch(data=["x"]), PluginContractError, "item 0 of the batch is a str"),
        (
            TrainingBatch(data=[Datum(tokens=np.arange(2), loss_inputs={})]),
            PluginContractError,
            "no target_tokens",
        ),
        (
            TrainingBatch(data=[datum(weights=[1.0, np.nan, 1.0])]),
            AlgorithmError,
            "weights that aren't finite",
        ),
        (
            TrainingBatch(data=[datum(advantages=[1.0, np.inf, 1.0])]),
            AlgorithmError,
            "advantages that aren't finite",
        ),
    ],
)
def test_what_is_no_batch_is_refused(batch, error, message):
    with pytest.raises(error, match=message):
        check_batch(batch, 0)


@pytest.mark.parametrize(
    ("loss", "norm", "what"), [(float("nan"), 1.0, "loss"), (1.0, float("inf"), "gradient norm")]
)
def test_a_loss_or_gradient_that_is_not_finite_is_an_error_with_the_step(loss, norm, what):
    with pytest.raises(AlgorithmError, match=rf"the {what} of step 7 is (nan|inf).*lower the learning rate"):
        check_result(7, ForwardResult(logprobs=[], loss=loss), OptimResult(grad_norm=norm))


def test_what_a_backend_does_not_tell_is_not_checked():
    check_result(1, ForwardResult(logprobs=[]), OptimResult())


def test_too_few_rows_are_told_with_counts_and_what_to_do():
    check_rows(8, 8, {})
    with pytest.raises(
        DataError, match=r"5 rows \(of 12: 7 too long\) are fewer than one batch of 8; set .* at most 5"
    ):
        check_rows(5, 8, {"too long": 7})
    with pytest.raises(DataError, match="no row is left to train on: of 7 rows 7 too long"):
        check_rows(0, 8, {"too long": 7})
    with pytest.raises(DataError, match="there are no rows"):
        check_rows(0, 8, {})


def test_the_share_of_trained_tokens_is_watched_at_both_ends():
    assert trained_share_warning(30, 100) is None
    assert "covers everything" in trained_share_warning(0, 0) or "only 0" in trained_share_warning(0, 0)
    assert "cover everything" in trained_share_warning(100, 100)
    assert trained_share_warning(100, 100, everything_is_meant=True) is None
    assert "only 1 of 1000" in trained_share_warning(1, 1000)


def test_warnings_are_counted_and_go_on_after_a_resume():
    counts = WarningCounts()
    assert [counts.add("a"), counts.add("b"), counts.add("a")] == [True, True, False]
    resumed = WarningCounts()
    resumed.load(counts.counts())
    resumed.add("b")
    assert counts.lines() == ("a (2 times)", "b")
    assert resumed.lines() == ("a (2 times)", "b (2 times)")


@pytest.mark.parametrize(
    ("losses", "told"),
    [
        pytest.param([2.0, 1.0, 0.5, 0.3, 0.2, 0.1], False, id="falls"),
        pytest.param([2.0] * 9, False, id="stays"),
        pytest.param([2.0, 9.0, 9.0, 1.0, 9.0, 9.0, 9.0], False, id="one of the last is fine"),
        pytest.param([2.0, 9.0, 9.0, 9.0], False, id="too short to tell"),
        pytest.param([2.0, 9.0, 9.0, 9.0, 9.0, 9.0], True, id="rises"),
        pytest.param([0.001] + [0.05] * 9, False, id="close to nothing all along"),
        pytest.param([None] * 9, False, id="unknown"),
    ],
)
def test_a_loss_that_ends_well_above_its_beginning_is_told_of(losses, told):
    trend = LossTrend()
    for loss in losses:
        trend.add(loss)
    assert (trend.warning() is not None) == told


def test_a_trend_goes_on_after_a_resume():
    losses = [2.0, 1.0, 9.0, 9.0, 9.0, 9.0, 9.0]
    whole, first, second = LossTrend(), LossTrend(), LossTrend()
    for place, loss in enumerate(losses):
        whole.add(loss)
        (first if place < 4 else second).add(loss) if place != 4 else second.load(first.state())
        if place == 4:
            second.add(loss)
    assert second.warning() == whole.warning() is not None
    unknown = LossTrend()
    unknown.load(LossTrend().state())
    assert unknown.state() == []


@pytest.mark.parametrize(
    ("steps", "collapsed"),
    [
        ([(5.5, 0.0, 4)] * 5, True),
        ([(5.5, 0.0, 4)] * 4, False),
        ([(5.5, 0.0, 4)] * 4 + [(5.5, 1e-9, 4)] + [(5.5, 0.0, 4)] * 4, False),
        ([(5.5 + i, 0.0, 4) for i in range(9)], False),  # not flat
        ([(0.0, 0.0, 4)] * 9, False),  # learnt
        ([(5.5, None, 4)] * 9, False),  # the backend reports no norm
        ([(5.5, 0.0, 0)] * 9, False),  # batches without signal
        ([(5.5, 0.0, 4), (5.5, 0.0, 0)] * 5, True),
        ([(1.0, 2.0, 4)] * 3 + [(0.6931, 0.0, 4)] * 5, True),
    ],
)
def test_weights_are_dead_if_the_gradient_stays_0_at_one_loss(steps, collapsed):
    detector = VanishedGradient()
    for number, step in enumerate(steps):
        detector.add(TrainingBatch(data=[datum(weights=[1.0] * 3)]), *step)
        if number == 2:
            resumed = VanishedGradient()
            resumed.load(detector.state())
            detector = resumed
    assert (detector.reason is not None) is collapsed


def test_a_policy_loss_never_makes_weights_dead():
    detector = VanishedGradient()
    for _ in range(9):
        detector.add(TrainingBatch(data=[datum(advantages=[1.0] * 3)]), -1.0, 0.0, 3)
    assert detector.reason is None
