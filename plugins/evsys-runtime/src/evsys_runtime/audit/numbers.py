"""The numbers of a conclusion alongside those that follow from the rewards."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from evsys_runtime.audit.comparing import ComparedArm, extremes, p_at_minimum_effect
from evsys_runtime.audit.corrections import CorrectedPValues
from evsys_runtime.audit.decision import (
    Outcomes,
    claim_outcomes,
    claim_p,
    correct_p_values,
    corrected_claims,
    either,
    outcomes,
)
from evsys_runtime.audit.findings import Section
from evsys_runtime.audit.paired_tests import NINETY_FIVE, Ends, Estimate, Levels, PairedTest
from evsys_runtime.audit.question import Question
from evsys_runtime.audit.sides import ArmRun

__all__ = ["RecomputedComparisons", "check_claims", "check_comparisons"]

type Tree = Mapping[str, Any]

_UNTESTED: Tree = {"p_value": None, "p_corrected": None}
_NO_RANGE = "depends on the range of the rewards, which this record doesn't have"


class RecomputedComparisons:
    """The comparisons of a question, and what missing samples can change about them."""

    def __init__(
        self,
        question: Question,
        compared: Sequence[ComparedArm],
        arms: Mapping[str, Sequence[ArmRun]],
        planned: Mapping[str, int],
    ) -> None:
        self.question, self.compared = question, compared
        self.lacks = {one.arm.name: any(one.missing()) for one in compared}
        lacking = any(self.lacks.values())
        self.extremes = extremes(question, arms, planned) if lacking else []

    def tests(self, subject: str | None, compared: Sequence[ComparedArm]) -> list[PairedTest | None]:
        """The tests of all arms: those that outcomes hang on (None), or those about the `checkpoint` or the `recipe`."""
        if subject is None:
            return [one.strongest for one in compared]
        return [one.checkpoint if subject == "checkpoint" else one.recipe for one in compared]

    def outcomes_of(
        self, subject: str | None, p_values: Sequence[Estimate | None], *, bounded: bool = True
    ) -> list[Outcomes]:
        """The possible outcomes of each arm; `bounded` by missing samples."""
        question, compared = self.question, self.compared
        seen = [
            outcomes(question, one, test, p)
            for one, test, p in zip(compared, self.tests(subject, compared), p_values, strict=True)
        ]
        if not bounded or not self.extremes:
            return seen
        changed = [self._extreme_outcomes(subject, extreme) for extreme in self.extremes]
        return [
            either(mine, theirs, "inconclusive") if self.lacks[one.arm.name] else mine
            for one, mine, *theirs in zip(compared, seen, *changed, strict=True)
        ]

    def _extreme_outcomes(self, subject: str | None, compared: Sequence[ComparedArm]) -> list[Outcomes]:
        tests = self.tests(subject, compared)
        p_values = correct_p_values(self.question, tests).p_values
        return [
            outcomes(self.question, one, test, p)
            for one, test, p in zip(compared, tests, p_values, strict=True)
        ]

    def claims_of(
        self, subject: str, p_values: Sequence[Estimate | None], arm_outcomes: Sequence[Outcomes]
    ) -> list[Outcomes]:
        """The possible outcomes of the claim about each arm; none where nothing is claimed of it."""
        question, family = self.question, len(self.compared)

        def claimed(
            tests: Sequence[PairedTest | None], ps: Any, of_arms: Sequence[Outcomes]
        ) -> list[Outcomes]:
            return [
                frozenset()
                if test is None or p is None
                else frozenset({"undecided"})
                if one.on_floor(question)
                else claim_outcomes(question, test, p, family, mine)
                for one, test, p, mine in zip(self.compared, tests, ps, of_arms, strict=True)
            ]

        seen = claimed(self.tests(subject, self.compared), p_values, arm_outcomes)
        if not self.extremes:
            return seen
        changed = []
        for extreme in self.extremes:
            tests = self.tests(subject, extreme)
            of_arms = self._extreme_outcomes(None, extreme)
            changed.append(claimed(tests, corrected_claims(question, tests).p_values, of_arms))
        return [either(mine, theirs, "undecided") for mine, *theirs in zip(seen, *changed, strict=True)]


def check_comparisons(
    section: Section, found: RecomputedComparisons, recorded: Sequence[Tree], *, subject: str | None = None
) -> None:
    """Check all comparisons on record, in the order of the arms."""
    compared = found.compared
    section.same("arms", [each["arm"] for each in recorded], [one.arm.name for one in compared])
    if [each["arm"] for each in recorded] != [one.arm.name for one in compared]:
        return
    tests = found.tests(subject, compared)
    made = correct_p_values(found.question, tests)
    parts = [section.section("numbers", f"{section.about}: {one.arm.name}") for one in compared]
    for part, one, test, each in zip(parts, compared, tests, recorded, strict=True):
        _check_numbers(part, found.question, one, test, each)
        if test is not None:
            _check_interval(part, found.question, test, each, made.levels, tested=found.question.least)
    _check_corrected(parts, made, recorded)
    p_values = [None if each["p_corrected"] is None else Estimate(each["p_corrected"]) for each in recorded]
    possible = found.outcomes_of(subject, p_values)
    for one, test, each, allowed in zip(compared, tests, recorded, possible, strict=True):
        part = section.section("verdict", f"{section.about}: {one.arm.name}")
        _one_of(part, "outcome", each["outcome"], allowed)
        if found.lacks[one.arm.name] and test is not None:
            _check_bounds(part.section("numbers", part.about), found, one, each, subject)


def _check_numbers(
    part: Section, question: Question, one: ComparedArm, test: PairedTest | None, recorded: Tree
) -> None:
    part.close("before", recorded["before"], one.base.value)
    part.close("after", recorded["after"], one.arm.value)
    if test is None:
        part.same("effect", recorded["effect"], None)
        return
    arm, base, tasks = one.missing()
    part.close("effect", recorded["effect"], test.effect)
    p = p_at_minimum_effect(test, question.least)
    _check_range(part, question, "p_value", recorded["p_value"], (p.value - p.error, p.value + p.error))
    part.same("level", recorded["level"], question.level)
    part.same("n_tasks", recorded["n_tasks"], test.n)
    if recorded.get("n_units") is not None:
        part.same("n_units", recorded["n_units"], test.groups)
    part.same("n_seeds", recorded["n_seeds"], len(one.arm.runs))
    part.same("n_baseline_seeds", recorded["n_baseline_seeds"], len(one.base.runs))
    part.same("n_missing", recorded["n_missing"], tasks)
    part.same("missing_samples", recorded["missing_samples"], arm)
    part.same("baseline_missing_samples", recorded["baseline_missing_samples"], base)
    subject = "recipe" if test is one.recipe else "checkpoint"
    part.same("claim", recorded["claim"], subject)


def _check_corrected(parts: Sequence[Section], made: CorrectedPValues, recorded: Sequence[Tree]) -> None:
    """Corrected p-values: Bonferroni's follow from those on record, Westfall & Young's lie between these and Bonferroni's."""
    for part, each, own in zip(parts, recorded, made.p_values, strict=True):
        most = None if each["p_value"] is None else min(1.0, len(recorded) * each["p_value"])
        if each.get("correction") is not None or made.method is None:
            part.same("correction", each.get("correction"), None if own is None else made.method)
        if made.method != "westfall-young" or own is None or most is None:
            part.close("p_corrected", each["p_corrected"], most)
        else:
            lowest = max(each["p_value"], own.value - own.error)
            part.within(
                "p_corrected", each["p_corrected"], lowest - 1e-9, min(most, own.value + own.error) + 1e-9
            )


