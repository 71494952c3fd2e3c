"""The decision procedure: each arm against the baseline, corrected over arms, then the experiment's verdict."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence, Set

import attrs
import numpy as np

from evsys.types import ArmResult, Comparison, Conclusion, Procedure, Usage, Verdict, WithoutFlagged
from evsys_runtime.config.plan import ALPHA
from evsys_runtime.experiment.verdict.comparing import (
    DRAWS,
    Compared,
    checkpoint_claims,
    compare_arms,
    strongest_claims,
)
from evsys_runtime.experiment.verdict.question import Question
from evsys_runtime.experiment.verdict.scores import ArmScore, arm_score
from evsys_runtime.experiment.verdict.settle import Open, what_would_settle

__all__ = ["conclude"]

MOST_NAMED = 5
"""Tasks that are named in a warning."""


def conclude(
    question: Question | None,
    results: Sequence[ArmResult],
    *,
    planned: Mapping[str, int] | None = None,
    warnings: Sequence[str] = (),
    flagged: Set[str] = frozenset(),
) -> Conclusion:
    """Say what the numbers allow, and no more.

    Args:
        question: None when the experiment names nothing to decide by.
        results: every arm at every repeat that was reached, failed ones included.
        planned: how many repeats of each arm were planned; by default those in `results`. An arm that was never reached
            counts in every correction.
        warnings: what weakens the conclusion, found on the way.
        flagged: tasks of the question's benchmark that are among training rows; the verdict is then given without them, too.
    """
    usage = sum((result.usage for result in results), Usage())
    if question is None:
        return Conclusion(
            verdict=None,
            test_looks=_test_looks(results),
            reason="no success metric: nothing was to be decided",
            usage=usage,
            warnings=tuple(warnings),
        )
    decided = _decide(question, results, planned)
    trained, compared, comparisons = decided.trained, decided.compared, decided.comparisons
    return Conclusion(
        verdict=decided.verdict,
        reason=decided.reason,
        metric=question.name,
        direction=question.direction,
        baseline=question.baseline,
        minimum_effect=question.minimum_effect,
        best_arm=_best(question, trained),
        comparisons=comparisons,
        checkpoints=decided.checkpoints,
        procedure=Procedure(level=ALPHA, draws=DRAWS, seed=question.seed, numpy=np.__version__),
        correction="holm" if len(comparisons) > 1 else None,
        usage=usage,
        warnings=(*warnings, *_weakened(decided, results)),
        test_looks=_test_looks(results),
        settle=(
            _settle(question, comparisons, compared)
            if decided.verdict in ("INCONCLUSIVE", "CANDIDATE")
            else None
        ),
        without_flagged=_without(question, results, planned, flagged),
    )


def _without(
    question: Question, results: Sequence[ArmResult], planned: Mapping[str, int] | None, flagged: Set[str]
) -> WithoutFlagged | None:
    """The same question about the other tasks; None where none of `flagged` was scored."""
    scorings = [e for result in results for e in result.evaluations if e.benchmark == question.benchmark]
    tasks = flagged & {task for e in scorings if e.model is None for task in e.task_rewards}
    if not tasks:
        return None
    decided = _decide(attrs.evolve(question, left_out=frozenset(tasks)), results, planned)
    return WithoutFlagged(
        benchmark=question.benchmark,
        tasks=tuple(sorted(tasks)),
        verdict=decided.verdict,
        reason=decided.reason,
        comparisons=decided.comparisons,
    )


@attrs.frozen(kw_only=True)
class _Decided:
    """A verdict with the scores of the trained arms and the comparisons behind it."""

    verdict: Verdict
    reason: str
    trained: Mapping[str, ArmScore]
    compared: Sequence[Compared]
    comparisons: tuple[Comparison, ...]
    checkpoints: tuple[Comparison, ...]


def _decide(question: Question, results: Sequence[ArmResult], planned: Mapping[str, int] | None) -> _Decided:
    arms: dict[str, list[ArmResult]] = {name: [] for name in planned or ()}
    for result in results:
        arms.setdefault(result.arm, []).append(result)
    trained = {
        name: arm_score(
            name,
            group,
            question.benchmark,
            question.metric,
            question.task_value,
            planned=None if planned is None else planned.get(name),
            left_out=question.left_out,
        )
        for name, group in arms.items()
    }
    compared = compare_arms(question, arms, trained)
    comparisons = strongest_claims(question, compared)
    checkpoints = checkpoint_claims(question, compared)
    verdict, reason = _verdict(question, comparisons, compared, trained)
    if verdict == "INCONCLUSIVE":
        reason += _of_these_runs_alone(question, checkpoints)
    return _Decided(
        verdict=verdict,
        reason=reason,
        trained=trained,
        compared=compared,
        comparisons=comparisons,
        checkpoints=checkpoints,
    )


def _of_these_runs_alone(question: Question, checkpoints: Sequence[Comparison]) -> str:
    """What holds of the models that were trained, where it isn't known whether the next run of their recipe is like them."""
    winners = [c.arm for c in checkpoints if c.outcome == "win"]
    if not winners:
        return ""
    return (
        f"; the runs of {', '.join(winners)} that were trained do beat {question.baseline}, "
        "but they differ too much to say so of the next run"
    )


