"""The verdict on the comparisons of an experiment, in the words of what was claimed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from evsys.types import ClaimResult, Comparison, Subject, Verdict
from evsys_record.text import list_names
from evsys_runtime.experiment.verdict.comparison import ComparedArm, missing_repeats
from evsys_runtime.experiment.verdict.floor import floor_words
from evsys_runtime.experiment.verdict.noise import held_by_noise, noise_words
from evsys_runtime.experiment.verdict.question import Question
from evsys_runtime.experiment.verdict.scores import ArmScore
from evsys_stats.claims import claim_verb

__all__ = ["best_held", "subject_limit", "subject_of", "verdict_of"]


def subject_of(comparisons: Sequence[Comparison]) -> Subject | None:
    """The subject of a verdict on these comparisons: recipes only if all of them are about recipes."""
    claims = {c.claim for c in comparisons if c.claim is not None}
    return None if not claims else "recipe" if claims == {"recipe"} else "checkpoint"


def subject_limit(comparison: Comparison) -> str:
    """The limitation of a supported claim about a checkpoint; empty for a claim about a recipe."""
    if comparison.claim != "checkpoint":
        return ""
    return "; enough to choose this checkpoint, not to expect the same of another run of its recipe"


def verdict_of(
    question: Question,
    comparisons: Sequence[Comparison],
    compared: Sequence[ComparedArm],
    claims: Sequence[ClaimResult],
    trained: Mapping[str, ArmScore],
) -> tuple[Verdict, str]:
    """The verdict and why.

    Args:
        question: what is asked.
        comparisons: each arm against the baseline.
        compared: the statistics behind them; an invalid arm counts as unscored alongside others that aren't.
        claims: what holds of each arm.
        trained: the score of each arm.
    """
    invalid = [c.invalid for c in compared if c.invalid]
    outcomes = [c.outcome for c in comparisons]
    if invalid and all(outcome == "unscored" for outcome in outcomes):
        return "INVALID", invalid[0]
    if all(outcome == "unscored" for outcome in outcomes):
        why = next((c.reason for c in comparisons if c.reason), None) or "; ".join(
            reason for score in trained.values() for reason in score.reasons
        )
        why = why or "nothing was scored"
        return "INCONCLUSIVE", f"no arm could be compared with {question.baseline}: {why}"
    if question.claim != "better":
        return _verdict_on_all(question, comparisons, compared, claims)
    return _verdict_on_winners(question, comparisons, compared, claims)


def _strongest(comparisons: Sequence[Comparison], claims: Sequence[ClaimResult]) -> dict[str, ClaimResult]:
    """The deciding claim about each arm, about the subject of its comparison."""
    subjects = {c.arm: c.claim for c in comparisons}
    return {claim.arm: claim for claim in claims if claim.subject == subjects[claim.arm]}


def _verdict_on_all(
    question: Question,
    comparisons: Sequence[Comparison],
    compared: Sequence[ComparedArm],
    claims: Sequence[ClaimResult],
) -> tuple[Verdict, str]:
    """A claim about all arms holds when it holds of each, and falls with one."""
    verb = claim_verb(question.claim, question.margin, question.baseline)
    strongest = _strongest(comparisons, claims)
    refuted = [arm for arm, claim in strongest.items() if claim.outcome == "refuted"]
    if refuted:
        return "REFUTED", f"the numbers exclude that {list_names(refuted)} {verb}"
    open_ = [c.arm for c in comparisons if c.arm not in strongest or strongest[c.arm].outcome == "undecided"]
    if open_:
        floor = _on_the_floor(question, compared)
        if floor is not None:
            return "INCONCLUSIVE", floor
        return "INCONCLUSIVE", f"the numbers neither show nor exclude that {list_names(open_)} {verb}"
    said = ", ".join(f"{arm} {verb}" for arm in strongest)
    lost = next((lost for one in compared if (lost := missing_repeats(one)) is not None), None)
    if lost is not None:
        return "CANDIDATE", f"{said}, but {lost}"
    return "SUPPORTED", said + next((limit for c in comparisons if (limit := subject_limit(c))), "")


def _verdict_on_winners(
    question: Question,
    comparisons: Sequence[Comparison],
    compared: Sequence[ComparedArm],
    claims: Sequence[ClaimResult],
) -> tuple[Verdict, str]:
    verb = claim_verb(question.claim, question.margin, question.baseline)
    winners = [c for c in comparisons if c.outcome == "win"]
    if winners and len(comparisons) == 1:
        lost = missing_repeats(compared[0])
        if lost is not None:
            return "CANDIDATE", f"{winners[0].arm} {verb}, but {lost}"
        return "SUPPORTED", f"{winners[0].arm} {verb}{subject_limit(winners[0])}"
    if winners:
        by = f" by more than {question.margin:g}" if question.margin > 0 else ""
        return (
            "CANDIDATE",
            f"{len(winners)} of {len(comparisons)} arms beat {question.baseline}{by}; none was confirmed on fresh rollouts",
        )
    if all(c.outcome in ("tie", "loss") for c in comparisons):
        return "REFUTED", f"every arm ties with or loses to {question.baseline}"
    strongest = _strongest(comparisons, claims)
    if all(c.arm in strongest and strongest[c.arm].outcome == "refuted" for c in comparisons):
        return "REFUTED", f"the numbers exclude that any arm {verb}"
    return "INCONCLUSIVE", _undecided_reason(question, comparisons, compared)


def _on_the_floor(question: Question, compared: Sequence[ComparedArm]) -> str | None:
    """That an arm and the baseline are both on the floor, of the first such arm."""
    return next((words for one in compared if (words := floor_words(question, one)) is not None), None)


def _undecided_reason(
    question: Question, comparisons: Sequence[Comparison], compared: Sequence[ComparedArm]
) -> str:
    """Why nothing follows although something was compared."""
    floor = _on_the_floor(question, compared)
    if floor is not None:
        return floor
    missing = next((c.missing_decides for c in comparisons if c.missing_decides), None)
    if missing is not None:
        return missing
    held = best_held(question, comparisons)
    if held is not None and question.noise is not None:
        return f"the effect of {held.arm}, {noise_words(question.noise, held)}"
    unscored = [c.arm for c in comparisons if c.outcome == "unscored"]
    if unscored and not any(c.outcome == "inconclusive" for c in comparisons):
        were = "was" if len(unscored) == 1 else "were"
        return (
            f"no arm that was scored beats {question.baseline}, but {list_names(unscored)} {were} not scored"
        )
    if question.margin > 0:
        return (
            f"the numbers neither show nor exclude an effect of more than {question.margin:g} "
            f"against {question.baseline}"
        )
    return f"no arm differs from {question.baseline} beyond what chance explains"


def best_held(question: Question, comparisons: Sequence[Comparison]) -> Comparison | None:
    """The largest effect that the noise between equal runs keeps from counting."""
    held = [c for c in comparisons if held_by_noise(question, c)]
    return max(held, key=lambda c: c.effect or 0.0, default=None)
