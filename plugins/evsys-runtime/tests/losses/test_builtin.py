"""The built-in losses against their formulas and against finite differences in float64."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evsys.types import Datum
from evsys_runtime.losses import BUILTIN_LOSSES
from evsys_runtime.losses.builtin import cispo, cross_entropy, dro, gspo, importance_sampling, ppo

SHAPES = st.lists(
    st.one_of(st.tuples(st.integers(1, 7)), st.tuples(st.integers(1, 5), st.integers(1, 4))),
    min_size=1,
    max_size=4,
)


def batch(rng, shapes, *, spread=0.5):
    """Random data with every loss input, and logprobs near the sampler's."""
    data, logprobs = [], []
    for shape in shapes:
        sampled = -rng.uniform(0.05, 3.0, shape)
        data.append(
            Datum(
                tokens=np.arange(shape[0]),
                loss_inputs={
                    "target_tokens": rng.integers(0, 50, shape),
                    "weights": rng.choice([0.0, 0.5, 1.0], shape),
                    "advantages": rng.normal(size=shape),
                    "logprobs": sampled,
                },
            )
        )
        logprobs.append(sampled + rng.normal(scale=spread, size=shape))
    return data, logprobs


def differences(loss, data, logprobs, eps=1e-6):
    """Central differences of the loss by every logprob."""
    grads = [np.zeros(array.shape) for array in logprobs]
    for i, array in enumerate(logprobs):
        for place in np.ndindex(array.shape):
            sides = []
            for sign in (1.0, -1.0):
                moved = [other.copy() for other in logprobs]
                moved[i][place] += sign * eps
                sides.append(loss(data, moved))
            grads[i][place] = (sides[0] - sides[1]) / (2 * eps)
    return grads


def away_from_kinks(logprobs, data, bounds=(0.8, 1.28), margin=1e-3):
    """Ratios at a clip bound have no derivative; move them off it."""
    for array, datum in zip(logprobs, data, strict=True):
        ratio = np.exp(array - datum.loss_inputs["logprobs"])
        for bound in bounds:
            array[np.abs(ratio - bound) < margin] += 0.01
    return logprobs


@pytest.mark.parametrize("name", ["cross_entropy", "importance_sampling", "ppo", "dro"])
@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), shapes=SHAPES)
def test_gradients_agree_with_finite_differences(name, seed, shapes):
    data, logprobs = batch(np.random.default_rng(seed), shapes)
    logprobs = away_from_kinks(logprobs, data)
    loss = BUILTIN_LOSSES[name]
    result = loss(data, logprobs)
    expected = differences(lambda d, lp: loss(d, lp).loss, data, logprobs)
    for gradient, reference in zip(result.grads, expected, strict=True):
        np.testing.assert_allclose(gradient, reference, rtol=1e-5, atol=1e-7)


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), shapes=SHAPES)
def test_cispo_holds_its_weight_constant_when_differentiated(seed, shapes):
    data, logprobs = batch(np.random.default_rng(seed), shapes)
    result = cispo(data, logprobs)
    held = [
        np.minimum(np.exp(lp - d.loss_inputs["logprobs"]), 1.28) for d, lp in zip(data, logprobs, strict=True)
    ]

    def with_constant_weight(d, lp):
        parts = [
            -np.sum(x.loss_inputs["weights"] * h * x.loss_inputs["advantages"] * y)
            for x, h, y in zip(d, held, lp, strict=True)
        ]
        return sum(parts)

    assert result.loss == pytest.approx(with_constant_weight(data, logprobs), abs=1e-12)
    for gradient, reference in zip(
        result.grads, differences(with_constant_weight, data, logprobs), strict=True
    ):
        np.testing.assert_allclose(gradient, reference, rtol=1e-5, atol=1e-7)


def datum(**inputs):
    arrays = {key: np.asarray(value) for key, value in inputs.items()}
    n = len(next(iter(arrays.values())))
    return Datum(tokens=np.arange(n), loss_inputs={"target_tokens": np.zeros(n, int), **arrays})


def test_cross_entropy_is_a_weighted_sum_and_not_a_mean():
    result = cross_entropy([datum(weights=[0.0, 2.0, 1.0])], [np.array([-9.0, -1.0, -3.0])])
    assert result.loss == 5.0
    np.testing.assert_array_equal(result.grads[0], [0.0, -2.0, -1.0])


