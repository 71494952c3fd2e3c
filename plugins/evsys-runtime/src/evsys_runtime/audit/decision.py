"""The rules of `docs/reference/conclusion.md`: outcome of an arm, outcome of a claim, verdict.

A drawn p-value may lie on either side of the level, so each function gives all outcomes that are possible.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from evsys_runtime.audit.comparing import ComparedArm, boundary_p, on_claimed_side, p_at_minimum_effect
from evsys_runtime.audit.corrections import CorrectedPValues, correct
from evsys_runtime.audit.paired_tests import Estimate, PairedTest
from evsys_runtime.audit.question import Question

__all__ = [
    "claim_outcomes",
    "confirmed_verdict",
    "correct_p_values",
    "corrected_claims",
    "either",
    "noise_floor_of",
    "outcomes",
    "verdict_of",
]

type Outcomes = frozenset[str]
type Tree = Mapping[str, Any]

_DECIDED = frozenset({"win", "loss", "tie"})


def correct_p_values(question: Question, tests: Sequence[PairedTest | None]) -> CorrectedPValues:
    """The corrected p-values of the effects; an arm that couldn't be compared counts as not significant."""
    p_values = [None if test is None else p_at_minimum_effect(test, question.least) for test in tests]
    return correct(tests, p_values, level=question.level, at_zero=question.least == 0)


def corrected_claims(question: Question, tests: Sequence[PairedTest | None]) -> CorrectedPValues:
    """The corrected p-values of the claims; 1 where the effect isn't on the claimed side."""
    p_values = [None if test is None else claim_p(question, test) for test in tests]
    return correct(tests, p_values, level=question.level, at_zero=question.margin == 0)


def claim_p(question: Question, test: PairedTest) -> Estimate:
    """The p-value of a claim; 1 where the effect isn't on the claimed side."""
    if not on_claimed_side(question.claim, question.margin, test.effect):
        return Estimate(1.0)
    return boundary_p(question.claim, question.margin, test)


def outcomes(question: Question, one: ComparedArm, test: PairedTest | None, p: Estimate | None) -> Outcomes:
    """The outcomes that an arm can have, by its corrected p-value, before missing samples are thought of."""
    if test is None or p is None:
        return frozenset({"unscored"})
    if one.on_floor(question):
        return frozenset({"inconclusive"})
    found: set[str] = set()
    if test.effect != 0 and p.maybe_at_most(question.level):
        within = abs(test.effect) <= noise_floor_of(question, len(one.arm.runs), len(one.base.runs))
        found.add("inconclusive" if within else "win" if test.effect > 0 else "loss")
    if test.effect == 0 or not p.surely_at_most(question.level):
        equal = boundary_p("equal", question.margin, test) if question.margin > 0 else Estimate(1.0)
        if question.margin > 0 and equal.maybe_at_most(question.level):
            found.add("tie")
        if not equal.surely_at_most(question.level) or question.margin == 0:
            found.add("inconclusive")
    return frozenset(found)


def noise_floor_of(question: Question, runs: int, baseline_runs: int) -> float:
    """The noise floor for the effect of means over this many runs; 0 without a noise floor on this metric."""
    noise = question.noise
    if noise is None or noise["metric"] != f"{question.benchmark}.{question.metric}":
        return 0.0
    limit = noise.get("limit") or noise["largest"]
    return float(limit) * math.sqrt((1.0 / max(1, runs) + 1.0 / max(1, baseline_runs)) / 2.0)


def claim_outcomes(
    question: Question, test: PairedTest, p: Estimate, family: int, arm_outcomes: Outcomes
) -> Outcomes:
    """The outcomes that a claim about an arm can have: `supported` at the level after correction, `refuted` by its
    boundary.

    A claim about all arms falls with one, so there refuting is corrected as well. `better` isn't supported of an
    arm held back by the noise floor.
    """
    if on_claimed_side(question.claim, question.margin, test.effect):
        yes, at, shown = p, question.level, "supported"
    else:
        yes, shown = boundary_p(question.claim, question.margin, test), "refuted"
        at = question.level if question.claim == "better" else question.level / family
    found = {shown} if yes.maybe_at_most(at) else set()
    found |= set() if yes.surely_at_most(at) else {"undecided"}
    if "supported" in found and question.claim == "better" and "inconclusive" in arm_outcomes:
        found = {"undecided"} if arm_outcomes == {"inconclusive"} else found | {"undecided"}
    return frozenset(found)


def either(seen: Outcomes, extremes: Iterable[Outcomes], undecided: str) -> Outcomes:
    """The outcomes left when missing samples are put at either extreme: one that an extreme changes is undecided."""
    found: set[str] = set()
    for outcome in seen:
        if outcome == "unscored":
            found.add(outcome)
            continue
        if all(outcome in extreme for extreme in extremes):
            found.add(outcome)
        if any(extreme != {outcome} for extreme in extremes):
            found.add(undecided)
    return frozenset(found)


def verdict_of(
    question: Question, compared: Sequence[ComparedArm], comparisons: Sequence[Tree], claims: Sequence[Tree]
) -> str:
    """The verdict that follows from the outcomes of the arms and of the claims about them."""
    outcome = {each["arm"]: each["outcome"] for each in comparisons}
    if set(outcome.values()) <= {"unscored"}:
        return "INVALID" if any(one.invalid for one in compared) else "INCONCLUSIVE"
    subjects = {each["arm"]: each["claim"] for each in comparisons}
    claimed = {each["arm"]: each["outcome"] for each in claims if each["subject"] == subjects[each["arm"]]}
    lost = any(one.lost_repeats for one in compared)
    if question.claim != "better":
        if "refuted" in claimed.values():
            return "REFUTED"
        if any(claimed.get(arm, "undecided") == "undecided" for arm in outcome):
            return "INCONCLUSIVE"
        return "CANDIDATE" if lost else "SUPPORTED"
    if "win" in outcome.values():
        return "SUPPORTED" if len(outcome) == 1 and not lost else "CANDIDATE"
    if set(outcome.values()) <= {"tie", "loss"}:
        return "REFUTED"
    if all(claimed.get(arm) == "refuted" for arm in outcome):
        return "REFUTED"
    return "INCONCLUSIVE"


def confirmed_verdict(
    first: str, again: ComparedArm, outcome: str, others: Sequence[str], *, won: bool
) -> str:
    """The verdict where a winner was tried again.

    Args:
        first: the verdict of the runs that chose it.
        again: its comparison by fresh runs.
        outcome: the outcome of that.
        others: the first outcomes of the other arms.
        won: whether it won when it was chosen.
    """
    if first == "INVALID" or not (won or outcome == "win"):
        return first
    if again.invalid is not None:
        return "INVALID"
    if outcome == "win":
        return "CANDIDATE" if again.lost_repeats else "SUPPORTED"
    if outcome in ("unscored", "inconclusive") or "win" in others:
        return "CANDIDATE"
    return "REFUTED" if set(others) <= _DECIDED else "INCONCLUSIVE"
