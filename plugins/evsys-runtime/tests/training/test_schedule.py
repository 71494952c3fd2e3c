"""Learning rates over a run, and the rule for their height."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evsys_runtime.training.schedule import learning_rate_at, recommended_learning_rate


def test_linear_falls_evenly_from_the_peak_towards_zero_after_the_last_step():
    assert [learning_rate_at(i, 4, 1.0) for i in range(4)] == [1.0, 0.75, 0.5, 0.25]


def test_constant_stays_and_cosine_falls_along_half_a_wave():
    assert {learning_rate_at(i, 9, 0.3, "constant") for i in range(9)} == {0.3}
    assert learning_rate_at(0, 10, 1.0, "cosine") == 1.0
    assert learning_rate_at(5, 10, 1.0, "cosine") == pytest.approx(0.5)


def test_warmup_rises_evenly_to_the_peak():
    rates = [learning_rate_at(i, 10, 1.0, "linear", 4) for i in range(6)]
    assert rates == pytest.approx([0.25, 0.5, 0.75, 1.0, 1.0, 5 / 6])


@given(
    total=st.integers(1, 300),
    warmup=st.integers(0, 400),
    kind=st.sampled_from(["linear", "cosine", "constant"]),
)
def test_the_rate_never_leaves_the_range_from_zero_to_the_peak(total, warmup, kind):
    rates = [learning_rate_at(i, total, 2.0, kind, warmup) for i in range(total)]
    assert all(0 < rate <= 2.0 for rate in rates)
    after = rates[warmup:]
    assert after == sorted(after, reverse=True)


def test_an_unknown_schedule_is_refused():
    with pytest.raises(ValueError, match="linear, constant or cosine"):
        learning_rate_at(0, 1, 1.0, "step")


@pytest.mark.parametrize(
    ("model", "rate"),
    [
        ("evsys/tiny", 4.3e-3),
        ("smollm2-135m", 1.3e-3),
        ("meta-llama/Llama-3.1-8B", 2.9e-4),
        ("Qwen/Qwen3-8B", 4.7e-4),
    ],
)
def test_the_rule_by_family_and_width(model, rate):
    assert recommended_learning_rate(model) == pytest.approx(rate)


def test_short_runs_get_half_as_much_again_and_full_fine_tuning_a_tenth():
    long, short, full = (
        recommended_learning_rate("Qwen/Qwen3-8B", **options)
        for options in ({}, {"steps": 50}, {"lora": False})
    )
    assert short == pytest.approx(1.5 * long, rel=0.02)
    assert full == pytest.approx(long / 10, rel=0.02)


@pytest.mark.parametrize("model", ["somebody/model-7b", "notllama-3.2-1bx", "evsys/tiny-two", ""])
def test_there_is_no_guess_for_unknown_models(model):
    assert recommended_learning_rate(model) is None
