"""The model's gradients against finite differences, and its independence of batch composition."""

import attrs
import numpy as np
import pytest

from evsys.types import Datum
from evsys_backend_mock.features import FeatureMap
from evsys_backend_mock.model import LowRankModel
from evsys_backend_mock.vocabulary import Vocabulary
from evsys_runtime.losses import BUILTIN_LOSSES, compute_loss


def vocabulary(own):
    """Of 40 tokens, of which some have columns of their own."""
    return attrs.evolve(Vocabulary.create("m", size=40, end_ids=(39,)), own=np.array(own))


@pytest.fixture(
    params=[range(40), [39, 3, 17, 20]], ids=["a column for each token", "most tokens share a column"]
)
def model(request):
    fresh = LowRankModel.create(vocabulary(request.param), rank=3, alpha=8.0, seed=1)
    rng = np.random.default_rng(0)
    return attrs.evolve(
        fresh, A=rng.normal(scale=0.1, size=fresh.A.shape), B=rng.normal(scale=0.005, size=fresh.B.shape)
    )


def features(n=9):
    return FeatureMap(40).of(np.random.default_rng(3).integers(0, 40, n))


def test_logprobs_are_a_distribution(model):
    everything = np.tile(np.arange(40), (9, 1))
    table = model.logprobs(features(), everything)
    np.testing.assert_allclose(np.exp(table).sum(axis=1), 1.0, rtol=1e-12)


def test_a_new_column_changes_no_logprob_and_may_then_be_trained_apart():
    model = LowRankModel.create(vocabulary([39, 3]), rank=2, alpha=4.0, seed=0)
    model = attrs.evolve(model, B=np.random.default_rng(1).normal(scale=0.02, size=model.B.shape))
    everything = np.tile(np.arange(40), (9, 1))
    new = model.vocabulary.missing(np.array([[5, 3], [7, 5]]))
    assert new.tolist() == [5, 7]
    grown = model.grown(new)
    assert grown.B.shape == (2, 5)
    before, after = (m.logprobs(features(), everything) for m in (model, grown))
    np.testing.assert_allclose(after, before, rtol=1e-12)
    gradient = grown.gradient(features(), np.full(9, 5), np.ones(9))
    moved = attrs.evolve(grown, B=grown.B + 1e-6 * gradient.B).logprobs(features(), everything)
    assert moved[:, 5].sum() > after[:, 5].sum()
    np.testing.assert_allclose(
        moved[:, 8] - moved[:, 9], after[:, 8] - after[:, 9]
    )  # they still move together


def focal(data, logprobs):
    return sum(
        np.sum(-d.loss_inputs["weights"] * (1 - np.exp(x)) ** 2 * x)
        for d, x in zip(data, logprobs, strict=True)
    )


@pytest.mark.parametrize("loss", [*BUILTIN_LOSSES, focal])
@pytest.mark.parametrize("shape", [(9,), (9, 4)])
def test_gradients_of_every_loss_agree_with_finite_differences(model, loss, shape):
    rng = np.random.default_rng(7)
    targets = rng.integers(0, 40, shape)
    found = features()
    sampled = model.logprobs(found, targets) + rng.normal(scale=0.3, size=shape)
    inputs = {
        "target_tokens": targets,
        "weights": rng.choice([0.0, 0.5, 1.0], shape),
        "advantages": rng.normal(size=shape),
        "logprobs": sampled,
    }
    data = [Datum(tokens=np.arange(9), loss_inputs=inputs)]
    result = compute_loss(loss, data, [model.logprobs(found, targets)])
    gradient = model.gradient(found, targets, result.grads[0])
    held = np.minimum(np.exp(model.logprobs(found, targets) - sampled), 1.28)  # the constant weight of cispo

    def value(moved):
        logprobs = moved.logprobs(found, targets)
        if loss == "cispo":
            return -np.sum(inputs["weights"] * held * inputs["advantages"] * logprobs)
        return compute_loss(loss, data, [logprobs]).loss

    eps = 1e-6
    used = np.unique(found.index)
    places = [("A", (int(rng.choice(used)), int(rng.integers(3)))) for _ in range(12)]
    places += [("B", (int(rng.integers(3)), int(rng.integers(model.B.shape[1])))) for _ in range(12)]
    for name, place in places:
        sides = []
        for sign in (1, -1):
            matrix = getattr(model, name).copy()
            matrix[place] += sign * eps
            sides.append(value(attrs.evolve(model, **{name: matrix})))
        slope = (sides[0] - sides[1]) / (2 * eps)
        assert getattr(gradient, name)[place] == pytest.approx(slope, rel=1e-5, abs=1e-7), (name, place)


def test_a_target_that_occurs_twice_in_a_row_counts_twice(model):
    found = features(2)
    once = model.gradient(found, np.array([[3], [4]]), np.array([[2.0], [2.0]]))
    twice = model.gradient(found, np.array([[3, 3], [4, 4]]), np.ones((2, 2)))
    np.testing.assert_allclose(once.A, twice.A)
    np.testing.assert_allclose(once.B, twice.B)


def test_a_row_has_the_same_bits_whoever_its_neighbours_are(model):
    hidden = np.random.default_rng(0).normal(size=(53, 3))
    table = model.column_logprobs(hidden)
    for chosen in ([5], [52, 3, 17], list(range(40, 53)), list(range(52, -1, -1))):
        np.testing.assert_array_equal(model.column_logprobs(hidden[chosen]), table[chosen])


def test_large_vocabularies_are_worked_through_in_pieces(model, monkeypatch):
    rng = np.random.default_rng(2)
    found, targets, slopes = features(60), rng.integers(0, 40, 60), rng.normal(size=60)
    whole = model.logprobs(found, targets), model.gradient(found, targets, slopes)
    monkeypatch.setattr("evsys_backend_mock.model._CHUNK", 40 * 16)
    np.testing.assert_array_equal(model.logprobs(found, targets), whole[0])
    pieces = model.gradient(found, targets, slopes)
    np.testing.assert_allclose(pieces.A, whole[1].A, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(pieces.B, whole[1].B, rtol=1e-10, atol=1e-12)


def test_the_untrained_model_depends_on_the_name_and_its_first_matrix_on_the_seed():
    def make(name="m", seed=0):
        found = Vocabulary.create(name, size=9, end_ids=(8,))
        return LowRankModel.create(found, rank=2, alpha=2.0, seed=seed)

    assert (make().vocabulary.base == make(seed=1).vocabulary.base).all()
    assert (make().vocabulary.base != make(name="n").vocabulary.base).any()
    assert (make().A != make(seed=1).A).any()
    assert not make().B.any()


@pytest.mark.parametrize("size", [300, 50_000])
def test_an_untrained_turn_ends_with_the_same_chance_however_many_tokens_there_are(size):
    ends = (7, size - 1)
    model = LowRankModel.create(Vocabulary.create("m", size=size, end_ids=ends), rank=2, alpha=2.0, seed=0)
    found = model.logprobs(FeatureMap(size).of(np.array([1, 2])), np.array([ends, ends]))
    np.testing.assert_allclose(np.exp(found).sum(axis=1), 0.05)


def test_the_size_of_the_model_follows_the_tokens_that_are_trained_and_not_the_vocabulary():
    model = LowRankModel.create(Vocabulary.create("m", size=50_000, end_ids=(7,)), rank=2, alpha=2.0, seed=0)
    assert model.B.shape == (2, 2)
    assert model.grown(np.array([4, 9])).B.shape == (2, 4)
