"""Preference losses against their formulas, written out pair by pair, and their gradients against differences."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evsys.types import Datum
from evsys_algo_dpo import preference_loss

KINDS = ("dpo", "ipo", "simpo")


def sigmoid(x):
    return 1.0 / (1.0 + math.exp(-x))


def batch(rng, lengths, *, split=False):
    """Pairs of answers with some prompt positions of weight 0; `split` cuts each side into two datums."""
    data = []
    for pair, sides in enumerate(lengths):
        for side, length in enumerate(sides):
            for part in range(1 + split):
                n = length + 2
                weights = np.array([0.0, 0.0] + [1.0] * length, dtype=np.float32)
                data.append(
                    Datum(
                        tokens=np.arange(n),
                        loss_inputs={
                            "target_tokens": np.arange(n),
                            "weights": weights,
                        },
                        meta={"pair": pair, "side": side, "part": part, "ref_logprob": rng.normal(-1, 0.5)},
                    )
                )
    return data


def expected(data, logprobs, kind, beta, smoothing, gamma, normalised):
    """The mean over pairs, straight from the papers."""
    losses = []
    for pair in sorted({datum.meta["pair"] for datum in data}):
        score = {}
        for side in (0, 1):
            total = count = 0.0
            for datum, lp in zip(data, logprobs, strict=True):
                if (datum.meta["pair"], datum.meta["side"]) != (pair, side):
                    continue
                total -= 0.0 if kind == "simpo" else datum.meta["ref_logprob"]
                for i, weight in enumerate(datum.loss_inputs["weights"]):
                    if weight:
                        total += lp[i]
                        count += 1
            score[side] = total / count if normalised else total
        h = score[0] - score[1]
        if kind == "dpo":
            losses.append(
                -(1 - smoothing) * math.log(sigmoid(beta * h)) - smoothing * math.log(sigmoid(-beta * h))
            )
        elif kind == "ipo":
            losses.append((h - 1 / (2 * beta)) ** 2)
        else:
            losses.append(-math.log(sigmoid(beta * h - gamma)))
    return sum(losses) / len(losses)


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**31),
    lengths=st.lists(st.tuples(st.integers(1, 6), st.integers(1, 6)), min_size=1, max_size=4),
    kind=st.sampled_from(KINDS),
    beta=st.floats(0.05, 2.0),
    smoothing=st.sampled_from([0.0, 0.1]),
    normalised=st.booleans(),
    split=st.booleans(),
)
def test_value_and_gradient_are_those_of_the_papers(seed, lengths, kind, beta, smoothing, normalised, split):
    rng = np.random.default_rng(seed)
    data = batch(rng, lengths, split=split)
    logprobs = [rng.normal(-1, 0.5, len(datum.tokens)) for datum in data]
    smoothing = smoothing if kind == "dpo" else 0.0
    asked = {
        "kind": kind,
        "beta": beta,
        "label_smoothing": smoothing,
        "gamma": 0.3,
        "length_normalised": normalised,
    }
    result = preference_loss(data, logprobs, **asked)

    def value():
        return expected(data, logprobs, kind, beta, smoothing, 0.3, normalised)

    assert result.loss == pytest.approx(value(), rel=1e-9, abs=1e-9)
    for number, gradient in enumerate(result.grads):
        for i in range(len(gradient)):
            kept = logprobs[number][i]
            logprobs[number][i] = kept + 1e-5
            up = value()
            logprobs[number][i] = kept - 1e-5
            down = value()
            logprobs[number][i] = kept
            assert gradient[i] == pytest.approx((up - down) / 2e-5, rel=1e-4, abs=1e-7)


def test_before_the_first_step_nothing_is_preferred_and_the_loss_is_log_2():
    data = batch(np.random.default_rng(0), [(3, 2), (1, 4)])
    logprobs = [np.full(len(d.tokens), d.meta["ref_logprob"] / (len(d.tokens) - 2)) for d in data]
    result = preference_loss(data, logprobs)
    assert result.loss == pytest.approx(math.log(2))
    assert result.metrics["margin"] == pytest.approx(0.0, abs=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_what_stands_where_there_is_no_weight_doesnt_matter(kind):
    rng = np.random.default_rng(1)
    data = batch(rng, [(2, 3)])
    logprobs = [rng.normal(-1, 0.5, len(datum.tokens)) for datum in data]
    plain = preference_loss(data, logprobs, kind=kind)
    for values in logprobs:
        values[:2] = np.nan
    odd = preference_loss(data, logprobs, kind=kind)
    assert odd.loss == plain.loss
    assert odd.metrics == plain.metrics
    assert all(np.array_equal(a, b) for a, b in zip(odd.grads, plain.grads, strict=True))


@pytest.mark.parametrize("gap", [1e4, -1e4])
@pytest.mark.parametrize("kind", KINDS)
def test_no_difference_is_too_large(kind, gap):
    data = batch(np.random.default_rng(2), [(1, 1)])
    logprobs = [np.zeros(3), np.full(3, -gap)]
    result = preference_loss(data, logprobs, kind=kind, beta=2.0)
    assert np.isfinite(result.loss)
    assert all(np.isfinite(gradient).all() for gradient in result.grads)


def test_a_pair_with_an_empty_side_is_refused():
    data = batch(np.random.default_rng(3), [(2, 2)])
    data[1].loss_inputs["weights"][:] = 0
    with pytest.raises(ValueError, match="no token on one of its sides"):
        preference_loss(data, [np.zeros(len(datum.tokens)) for datum in data])
