"""What a token counts."""

import pytest

from evsys_algo_rl.aggregation import AGGREGATIONS, token_shares


@pytest.mark.parametrize(
    ("loss_agg", "shares"),
    [("token", [1 / 8, 1 / 8, 0.0]), ("sequence", [1 / 4, 1 / 12, 0.0]), ("constant", [1 / 20, 1 / 20, 0.0])],
)
def test_shares_are_of_the_whole_batch(loss_agg, shares):
    assert token_shares(loss_agg, [2, 6, 0], longest=10) == pytest.approx(shares)


@pytest.mark.parametrize("loss_agg", ["token", "sequence"])
def test_means_add_up_to_one(loss_agg):
    lengths = [3, 1, 7]
    shares = token_shares(loss_agg, lengths, longest=10)
    assert sum(length * share for length, share in zip(lengths, shares, strict=True)) == pytest.approx(1.0)


@pytest.mark.parametrize("loss_agg", AGGREGATIONS)
def test_nothing_to_train_divides_by_nothing(loss_agg):
    assert token_shares(loss_agg, [0, 0], longest=10) == [0.0, 0.0]
    assert token_shares(loss_agg, [], longest=10) == []


def test_an_unknown_aggregation_is_named():
    with pytest.raises(ValueError, match="no loss_agg 'max'"):
        token_shares("max", [1], longest=1)
