"""Two sides on the floor: where every task of both has the worst score there can be, their difference says nothing of either."""

from __future__ import annotations

import attrs

from evsys.types import ClaimResult, Comparison
from evsys_runtime.experiment.verdict.comparison import ComparedArm
from evsys_runtime.experiment.verdict.question import Question
from evsys_runtime.experiment.verdict.scores import ArmScore
from evsys_runtime.experiment.verdict.tables import number

__all__ = ["floor_words", "off_the_floor", "undecided_on_the_floor"]


def floor_words(question: Question, one: ComparedArm) -> str | None:
    """That both sides of a comparison are on the floor, in words; None if one isn't, or the worst score isn't known."""
    if not (one.arm.values and one.base.values):
        return None
    zero_one = (0.0, 1.0) if one.arm.zero_one and one.base.zero_one else None
    possible = question.possible(question.reward_range or zero_one)
    if possible is None:
        return None
    worst = possible[0] if question.direction == "max" else possible[1]
    if not all(_is_at(side, worst) for side in (one.arm, one.base)):
        return None
    return f"{one.arm.arm} and {one.base.arm} are on the floor: every task of both scores {number(worst)}, the worst possible, so they can't be distinguished"


def _is_at(side: ArmScore, worst: float) -> bool:
    return all(abs(value - worst) <= 1e-12 for value in side.values.values())


def off_the_floor(question: Question, comparison: Comparison, one: ComparedArm) -> Comparison:
    """The comparison, `inconclusive` if both sides are on the floor: a tie of two failures isn't one of two recipes."""
    words = None if comparison.outcome == "unscored" else floor_words(question, one)
    if words is None:
        return comparison
    reason = "; ".join(filter(None, (comparison.reason, words)))
    return attrs.evolve(comparison, outcome="inconclusive", reason=reason)


def undecided_on_the_floor(question: Question, claim: ClaimResult, one: ComparedArm) -> ClaimResult:
    """The claim, `undecided` if both sides are on the floor."""
    return claim if floor_words(question, one) is None else attrs.evolve(claim, outcome="undecided")
