"""What the metric promises, and what every metric does."""

import math

import pytest
from evsys import protocols
from evsys_conformance import MetricConformance

from evsys_quantities import RewardSpread


def test_it_is_the_mean_of_best_minus_worst() -> None:
    assert RewardSpread().compute([[0.0, 1.0, 0.5], [0.5, 0.5]]) == 0.5


def test_one_sample_has_no_spread() -> None:
    with pytest.raises(ValueError, match="two scored samples"):
        RewardSpread().compute([[1.0]])


def test_nothing_scored_is_not_available() -> None:
    assert math.isnan(RewardSpread().compute([]))


class TestConformance(MetricConformance):
    """The shared checks."""

    @pytest.fixture
    def plugin(self) -> protocols.Metric:
        return RewardSpread()
