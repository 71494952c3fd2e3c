"""The order of rows: each epoch every row once, a function of position and seed alone."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evsys_runtime.experiment.state.seeds import derive
from evsys_runtime.training.order import DataOrder, batch_id


def order(rows, seed=0):
    return DataOrder(rows, lambda epoch: derive(seed, 0, "data_order", epoch))


@given(
    rows=st.integers(1, 40),
    sizes=st.lists(st.integers(0, 60), min_size=1, max_size=8),
    seed=st.integers(0, 99),
)
def test_any_way_of_taking_gives_the_same_sequence_and_each_epoch_has_every_row_once(rows, sizes, seed):
    whole = order(rows, seed).take(0, sum(sizes) + rows)
    position, pieces, other = 0, [], order(rows, seed)
    for size in sizes:
        pieces += other.take(position, size)
        position += size
    assert pieces == whole[:position]
    for start in range(0, len(whole) - rows + 1, rows):
        assert sorted(whole[start : start + rows]) == list(range(rows))


def test_a_position_far_ahead_needs_nothing_of_what_came_before():
    assert order(7).take(7_000_003, 5) == order(7).take(7_000_000, 8)[3:]


def test_epochs_and_seeds_differ():
    ten = order(10)
    assert ten.take(0, 10) != ten.take(10, 10)
    assert ten.take(0, 10) != order(10, seed=1).take(0, 10)
    assert ten.take(0, 10) == order(10).take(0, 10)


def test_no_rows_have_no_order():
    with pytest.raises(ValueError, match="no rows"):
        order(0)


@given(st.lists(st.text(max_size=4), max_size=4), st.lists(st.text(max_size=4), max_size=4))
def test_batches_have_the_same_name_only_when_their_rows_are_the_same_in_the_same_order(first, second):
    assert (batch_id(first) == batch_id(second)) == (first == second)


def test_a_batch_name_stays_the_same_between_versions():
    assert batch_id(["a", "b"]) == "3554d2b8a1e34099"
