"""Samples without a score: how many each side lacks, and whether an outcome holds for all their possible scores.

Leaving missing samples out is harmless only if being missing doesn't depend on the reward, which the numbers can't
show. The worst-case bounds need no such assumption: every missing sample gets the highest or the lowest reward that
there can be. Source: Manski 1990, "Nonparametric bounds on treatment effects"; Horowitz & Manski 2000 for missing
outcomes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import attrs

from evsys.types import ArmResult, ClaimResult, Comparison, EvaluationResult
from evsys_record import final_scoring, untrained_scoring
from evsys_runtime.config.arm_tree import BASE_MODEL
from evsys_runtime.experiment.verdict.claim_results import bounded_claims, claim_results
from evsys_runtime.experiment.verdict.comparison import (
    ComparedArm,
    checkpoint_claims,
    compare_arms,
    strongest_claims,
)
from evsys_runtime.experiment.verdict.floor import off_the_floor, undecided_on_the_floor
from evsys_runtime.experiment.verdict.noise import above_noise
from evsys_runtime.experiment.verdict.question import Question
from evsys_runtime.experiment.verdict.scores import ArmScore, Padding, arm_score
from evsys_runtime.experiment.verdict.tables import signed_text
from evsys_stats.ranges import seen_range

__all__ = ["ArmComparisons", "compare_with_baseline", "missing_warning"]


@attrs.frozen(kw_only=True)
class Paddings:
    """The rewards that missing samples of the arms get, and those of the baseline."""

    arms: Padding
    baseline: Padding

    def padding_of(self, is_baseline: bool) -> Padding:
        """Those of one arm."""
        return self.baseline if is_baseline else self.arms


def _paddings(question: Question, arms: Mapping[str, Sequence[ArmResult]], *, arms_highest: bool) -> Paddings:
    """One extreme: the metric of the arms as high as it can be and that of the baseline as low, or the other way round."""
    scorings = list(_scorings(question, arms))
    rewards = [reward for s in scorings for values in s.task_rewards.values() for reward in values]
    seen = (min(rewards), max(rewards)) if rewards else (0.0, 1.0)
    # A task without any score on any side says nothing of their difference.
    tasks = frozenset(task for s in scorings for task, values in s.task_rewards.items() if values)
    padding = Padding(
        tasks=tasks, rewards=question.reward_range or seen_range(rewards) or seen, highest=arms_highest
    )
    return Paddings(arms=padding, baseline=attrs.evolve(padding, highest=not arms_highest))


def _scorings(question: Question, arms: Mapping[str, Sequence[ArmResult]]) -> Iterator[EvaluationResult]:
    """The completed scorings that the comparisons are made of."""
    for result in (result for group in arms.values() for result in group):
        found = [final_scoring(result, question.benchmark)]
        if question.baseline == BASE_MODEL:
            found.append(untrained_scoring(result, question.benchmark))
        yield from (scoring for scoring in found if scoring is not None and scoring.status == "completed")


def _bounds_held(
    comparisons: Sequence[Comparison],
    compared: Sequence[ComparedArm],
    extremes: tuple[Sequence[Comparison], Sequence[Comparison]],
) -> tuple[Comparison, ...]:
    """The comparisons, `inconclusive` if their outcome depends on what missing samples would have scored.

    Args:
        comparisons: by the samples that have a score.
        compared: the sides of each.
        extremes: the same comparisons with missing samples at either extreme.
    """
    return tuple(
        _bound_comparison(comparison, one, extreme) if any(one.missing_samples) else comparison
        for comparison, one, *extreme in zip(comparisons, compared, *extremes, strict=bool(comparisons))
    )


def _bound_comparison(comparison: Comparison, one: ComparedArm, extremes: Sequence[Comparison]) -> Comparison:
    effects = sorted(extreme.effect for extreme in extremes if extreme.effect is not None)
    if not effects:
        return comparison
    found = attrs.evolve(comparison, effect_bounds=(effects[0], effects[-1]))
    decided = comparison.outcome in ("win", "loss", "tie")
    if not decided or all(extreme.outcome == comparison.outcome for extreme in extremes):
        return found
    why = (
        f"the {comparison.outcome} of {one.arm.arm} depends on what its missing samples would have scored: {_missing_counts(one)}, "
        f"so the effect lies between {signed_text(effects[0])} and {signed_text(effects[-1])}"
    )
    reason = "; ".join(filter(None, (comparison.reason, why)))
    return attrs.evolve(found, outcome="inconclusive", reason=reason, missing_decides=why)


def missing_warning(one: ComparedArm) -> str | None:
    """A warning that one side lacks more samples than the other; None if they lack equally many."""
    arm, base = one.missing_samples
    return None if arm == base else f"the sides lack different numbers of samples: {_missing_counts(one)}"


def _missing_counts(one: ComparedArm) -> str:
    tasks = len(one.scored)
    arm, base = one.missing_samples
    return (
        f"{arm} of {tasks * one.arm.drawn} samples of {one.arm.arm} and {base} of {tasks * one.base.drawn} "
        f"of {one.base.arm} have no score"
    )


@attrs.frozen(kw_only=True)
class ArmComparisons:
    """The scores of the trained arms, and what the comparisons of them come to."""

    trained: Mapping[str, ArmScore]
    compared: Sequence[ComparedArm]
    comparisons: tuple[Comparison, ...]
    checkpoints: tuple[Comparison, ...]
    claims: tuple[ClaimResult, ...]


def _compare_padded(
    question: Question,
    arms: Mapping[str, Sequence[ArmResult]],
    planned: Mapping[str, int] | None,
    paddings: Paddings | None = None,
) -> ArmComparisons:
    """Compare all arms with the baseline, missing samples left out or padded."""
    trained = {
        name: arm_score(
            name,
            group,
            question.benchmark,
            question.metric,
            question.task_value,
            planned=None if planned is None else planned.get(name),
            left_out=question.left_out,
            padding=None if paddings is None else paddings.padding_of(name == question.baseline),
        )
        for name, group in arms.items()
    }
    compared = compare_arms(question, arms, trained, None if paddings is None else paddings.baseline)
    comparisons = _telling(question, strongest_claims(question, compared), compared)
    sides = {one.arm.arm: one for one in compared}
    claims = claim_results(question, compared, comparisons)
    return ArmComparisons(
        trained=trained,
        compared=compared,
        comparisons=comparisons,
        checkpoints=_telling(question, checkpoint_claims(question, compared), compared),
        claims=tuple(undecided_on_the_floor(question, each, sides[each.arm]) for each in claims),
    )


def compare_with_baseline(
    question: Question, arms: Mapping[str, Sequence[ArmResult]], planned: Mapping[str, int] | None
) -> ArmComparisons:
    """Compare all arms with the baseline; an outcome that depends on what missing samples would have scored is `inconclusive`."""
    found = _compare_padded(question, arms, planned)
    if not any(any(one.missing_samples) for one in found.compared):
        return found
    worst, best = (
        _compare_padded(question, arms, planned, _paddings(question, arms, arms_highest=highest))
        for highest in (False, True)
    )
    return attrs.evolve(
        found,
        comparisons=_bounds_held(found.comparisons, found.compared, (worst.comparisons, best.comparisons)),
        checkpoints=_bounds_held(found.checkpoints, found.compared, (worst.checkpoints, best.checkpoints)),
        claims=bounded_claims(found.claims, (worst.claims, best.claims)),
    )


def _telling(
    question: Question, comparisons: Sequence[Comparison], compared: Sequence[ComparedArm]
) -> tuple[Comparison, ...]:
    """The comparisons, `inconclusive` where noise explains them, or where both sides are on the floor; `comparisons` may be empty."""
    return tuple(
        off_the_floor(question, above_noise(question, comparison), one)
        for comparison, one in zip(comparisons, compared, strict=bool(comparisons))
    )
