import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evsys_backend_local.engine.batch import Example
from evsys_backend_local.engine.packing import common_prefix, pack_sequences

SEQUENCES = st.lists(
    st.lists(st.integers(0, 2), min_size=1, max_size=12).map(lambda ids: np.asarray(ids, np.int64)),
    min_size=1,
    max_size=9,
)


def pack(sequences, *, max_rows=20, streams=2, block_rows=4, share=True, window=None):
    return pack_sequences(
        sequences,
        max_rows=max_rows,
        streams=streams,
        block_rows=block_rows,
        dtype=np.dtype(np.float32),
        window=window,
        share=share,
    )


def visible(pack_, row):
    """Rows that a row may look at, read from the masks."""
    for block in pack_.blocks:
        if block.start <= row < block.end:
            keys = np.concatenate([block.outside, np.arange(block.start, block.end)])
            return set(keys[block.mask[row - block.start] == 0].tolist())
    raise AssertionError("no block has the row")


@settings(deadline=None, max_examples=150)
@given(SEQUENCES, st.booleans(), st.none() | st.integers(1, 13))
def test_every_sequence_is_packed_once_and_sees_its_own_past_only(sequences, share, window):
    packs = pack(sequences, share=share, window=window)
    assert sorted(m for p in packs for m in p.members) == list(range(len(sequences)))
    for p in packs:
        for member, rows in zip(p.members, p.rows_of, strict=True):
            np.testing.assert_array_equal(p.tokens[rows], sequences[member])
            np.testing.assert_array_equal(p.positions[rows], np.arange(len(rows)))
            for depth, row in enumerate(rows):
                oldest = max(0, depth + 1 - window) if window else 0
                assert visible(p, row) == set(rows[oldest : depth + 1].tolist())


@settings(deadline=None, max_examples=100)
@given(SEQUENCES)
def test_one_large_pack_has_one_row_per_distinct_prefix(sequences):
    prefixes = {tuple(s[: i + 1].tolist()) for s in sequences for i in range(len(s))}
    assert sum(p.rows for p in pack(sequences, max_rows=10_000, streams=1)) == len(prefixes)


def test_packs_respect_the_bound_and_come_out_even():
    rng = np.random.default_rng(0)
    packs = pack([rng.integers(0, 1000, 30) for _ in range(20)], max_rows=160)
    assert [p.rows for p in packs] == [150, 150, 150, 150]


def test_a_sequence_longer_than_a_pack_gets_its_own():
    packs = pack([np.arange(50), np.arange(3) + 7], max_rows=20)
    assert sorted(p.rows for p in packs) == [3, 50]


def test_keys_before_the_window_are_not_computed():
    (one,) = pack([np.arange(60)], max_rows=100, streams=1, block_rows=10, window=12)
    assert [block.keys for block in one.blocks] == [10, 20, 21, 21, 21, 21]


def test_common_prefix_counts_equal_tokens():
    assert common_prefix(np.array([1, 2, 3]), np.array([1, 2, 4, 5])) == 2
    assert common_prefix(np.array([1, 2]), np.array([1, 2, 4])) == 2


def curved(indices, logprobs):
    """A loss that is only its gradient."""
    return 0.0, [np.cos(3 * own) for own in logprobs], {}


@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float64, 1e-12), (np.float32, 1e-4)])
def test_trie_equals_separate_sequences(make_engine, randomise, dtype, tolerance):
    rng = np.random.default_rng(3)
    start = rng.integers(0, 17, 20)
    data = []
    for index in range(8):
        tokens = np.concatenate([start[: 8 + 4 * (index % 4)], rng.integers(0, 17, 10)])
        data.append(Example(tokens=tokens, targets=rng.integers(0, 17, len(tokens))))
    engine = make_engine(dtype, max_rows=400, block_rows=16, scale=0.3)
    model = randomise(engine.create_adapter(rank=3))
    results = []
    for share in (True, False):
        batch = engine.batch(data, share=share)
        model.grad.flat[...] = 0
        batch.forward_backward(model, engine.rope, curved, separable=True)
        results.append((batch.rows, batch.logprobs, model.grad.flat.copy()))
    (shared_rows, shared, shared_grad), (rows, separate, grad) = results
    assert shared_rows < 0.7 * rows
    for left, right in zip(shared, separate, strict=True):
        np.testing.assert_allclose(left, right, rtol=tolerance, atol=tolerance)
    assert np.linalg.norm(shared_grad - grad) <= tolerance * np.linalg.norm(grad)
