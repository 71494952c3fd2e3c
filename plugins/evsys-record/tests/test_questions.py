"""When two questions are one, in whichever words they are asked."""

import pytest

from evsys_record.questions import AskedQuestion


def question(claim="better", direction="max", levers=("+algorithm.params.learning_rate",)):
    return AskedQuestion(
        metric="length",
        direction=direction,
        claim=claim,
        baseline="m trained by sft",
        levers=levers,
        simulated=False,
        entry_hash="h",
    )


RAISED, LOWERED = ("+algorithm.params.learning_rate",), ("-algorithm.params.learning_rate",)


@pytest.mark.parametrize(
    ("claim", "direction", "levers", "same"),
    [
        ("better", "max", RAISED, True),
        ("worse", "max", LOWERED, True),
        ("worse", "min", RAISED, True),
        ("better", "min", LOWERED, True),
        ("better", "max", LOWERED, False),
        ("worse", "max", RAISED, False),
        ("better", "min", RAISED, False),
        ("no_worse", "max", RAISED, False),
        ("equal", "max", RAISED, False),
    ],
)
def test_that_a_higher_rate_is_better_is_the_same_in_other_words(claim, direction, levers, same):
    assert question().is_same(question(claim, direction, levers)) is same


@pytest.mark.parametrize(
    ("claim", "direction", "same"), [("better", "max", True), ("worse", "min", True), ("worse", "max", False)]
)
def test_a_lever_without_a_sign_is_turned_round_with_the_claim(claim, direction, same):
    levers = ("training by sft",)
    assert question(levers=levers).is_same(question(claim, direction, levers)) is same


def test_equality_has_no_direction():
    assert question("equal").is_same(question("equal", "min", LOWERED))