def _check_interval(
    part: Section,
    question: Question,
    test: PairedTest,
    recorded: Tree,
    levels: Levels,
    *,
    tested: float,
) -> None:
    """Check an interval: one of a lower level than 5 % also holds the one of 95 %, and each agrees with the tests of 0 and of a margin."""
    for name, direction in (("low", -1.0), ("high", 1.0)):
        ends = test.end(direction, levels)
        if levels.lowest < NINETY_FIVE.lowest:
            ends = ends.beyond(test.end(direction), direction)
        for effect in dict.fromkeys((-tested, 0.0, tested)):
            ends = _agreeing(ends, test, effect, direction, levels)
        lowest, highest = sorted((ends.near, ends.far))
        _check_range(part, question, name, recorded[name], (lowest - test.slack, highest + test.slack))


def _agreeing(ends: Ends, test: PairedTest, effect: float, direction: float, levels: Levels) -> Ends:
    """The end of an interval that holds a tested effect exactly if its p-value is above the level."""
    p = test.p(effect)
    held, left_out = ends.beyond(Ends(effect, effect), direction), ends
    if direction * (effect - test.effect) > 0:
        left_out = ends.before(effect, direction)
    if not p.maybe_at_most(levels.highest):
        return held
    if p.surely_at_most(levels.lowest):
        return left_out
    return Ends(left_out.near, held.far)