def test_a_masked_position_contributes_nothing_even_if_its_logprob_is_minus_infinity():
    inputs = {"weights": [0.0, 1.0], "advantages": [1.0, 1.0], "logprobs": [np.nan, -1.0]}
    for name, loss in BUILTIN_LOSSES.items():
        result = loss([datum(**inputs)], [np.array([-np.inf, -1.0])])
        assert np.isfinite(result.loss), name
        assert result.grads[0][0] == 0.0, name
        assert np.isfinite(result.grads[0]).all(), name


def test_importance_sampling_without_lag_has_the_gradient_of_reinforce():
    lp = np.array([-1.0, -2.0])
    result = importance_sampling([datum(advantages=[0.5, -2.0], logprobs=lp)], [lp])
    np.testing.assert_allclose(result.grads[0], [-0.5, 2.0])
    assert result.metrics["ratio_mean"] == 1.0
    assert result.metrics["kl_k1"] == result.metrics["kl_k3"] == 0.0
    assert result.metrics["clipped_share"] == 0.0


@pytest.mark.parametrize(
    ("ratio", "advantage", "value", "gradient"),
    [
        (1.5, 1.0, 1.28, 0.0),  # too far up for a good token: no further push
        (1.5, -1.0, -1.5, -1.5),  # too far up for a bad token: pushed down
        (0.5, 1.0, 0.5, 0.5),  # too far down for a good token: pushed up
        (0.5, -1.0, -0.8, 0.0),  # too far down for a bad token: no further push
        (1.1, 1.0, 1.1, 1.1),
    ],
)
def test_ppo_clips_on_the_side_that_would_move_further_away(ratio, advantage, value, gradient):
    lp = np.array([np.log(ratio) - 2.0])
    result = ppo([datum(advantages=[advantage], logprobs=[-2.0])], [lp])
    assert result.loss == pytest.approx(-value)
    assert result.grads[0][0] == pytest.approx(-gradient)
    assert result.metrics["clipped_share"] == (1.0 if gradient == 0.0 else 0.0)


def test_dual_clip_bounds_the_loss_of_a_bad_token_whose_ratio_exploded():
    data, lp = [datum(advantages=[-1.0], logprobs=[-2.0])], [np.array([np.log(20.0) - 2.0])]
    assert ppo(data, lp).loss == pytest.approx(20.0)
    bounded = ppo(data, lp, dual_clip=3.0)
    assert bounded.loss == pytest.approx(3.0)
    assert bounded.grads[0][0] == 0.0


def test_cispo_caps_the_weight_and_keeps_the_gradient():
    result = cispo([datum(advantages=[1.0], logprobs=[-2.0])], [np.array([np.log(5.0) - 2.0])])
    assert result.grads[0][0] == pytest.approx(-1.28)
    low = cispo([datum(advantages=[1.0], logprobs=[-2.0])], [np.array([np.log(0.1) - 2.0])])
    assert low.grads[0][0] == pytest.approx(-0.1)
    floored = cispo([datum(advantages=[1.0], logprobs=[-2.0])], [np.array([np.log(0.1) - 2.0])], clip_low=0.2)
    assert floored.grads[0][0] == pytest.approx(-0.8)


def test_dro_pulls_back_to_the_sampler_where_there_is_no_advantage():
    result = dro([datum(advantages=[0.0], logprobs=[-2.0])], [np.array([-1.0])], beta=0.5)
    assert result.loss == pytest.approx(0.25)
    assert result.grads[0][0] == pytest.approx(0.5)


def test_one_weight_a_position_holds_for_all_its_targets():
    one = datum(weights=[0.5, 1.0])
    result = cross_entropy([one], [np.full((2, 3), -1.0)])
    assert result.loss == pytest.approx(4.5)
    assert result.grads[0].shape == (2, 3)


def test_gradients_have_the_type_of_the_logprobs():
    data, logprobs = batch(np.random.default_rng(0), [(4,), (3, 2)])
    for loss in BUILTIN_LOSSES.values():
        result = loss(data, [array.astype(np.float32) for array in logprobs])
        assert [gradient.dtype for gradient in result.grads] == [np.float32, np.float32]


