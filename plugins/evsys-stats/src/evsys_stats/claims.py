"""Claims about an effect, their tests, and their outcomes.

Positive effects are better. The margin `m` is at least 0. Every claim is tested against its own boundary: `better`
and `worse` by more than the margin (superiority), `no_worse` (non-inferiority) and `equal` (two one-sided tests,
Schuirmann 1987).
"""

from __future__ import annotations

from collections.abc import Mapping

from evsys.types import Claim, ClaimOutcome
from evsys_stats.paired import Paired

__all__ = ["boundaries", "claim_outcome", "claim_p", "claim_verb", "least_win", "name_of_test", "outcome_p"]

_VERBS: Mapping[Claim, tuple[str, str]] = {
    "better": ("beats {against}", "beats {against} by more than {margin:g}"),
    "no_worse": ("is not worse than {against}", "is worse than {against} by less than {margin:g}, if at all"),
    "equal": ("equals {against}", "equals {against} within {margin:g}"),
    "worse": ("is worse than {against}", "is worse than {against} by more than {margin:g}"),
}


def claim_verb(claim: Claim, margin: float, against: str) -> str:
    """The claim as the verb of a sentence about an arm."""
    return _VERBS[claim][margin > 0].format(against=against, margin=margin)


def least_win(claim: Claim, margin: float) -> float:
    """The effect that a win has to exceed, and a loss to fall below on the other side."""
    return margin if claim in ("better", "worse") else 0.0


def outcome_p(paired: Paired, minimum: float) -> float:
    """Two-sided p of an effect of no more than `minimum` on the side of the effect seen; 1 where it isn't larger."""
    if minimum == 0:
        return paired.p_value
    if abs(paired.effect) <= minimum:
        return 1.0
    return paired.p_of(minimum if paired.effect > 0 else -minimum)


def name_of_test(paired: Paired, effect: float, *, both_sides: bool = False) -> str:
    """The test behind a p-value: at another effect than 0 another one serves for the checkpoint.

    Args:
        paired: the comparison.
        effect: what is tested.
        both_sides: whether minus this effect is tested as well.
    """
    if effect == 0 or paired.seeds is not None:
        return paired.method
    name = "paired score test" if paired.exact_binary else f"{paired.method} and weighted means"
    return f"{name}, two one-sided" if both_sides else name


def boundaries(margin: float) -> tuple[float, ...]:
    """The effects tested with a margin: an interval agrees with each of these tests."""
    return (0.0,) if margin == 0 else (-margin, 0.0, margin)


def claim_p(claim: Claim, margin: float, paired: Paired) -> float:
    """The p-value of the claim's null hypothesis, at the boundary; 1 where the effect isn't on the claimed side."""
    return _boundary_p(claim, margin, paired) if _is_on_side(claim, margin, paired.effect) else 1.0


def _boundary_p(claim: Claim, margin: float, paired: Paired) -> float:
    if claim == "better":
        return paired.p_of(margin)
    if claim == "equal":
        return max(paired.p_of(margin), paired.p_of(-margin))
    return paired.p_of(-margin)


def _is_on_side(claim: Claim, margin: float, effect: float) -> bool:
    sides: Mapping[Claim, bool] = {
        "better": effect > margin,
        "no_worse": effect > -margin,
        "equal": abs(effect) < margin,
        "worse": effect < -margin,
    }
    return sides[claim]


def claim_outcome(
    claim: Claim, margin: float, paired: Paired, *, p_corrected: float, level: float, refuting_level: float
) -> ClaimOutcome:
    """The outcome of a claim.

    Args:
        claim: the claim.
        margin: its margin.
        paired: the comparison.
        p_corrected: `claim_p`, corrected over arms.
        level: of significance.
        refuting_level: at which the contrary is shown; lower where one refuted arm of several refutes the whole.
    """
    if _is_on_side(claim, margin, paired.effect):
        return "supported" if p_corrected <= level else "undecided"
    return "refuted" if _boundary_p(claim, margin, paired) <= refuting_level else "undecided"
