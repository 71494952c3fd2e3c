"""Context features: bounded, the same while sampling as while training, and blind to what doesn't matter."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evsys_backend_mock.features import BUCKETS, Context, FeatureMap, Features, last_features


def rows(features, position):
    start, end = features.starts[position : position + 2]
    return dict(zip(features.index[start:end].tolist(), features.weight[start:end].tolist(), strict=True))


@pytest.mark.parametrize("vocab_size", [259, 5000])
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_a_growing_context_has_the_features_that_the_whole_sequence_has_there(vocab_size, data):
    ids = st.one_of(st.integers(0, 258), st.sampled_from([*b"ab AB ", 257]))
    sequences = data.draw(st.lists(st.lists(ids, min_size=1, max_size=90), min_size=1, max_size=4))
    mapping = FeatureMap(vocab_size)
    grown = last_features([Context(sequence, mapping.byte_level) for sequence in sequences])
    for i, sequence in enumerate(sequences):
        whole = mapping.of(np.array(sequence))
        assert rows(whole, len(sequence) - 1) == rows(grown, i)


def test_features_are_rows_of_the_matrix_and_every_position_counts_alike():
    features = FeatureMap(259).of(
        np.frombuffer(b"hello there, hello again and again", np.uint8).astype(np.int64)
    )
    assert features.index.min() >= 0
    assert features.index.max() < BUCKETS
    squares = np.add.reduceat(features.weight**2, features.starts[:-1])
    np.testing.assert_allclose(squares, 1.0)


def test_words_count_once_they_are_complete_and_whatever_their_case():
    def last(text):
        features = FeatureMap(259).of(np.array(list(text.encode())))
        return set(rows(features, len(features) - 1))

    assert last("mail for you: ok.ok") == last("MAIL for you: ok.ok")
    assert last("mail for you: ok.ok") != last("song for you: ok.ok")
    assert len(last("mail f")) == len(last("x f"))


def test_positions_can_be_chosen_and_parts_joined():
    mapping = FeatureMap(259)
    first, second = (mapping.of(np.array(list(text))) for text in (b"one two three", b"four"))
    both = Features.joined([first, second])
    assert len(both) == len(first) + len(second)
    chosen = both.at(np.array([2, 12, 13]))
    assert [rows(chosen, i) for i in range(3)] == [rows(first, 2), rows(first, 12), rows(second, 0)]


def test_the_cache_stays_small_and_gives_the_same_answer(monkeypatch):
    monkeypatch.setattr("evsys_backend_mock.features._CACHED_ENTRIES", 100)
    mapping = FeatureMap(259)
    sequences = [np.array(list(f"sequence number {i}".encode())) for i in range(20)]
    before = [mapping.of(sequence).index.tolist() for sequence in sequences]
    assert len(mapping._cache) < 5
    assert [mapping.of(sequence).index.tolist() for sequence in sequences] == before
