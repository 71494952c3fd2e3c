"""Drawing from columns is drawing from the whole vocabulary."""

import numpy as np
import pytest

from evsys.types import SamplingParams
from evsys_backend_mock.drawing import Drawing
from evsys_backend_mock.vocabulary import Vocabulary

OWN = [9, 2, 5]


def whole(vocabulary, columns):
    """Logprobs of all tokens."""
    return columns[vocabulary.column] + vocabulary.within


@pytest.fixture
def vocabulary():
    return Vocabulary(base=np.random.default_rng(0).normal(size=12), own=np.array(OWN))


@pytest.fixture
def columns(vocabulary):
    logits = vocabulary.heads + np.array([0.0, 1.0, -0.5, 0.3])
    return logits - np.log(np.exp(logits).sum())


def counted(drawing, columns, params, n=6000):
    rng = np.random.default_rng(1)
    return np.bincount([drawing.draw(columns, params, rng)[0] for _ in range(n)], minlength=12)


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
@pytest.mark.parametrize(
    ("top_k", "top_p"), [(None, 1.0), (4, 1.0), (None, 0.6), (6, 0.7)], ids=["all", "top k", "top p", "both"]
)
def test_tokens_come_with_the_probabilities_of_the_filtered_distribution(
    vocabulary, columns, temperature, top_k, top_p
):
    logprobs = whole(vocabulary, columns) / temperature
    order = np.argsort(-logprobs)[:top_k]
    ranked = np.exp(logprobs[order]) / np.exp(logprobs[order]).sum()
    kept = order[np.cumsum(ranked) - ranked < top_p]
    expected = np.zeros(12)
    expected[kept] = np.exp(logprobs[kept]) / np.exp(logprobs[kept]).sum()
    params = SamplingParams(temperature=temperature, top_k=top_k, top_p=top_p)
    counts = counted(Drawing(vocabulary), columns, params)
    assert set(np.flatnonzero(counts)) <= set(kept.tolist())
    n = counts.sum()
    deviation = np.sqrt(n * expected * (1 - expected)) + 1e-9
    assert (np.abs(counts - n * expected) <= 5 * deviation).all()


def test_the_logprob_of_a_drawn_token_is_the_models_own_at_temperature_one(vocabulary, columns):
    rng, drawing = np.random.default_rng(2), Drawing(vocabulary)
    for _ in range(50):
        token, logprob = drawing.draw(columns, SamplingParams(temperature=1.7), rng)
        assert logprob == whole(vocabulary, columns)[token]


def test_greedy_takes_the_likeliest_of_all_tokens_whether_it_has_a_column_or_not(vocabulary, columns):
    rng, drawing, greedy = np.random.default_rng(0), Drawing(vocabulary), SamplingParams(temperature=0.0)
    for shift in (-9.0, 0.0, 9.0):
        moved = columns + np.array([shift, 0, 0, 0])
        assert drawing.draw(moved, greedy, rng)[0] == np.argmax(whole(vocabulary, moved))


def test_the_likeliest_tokens_are_those_of_the_whole_vocabulary(vocabulary, columns):
    logprobs = whole(vocabulary, columns)
    for k in (1, 5, 12):
        found = Drawing(vocabulary).likeliest(columns, k)
        assert list(found) == np.argsort(-logprobs)[:k].tolist()
        assert list(found.values()) == logprobs[list(found)].tolist()


def test_where_every_token_has_a_column_nothing_is_drawn_from_the_shared_one():
    full = Vocabulary(base=np.zeros(5), own=np.arange(5))
    columns = np.concatenate([[-np.inf], np.log(np.full(5, 0.2))])
    counts = np.bincount(
        [Drawing(full).draw(columns, SamplingParams(), np.random.default_rng(i))[0] for i in range(400)],
        minlength=5,
    )
    assert (counts > 40).all()


@pytest.mark.parametrize("temperature", [1e-3, 1e-30, 1e-308])
def test_a_temperature_next_to_zero_is_greedy_and_no_number_overflows(vocabulary, columns, temperature):
    rng, drawing = np.random.default_rng(0), Drawing(vocabulary)
    drawn = drawing.draw(columns, SamplingParams(temperature=temperature), rng)
    assert drawn == drawing.draw(columns, SamplingParams(temperature=0.0), rng)