def _verdict(
    question: Question,
    comparisons: Sequence[Comparison],
    compared: Sequence[Compared],
    trained: Mapping[str, ArmScore],
) -> tuple[Verdict, str]:
    invalid = [c.invalid for c in compared if c.invalid]
    if invalid:
        return "INVALID", invalid[0]
    outcomes = [c.outcome for c in comparisons]
    if not outcomes or all(outcome == "unscored" for outcome in outcomes):
        why = next((c.reason for c in comparisons if c.reason), None) or "; ".join(
            reason for score in trained.values() for reason in score.reasons
        )
        return (
            "INCONCLUSIVE",
            f"no arm could be compared with {question.baseline}: {why or 'nothing was scored'}",
        )
    winners = [c for c in comparisons if c.outcome == "win"]
    if winners and len(comparisons) == 1:
        lost = _lost_repeats(compared[0])
        if lost is not None:
            return "CANDIDATE", f"{winners[0].arm} beats {question.baseline}, but {lost}"
        return "SUPPORTED", f"{winners[0].arm} beats {question.baseline}"
    if winners:
        return (
            "CANDIDATE",
            f"{len(winners)} of {len(comparisons)} arms beat {question.baseline}; none was confirmed on fresh rollouts",
        )
    if all(outcome in ("tie", "loss") for outcome in outcomes):
        return "REFUTED", f"every arm ties with or loses to {question.baseline}"
    return "INCONCLUSIVE", _undecided(question, comparisons)


def _lost_repeats(compared: Compared) -> str | None:
    """Repeats without a score: those that are left may be the lucky ones."""
    for score in (compared.arm, compared.base):
        if len(score.runs) < score.planned:
            return f"only {len(score.runs)} of {score.planned} repeats of {score.arm} have a score"
    return None


def _undecided(question: Question, comparisons: Sequence[Comparison]) -> str:
    """Why nothing follows although something was compared."""
    unscored = [c.arm for c in comparisons if c.outcome == "unscored"]
    if unscored and not any(c.outcome == "inconclusive" for c in comparisons):
        were = "was" if len(unscored) == 1 else "were"
        return (
            f"no arm that was scored beats {question.baseline}, but {', '.join(unscored)} {were} not scored"
        )
    if question.minimum_effect > 0:
        return (
            f"the numbers neither show nor exclude an effect of {question.minimum_effect:g} "
            f"against {question.baseline}"
        )
    return f"no arm differs from {question.baseline} beyond what chance explains"


def _best(question: Question, trained: Mapping[str, ArmScore]) -> str | None:
    scored = [(score.value, name) for name, score in trained.items() if score.value is not None]
    if not scored:
        return None
    pick = max if question.direction == "max" else min
    best = pick(value for value, _ in scored)
    return next(name for value, name in scored if value == best)


def _test_looks(results: Sequence[ArmResult]) -> dict[str, int]:
    """How often each `test` entry was scored; a scoring that arms share counts once."""
    scorings = {
        (e.benchmark, result.run_id if e.step else "untrained", e.step)
        for result in results
        for e in result.evaluations
        if e.split == "test" and e.model is None
    }
    return dict(Counter(benchmark for benchmark, _, _ in sorted(scorings)))


def _weakened(decided: _Decided, results: Sequence[ArmResult]) -> list[str]:
    """What to keep in mind; an arm that failed is told of with its failure and not once more."""
    failed = {result.arm for result in results if result.failure is not None}
    lines = [
        f"{c.arm} was not scored: {c.reason}"
        for c in decided.comparisons
        if c.outcome == "unscored" and c.arm not in failed
    ]
    lines += [
        f"{score.arm}: {len(score.reasons)} repeat(s) without a score: {'; '.join(score.reasons)}"
        for score in decided.trained.values()
        if score.reasons and score.value is not None
    ]
    return [*lines, *(_missing(one) for one in decided.compared if one.missing)]


def _missing(one: Compared) -> str:
    """Tasks that don't count, since only one of both has a score of them."""
    named = ", ".join(one.missing[:MOST_NAMED]) + (", ..." if len(one.missing) > MOST_NAMED else "")
    tasks = "task has" if len(one.missing) == 1 else "tasks have"
    return f"{len(one.missing)} {tasks} a score of only one of {one.arm.arm} and {one.base.arm} and don't count: {named}"


def _settle(
    question: Question, comparisons: Sequence[Comparison], compared: Sequence[Compared]
) -> str | None:
    undecided = [
        Open(
            comparison=comparison,
            paired=claim,
            significant=comparison.p_corrected is not None and comparison.p_corrected <= ALPHA,
        )
        for comparison, c in zip(comparisons, compared, strict=True)
        if comparison.outcome == "inconclusive" and (claim := c.strongest) is not None
    ]
    return what_would_settle(
        [c.arm for c in comparisons if c.outcome == "win"],
        undecided,
        baseline=question.baseline,
        minimum=question.minimum_effect,
        level=ALPHA / max(1, len(compared)),
    )
