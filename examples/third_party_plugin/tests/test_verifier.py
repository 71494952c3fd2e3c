"""What the verifier promises, and what every verifier does."""

import pytest
from evsys import protocols
from evsys_conformance import VerifierConformance

from evsys_quantities import QuantityVerifier


@pytest.mark.parametrize(
    ("answer", "reward"),
    [
        ("3.2 km", 1.0),
        ("It is 3200 m.", 1.0),
        ("3.21 km", 1.0),
        ("3.3 km", 0.0),
        ("3.2 kg", 0.0),
        ("3.2", 0.5),
        ("3200", 0.0),
        ("far", 0.0),
    ],
)
def test_an_answer_may_be_in_any_unit(answer: str, reward: float) -> None:
    assert QuantityVerifier()(answer, "3.2 km", {}).value == reward


def test_the_parts_of_a_reward_are_told() -> None:
    score = QuantityVerifier(without_unit=0.25)("3.2", "3.2 km", {})
    assert (score.value, score.components) == (0.25, {"value": 1.0, "unit": 0.0})


@pytest.mark.parametrize("expected", ["far", None, True])
def test_a_task_that_expects_no_quantity_is_refused(expected: object) -> None:
    with pytest.raises(ValueError, match="expected a quantity"):
        QuantityVerifier().check(expected)


class TestConformance(VerifierConformance):
    """The shared checks, on an object with other settings than the default ones."""

    @pytest.fixture
    def plugin(self) -> protocols.Verifier:
        return QuantityVerifier(tolerance=0.2, without_unit=0.0)
