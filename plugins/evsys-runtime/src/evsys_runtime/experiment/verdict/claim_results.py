"""The outcome of the claim about each arm, as a checkpoint and as a recipe."""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from evsys.types import ClaimResult, Comparison
from evsys_runtime.experiment.verdict.comparison import ComparedArm, finite
from evsys_runtime.experiment.verdict.question import Question
from evsys_stats.claims import boundaries, claim_outcome, claim_p, name_of_test
from evsys_stats.corrections import Corrected, corrected
from evsys_stats.paired import Paired

__all__ = ["bounded_claims", "claim_results"]


def bounded_claims(
    claims: Sequence[ClaimResult], extremes: Sequence[Sequence[ClaimResult]]
) -> tuple[ClaimResult, ...]:
    """The claims, `undecided` where their outcome depends on what missing samples would have scored.

    Args:
        claims: by the samples that have a score.
        extremes: the same claims with missing samples at either extreme.
    """
    known = [{(each.arm, each.subject): each.outcome for each in extreme} for extreme in extremes]
    return tuple(
        each
        if all(outcomes.get((each.arm, each.subject)) == each.outcome for outcomes in known)
        else attrs.evolve(each, outcome="undecided")
        for each in claims
    )


def claim_results(
    question: Question, compared: Sequence[ComparedArm], comparisons: Sequence[Comparison]
) -> tuple[ClaimResult, ...]:
    """The claims about each arm that could be compared: about the trained checkpoint, then about its recipe if
    possible.
    """
    found = []
    for subject in ("checkpoint", "recipe"):
        claims = [one.paired if subject == "checkpoint" else one.recipe for one in compared]
        tested = [(one, claim) for one, claim in zip(compared, claims, strict=True) if claim is not None]
        made = corrected(
            [claim for _, claim in tested],
            [claim_p(question.claim, question.margin, claim) for _, claim in tested],
            family=len(compared),
            level=question.level,
            at_zero=question.margin == 0,
        )
        found += [
            _claim_result(question, one, claim, p_corrected, made)
            for (one, claim), p_corrected in zip(tested, made.p_values, strict=True)
        ]
    order = [one.arm.arm for one in compared]
    held = {c.arm for c in comparisons if question.claim == "better" and c.outcome == "inconclusive"}
    return tuple(
        attrs.evolve(each, outcome="undecided") if each.arm in held and each.outcome == "supported" else each
        for each in sorted(found, key=lambda result: order.index(result.arm))
    )


def _claim_result(
    question: Question, one: ComparedArm, claim: Paired, p_corrected: float, family: Corrected
) -> ClaimResult:
    # One arm that doesn't hold refutes a claim about all, so that is corrected as well; `better` is refuted when all arms refute it.
    refuting = question.level if question.claim == "better" else question.level / family.count
    low, high = claim.interval(family.single_level, boundaries(question.margin))
    return ClaimResult(
        claim=question.claim,
        arm=one.arm.arm,
        against=question.baseline,
        margin=question.margin,
        subject="checkpoint" if claim.seeds is None else "recipe",
        outcome=claim_outcome(
            question.claim,
            question.margin,
            claim,
            p_corrected=p_corrected,
            level=question.level,
            refuting_level=refuting,
        ),
        effect=claim.effect,
        low=finite(low),
        high=finite(high),
        p_value=claim_p(question.claim, question.margin, claim),
        p_corrected=p_corrected,
        correction=family.method,
        deviation=one.deviation if claim.seeds is not None else None,
        test=name_of_test(claim, question.margin, both_sides=question.claim == "equal"),
    )
