"""Corrections and penalties around a policy loss, on small cases worked out by hand and by finite differences."""

import numpy as np
import pytest

from evsys.errors import AlgorithmError
from evsys.types import Datum
from evsys_runtime.losses import compute_loss
from evsys_runtime.losses.policy import KL_ESTIMATORS, PolicyObjective, kl_terms

SAMPLED = np.array([-1.0, -1.0, -1.0, -1.0])
RATIOS = np.array([0.25, 1.0, 1.5, 4.0])
POLICY = SAMPLED + np.log(RATIOS)


def datum(**inputs):
    values = {
        "target_tokens": np.arange(4),
        "weights": np.full(4, 0.5),
        "logprobs": SAMPLED,
        "advantages": np.ones(4),
        "ref_logprobs": np.array([-0.5, -1.5, -1.0, -2.0]),
        **inputs,
    }
    return Datum(tokens=np.arange(4), loss_inputs=values)


def test_without_anything_it_is_the_inner_loss():
    plain = compute_loss("ppo", [datum()], [POLICY])
    around = compute_loss(PolicyObjective(loss="ppo"), [datum()], [POLICY])
    assert around.loss == plain.loss
    np.testing.assert_array_equal(around.grads[0], plain.grads[0])


def test_a_ratio_beyond_the_cap_counts_as_the_cap():
    found = compute_loss(PolicyObjective(loss="importance_sampling", ratio_cap=2.0), [datum()], [POLICY])
    np.testing.assert_allclose(found.grads[0], -0.5 * np.array([0.25, 1.0, 1.5, 2.0]))
    assert found.loss == pytest.approx(-0.5 * 4.75)
    assert (found.metrics["capped_share"], found.metrics["masked_share"]) == (0.25, 0.0)


def test_tokens_outside_of_the_bounds_have_no_loss():
    objective = PolicyObjective(loss="importance_sampling", token_bounds=(0.5, 2.0))
    found = compute_loss(objective, [datum()], [POLICY])
    np.testing.assert_allclose(found.grads[0], [0.0, -0.5, -0.75, 0.0])
    assert found.metrics["masked_share"] == 0.5


def test_sequences_whose_geometric_mean_is_outside_have_no_loss():
    objective = PolicyObjective(loss="importance_sampling", sequence_bounds=(0.99, 1.01))
    near = SAMPLED + np.array([0.3, -0.3, 0.001, 0.0])
    found = compute_loss(objective, [datum(), datum()], [POLICY, near])
    assert not found.grads[0].any()
    assert found.grads[1].all()
    assert found.metrics["masked_share"] == 0.5


def test_positions_without_weight_are_none_of_anybodys_business():
    masked = datum(weights=np.array([0.0, 0.5, 0.5, 0.0]), ref_logprobs=np.array([np.nan, -1.5, -1.0, -2.0]))
    policy = np.where([True, False, False, True], np.nan, POLICY)
    objective = PolicyObjective(
        loss="importance_sampling", token_bounds=(0.5, 2.0), sequence_bounds=(0.5, 2.0), kl_coef=0.1
    )
    found = compute_loss(objective, [masked], [policy])
    assert np.isfinite(found.loss)
    assert (found.grads[0][0], found.grads[0][3], found.metrics["masked_share"]) == (0.0, 0.0, 0.0)


@pytest.mark.parametrize("estimator", KL_ESTIMATORS)
def test_the_derivative_of_an_estimate_is_that_of_its_value(estimator):
    policy, reference = np.array([-1.0, -2.0, -0.1]), np.array([-1.5, -1.0, -0.1])
    _, slope = kl_terms(estimator, policy, reference)
    up, down = (kl_terms(estimator, policy + eps, reference)[0] for eps in (1e-6, -1e-6))
    np.testing.assert_allclose(slope, (up - down) / 2e-6, atol=1e-8)


def test_the_estimates_agree_in_the_mean_with_the_divergence():
    rng = np.random.default_rng(0)
    p, q = rng.dirichlet(np.ones(5)), rng.dirichlet(np.full(5, 20.0))
    p = 0.8 * q + 0.2 * p
    drawn = rng.choice(5, size=200_000, p=p)
    exact = float(np.sum(p * np.log(p / q)))
    for estimator, tolerance in (("k1", 0.05), ("k3", 0.05), ("k2", 0.3)):
        values, _ = kl_terms(estimator, np.log(p)[drawn], np.log(q)[drawn])
        assert values.mean() == pytest.approx(exact, rel=tolerance), estimator


@pytest.mark.parametrize("estimator", ["k2", "k3"])
def test_a_penalty_adds_its_gradient(estimator):
    objective = PolicyObjective(loss="ppo", kl_coef=0.3, kl_estimator=estimator)
    found = compute_loss(objective, [datum()], [POLICY])
    plain = compute_loss("ppo", [datum()], [POLICY])
    values, slopes = kl_terms(estimator, POLICY, datum().loss_inputs["ref_logprobs"])
    assert found.loss == pytest.approx(plain.loss + 0.3 * 0.5 * values.sum())
    np.testing.assert_allclose(found.grads[0], plain.grads[0] + 0.3 * 0.5 * slopes)
    assert found.metrics["kl_reference"] == pytest.approx(values.mean())


def test_a_callable_may_be_inside():
    def reinforce(data, logprobs):
        return -sum(
            np.sum(d.loss_inputs["weights"] * d.loss_inputs["advantages"] * lp)
            for d, lp in zip(data, logprobs, strict=True)
        )

    found = compute_loss(PolicyObjective(loss=reinforce, token_bounds=(0.5, 2.0)), [datum()], [POLICY])
    np.testing.assert_allclose(found.grads[0], [0.0, -0.5, -0.5, 0.0])


def test_an_inner_loss_that_fails_is_named():
    def broken(data, logprobs):
        raise ValueError("no such thing")

    with pytest.raises(AlgorithmError, match="'loss broken' failed: ValueError: no such thing"):
        compute_loss(PolicyObjective(loss=broken), [datum()], [POLICY])


def test_an_unknown_estimator_is_named():
    with pytest.raises(ValueError, match="no KL estimator 'k4'; choose one of k1, k2, k3"):
        kl_terms("k4", SAMPLED, SAMPLED)