@pytest.mark.parametrize("name", BUILTIN_LOSSES)
def test_a_missing_loss_input_is_named_with_what_is_there(name):
    with pytest.raises(ValueError, match=rf"{name} needs the loss input .* this datum has target_tokens"):
        BUILTIN_LOSSES[name]([datum(target_tokens=[0, 0])], [np.zeros(2)])


@pytest.mark.parametrize(
    ("loss", "params"),
    [(ppo, {"clip_low": 1.5}), (ppo, {"clip_high": -0.1}), (ppo, {"dual_clip": 0.5}), (cispo, {"clip_low": -1.0}),
     (dro, {"beta": float("nan")})],
)  # fmt: skip
def test_unusable_settings_are_refused(loss, params):
    with pytest.raises(ValueError, match="must be"):
        loss([], [], **params)


@pytest.mark.parametrize("name", BUILTIN_LOSSES)
def test_the_schema_of_a_loss_and_its_keywords_agree(name):
    import inspect

    import attrs

    function = BUILTIN_LOSSES[name]
    keywords = {
        key: parameter.default
        for key, parameter in inspect.signature(function).parameters.items()
        if parameter.kind is parameter.KEYWORD_ONLY
    }
    config = getattr(function, "Config", None)
    assert keywords == ({} if config is None else attrs.asdict(config()))


def gspo_reference(data, logprobs, low, high):
    """The loss and its gradient, written out position by position."""
    total, grads = 0.0, []
    for datum, own in zip(data, logprobs, strict=True):
        weights, advantages = datum.loss_inputs["weights"], datum.loss_inputs["advantages"]
        places = [place for place in np.ndindex(own.shape) if weights[place] != 0]
        gradient = np.zeros(own.shape)
        grads.append(gradient)
        if not places:
            continue
        s = np.exp(np.mean([own[p] - datum.loss_inputs["logprobs"][p] for p in places]))
        pull = 0.0
        for p in places:
            free, held = s * advantages[p], min(max(s, 1 - low), 1 + high) * advantages[p]
            total -= weights[p] * min(free, held)
            pull -= weights[p] * advantages[p] * s * (free <= held)
        for p in places:
            gradient[p] = pull / len(places)
    return total, grads


@settings(max_examples=50, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), shapes=SHAPES, spread=st.sampled_from([0.0, 1e-4, 0.3]))
def test_gspo_clips_the_geometric_mean_of_a_sequences_ratios(seed, shapes, spread):
    data, logprobs = batch(np.random.default_rng(seed), shapes, spread=spread)
    result = gspo(data, logprobs)
    total, grads = gspo_reference(data, logprobs, 3e-4, 4e-4)
    assert result.loss == pytest.approx(total, rel=1e-9, abs=1e-12)
    for gradient, reference in zip(result.grads, grads, strict=True):
        np.testing.assert_allclose(gradient, reference, rtol=1e-9, atol=1e-12)


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), shapes=SHAPES)
def test_the_gradient_of_gspo_agrees_with_finite_differences(seed, shapes):
    data, logprobs = batch(np.random.default_rng(seed), shapes)
    wide = {"clip_low": 0.9, "clip_high": 50.0}  # no kink near these ratios
    result = gspo(data, logprobs, **wide)
    expected = differences(lambda d, lp: gspo(d, lp, **wide).loss, data, logprobs)
    for gradient, reference in zip(result.grads, expected, strict=True):
        np.testing.assert_allclose(gradient, reference, rtol=1e-5, atol=1e-7)


def test_gspo_without_weights_takes_the_tokens_that_have_an_advantage():
    sampled, own = np.array([-9.0, -1.0, -2.0]), np.array([-1.0, -1.1, -1.8])
    inputs = {"target_tokens": np.arange(3), "logprobs": sampled, "advantages": np.array([0.0, 0.5, 0.5])}
    result = gspo([Datum(tokens=np.arange(3), loss_inputs=inputs)], [own], clip_low=1.0, clip_high=9.0)
    assert result.loss == pytest.approx(-np.exp(0.05))
    np.testing.assert_allclose(result.grads[0], [0.0, -np.exp(0.05) / 2, -np.exp(0.05) / 2])