def _check_range(
    part: Section, question: Question, name: str, recorded: float | None, ends: tuple[float, float]
) -> None:
    """Check a number that may depend on the range of the rewards, as far as that is known."""
    lowest, highest = ends
    value = recorded
    if value is None:
        value = lowest if lowest == -math.inf else highest
    fits = lowest - 1e-9 <= value <= highest + 1e-9
    if not fits and question.task_metric.of_rewards and not question.range_known:
        part.unchecked(name, _NO_RANGE)
    else:
        part.within(name, recorded, lowest - 1e-9, highest + 1e-9)


def _check_bounds(
    part: Section, found: RecomputedComparisons, one: ComparedArm, recorded: Tree, subject: str | None
) -> None:
    """The smallest and the largest effect that missing samples allow."""
    place = [each.arm.name for each in found.compared].index(one.arm.name)
    tests = [found.tests(subject, extreme)[place] for extreme in found.extremes]
    effects = sorted(test.effect for test in tests if test is not None)
    if found.question.task_metric.of_rewards and not found.question.range_known:
        part.unchecked("effect_bounds", _NO_RANGE)
        return
    bounds = recorded["effect_bounds"] or (None, None)
    part.close("effect_bounds[0]", bounds[0], effects[0] if effects else None)
    part.close("effect_bounds[1]", bounds[1], effects[-1] if effects else None)


def check_claims(
    section: Section, found: RecomputedComparisons, recorded: Sequence[Tree], comparisons: Sequence[Tree]
) -> None:
    """Check what is claimed of each arm, of the models trained and of their recipes."""
    question, compared = found.question, found.compared
    p_values = [
        None if each["p_corrected"] is None else Estimate(each["p_corrected"]) for each in comparisons
    ]
    of_arms = found.outcomes_of(None, p_values, bounded=False)
    for subject in ("checkpoint", "recipe"):
        mine = {each["arm"]: each for each in recorded if each["subject"] == subject}
        tests = found.tests(subject, compared)
        expected = [one.arm.name for one, test in zip(compared, tests, strict=True) if test is not None]
        section.same(f"arms with a claim about the {subject}", sorted(mine), sorted(expected))
        if sorted(mine) != sorted(expected):
            continue
        made = corrected_claims(question, tests)
        tested = [
            (one.arm.name, test, p)
            for one, test, p in zip(compared, tests, made.p_values, strict=True)
            if test is not None
        ]
        parts = [section.section("numbers", f"claim about the {subject}: {name}") for name, *_ in tested]
        for part, (name, test, _) in zip(parts, tested, strict=True):
            _check_claim(part, question, test, mine[name], made.levels)
        family = [mine[name] for name, *_ in tested] + [_UNTESTED] * (len(compared) - len(tested))
        ps_made = (*(p for *_, p in tested), *[None] * (len(compared) - len(tested)))
        blank = [section.section("numbers", "claims")] * (len(compared) - len(tested))
        _check_corrected([*parts, *blank], attrs.evolve(made, p_values=ps_made), family)
        ps = [
            None if one.arm.name not in mine else Estimate(mine[one.arm.name]["p_corrected"])
            for one in compared
        ]
        for one, allowed in zip(compared, found.claims_of(subject, ps, of_arms), strict=True):
            if one.arm.name in mine:
                part = section.section("verdict", f"claim about the {subject}: {one.arm.name}")
                _one_of(part, "outcome", mine[one.arm.name]["outcome"], allowed)


def _check_claim(part: Section, question: Question, test: PairedTest, recorded: Tree, levels: Levels) -> None:
    p = claim_p(question, test)
    part.same("claim", recorded["claim"], question.claim)
    part.close("margin", recorded["margin"], question.margin)
    part.close("effect", recorded["effect"], test.effect)
    _check_interval(part, question, test, recorded, levels, tested=question.margin)
    _check_range(part, question, "p_value", recorded["p_value"], (p.value - p.error, p.value + p.error))


def _one_of(part: Section, name: str, recorded: str, allowed: Outcomes) -> None:
    """An outcome that follows from the numbers; where draws decide, one of two."""
    part.same(name, recorded, recorded if recorded in allowed else " or ".join(sorted(allowed)))
