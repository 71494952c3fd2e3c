"""The decision procedure: each arm against the baseline, corrected over arms, then the experiment's verdict."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence, Set

import attrs
import numpy as np

from evsys.types import (
    ArmResult,
    ClaimResult,
    Comparison,
    Conclusion,
    Confirmed,
    NoiseFloor,
    Procedure,
    RunDeviation,
    Settling,
    SettlingPoint,
    Subject,
    Usage,
    Verdict,
    WithoutFlagged,
)
from evsys_record.text import list_names
from evsys_runtime.config.arm_tree import BASE_MODEL
from evsys_runtime.experiment.verdict.comparison import ComparedArm, draws_at
from evsys_runtime.experiment.verdict.confirmation import Confirming, confirmed_verdict
from evsys_runtime.experiment.verdict.decision import best_held, subject_of, verdict_of
from evsys_runtime.experiment.verdict.floor import floor_words
from evsys_runtime.experiment.verdict.leak import marked_leak
from evsys_runtime.experiment.verdict.missing import compare_with_baseline, missing_warning
from evsys_runtime.experiment.verdict.noise import runs_above, with_limit
from evsys_runtime.experiment.verdict.question import Question
from evsys_runtime.experiment.verdict.run_deviation import deviation_words
from evsys_runtime.experiment.verdict.scores import ArmScore
from evsys_runtime.experiment.verdict.settle import Advice, Open, settling_advice
from evsys_runtime.experiment.verdict.settling_curve import Costs
from evsys_runtime.experiment.verdict.tables import number, signed_text
from evsys_stats.recipe import MIN_SEEDS

__all__ = ["conclude", "test_looks"]

MOST_NAMED = 5
"""Tasks named in a warning."""


def conclude(
    question: Question | None,
    results: Sequence[ArmResult],
    *,
    planned: Mapping[str, int] | None = None,
    warnings: Sequence[str] = (),
    flagged: Set[str] = frozenset(),
    confirming: Confirming | None = None,
    noise: NoiseFloor | None = None,
    deviation: RunDeviation | None = None,
    allow_leak: bool = False,
) -> Conclusion:
    """Say what the numbers allow, and no more.

    Args:
        question: None when the experiment names nothing to decide by.
        results: every arm at every reached repeat, failed ones included.
        planned: how many repeats of each compared arm were planned; by default those in `results`. An arm
            that was never reached counts in every correction.
        warnings: what weakens the conclusion, found on the way.
        flagged: tasks of the benchmark that decides among training rows; the verdict is then given without
            them as well.
        confirming: what was asked of the winner again; None where nothing was. Its runs then decide, and have no
            part in the rest.
        deviation: how far training runs of similar recipes on record differ; None where too few are known.
        noise: how far equal runs of the baseline fall apart, here or in an earlier experiment; None where no one
            knows.
        allow_leak: decide although more than `MOST_LEAKED` of the tasks are flagged; the conclusion is marked.
    """
    usage = sum((result.usage for result in results), Usage())
    if question is None:
        return Conclusion(
            verdict=None,
            test_looks=test_looks(results),
            reason="no success metric: nothing was to be decided",
            usage=usage,
            warnings=tuple(warnings),
        )
    question = attrs.evolve(question, deviation=deviation)
    if confirming is not None:
        confirming = confirming.with_deviation(deviation)
    if noise is not None:
        if confirming is not None:
            confirming = confirming.with_noise(with_limit(noise, 1, question.level))
        noise = with_limit(noise, _compared_arms(question, results, planned), question.level)
        question = attrs.evolve(question, noise=noise)
    decided = _decide(question, results, planned, confirming)
    trained, comparisons = decided.trained, decided.comparisons
    best_arm, best_score = _best(question, trained)
    advice = (
        _settle(question, decided, confirming) if decided.verdict in ("INCONCLUSIVE", "CANDIDATE") else None
    )
    conclusion = Conclusion(
        verdict=decided.verdict,
        reason=decided.reason,
        metric=question.name,
        direction=question.direction,
        baseline=question.baseline,
        minimum_effect=question.minimum_effect,
        claim=question.claim,
        margin=question.margin,
        subject=decided.subject,
        claims=decided.claims,
        best_arm=best_arm,
        best_score=best_score,
        comparisons=comparisons,
        checkpoints=decided.checkpoints,
        procedure=Procedure(
            level=question.level,
            draws=draws_at(question.level / max(1, len(decided.compared))),
            seed=question.seed,
            numpy=np.__version__,
        ),
        correction=next((c.correction for c in comparisons if c.correction is not None), None),
        usage=usage,
        warnings=(*warnings, *_weaknesses(decided, results)),
        test_looks=test_looks(results),
        settle=None if advice is None else advice.words,
        settling=None if advice is None else advice.settling,
        settling_curve=() if advice is None else _with_costs(question, decided, results, advice.curve),
        confirmed=decided.confirmed,
        noise_floor=noise,
        run_deviation=deviation,
        without_flagged=_verdict_without_tasks(question, results, planned, flagged, confirming),
    )
    return marked_leak(conclusion, results, allow=allow_leak)


def _compared_arms(
    question: Question, results: Sequence[ArmResult], planned: Mapping[str, int] | None
) -> int:
    """How many arms are compared, including those never reached."""
    if question.contrast is not None:
        return 1
    names = {*(planned or ()), *(result.arm for result in results if result.purpose == "candidate")}
    return max(1, len(names - {question.baseline}))


def _verdict_without_tasks(
    question: Question,
    results: Sequence[ArmResult],
    planned: Mapping[str, int] | None,
    flagged: Set[str],
    confirming: Confirming | None,
) -> WithoutFlagged | None:
    """The same question about the other tasks; None where none of `flagged` was scored."""
    deciding = (question if confirming is None else confirming.question).benchmark
    scorings = [e for result in results for e in result.evaluations if e.benchmark == deciding]
    tasks = frozenset(flagged & {task for e in scorings if e.model is None for task in e.task_rewards})
    if not tasks:
        return None
    if question.benchmark == deciding:
        question = attrs.evolve(question, left_out=tasks)
    if confirming is not None:
        confirming = attrs.evolve(confirming, question=attrs.evolve(confirming.question, left_out=tasks))
    decided = _decide(question, results, planned, confirming)
    comparisons = decided.comparisons
    if decided.confirmed is not None and question.benchmark != deciding:
        comparisons = (decided.confirmed.comparison,)  # those of the other entry are as they were
    return WithoutFlagged(
        benchmark=deciding,
        tasks=tuple(sorted(tasks)),
        verdict=decided.verdict,
        reason=decided.reason,
        comparisons=comparisons,
    )


@attrs.frozen(kw_only=True)
class _Decision:
    """A verdict with the scores of the trained arms and the comparisons behind it."""

    verdict: Verdict
    reason: str
    trained: Mapping[str, ArmScore]
    compared: Sequence[ComparedArm]
    comparisons: tuple[Comparison, ...]
    checkpoints: tuple[Comparison, ...]
    claims: tuple[ClaimResult, ...]
    subject: Subject | None
    confirmed: Confirmed | None = None
    again: _Decision | None = None


def _decide(
    question: Question,
    results: Sequence[ArmResult],
    planned: Mapping[str, int] | None,
    confirming: Confirming | None,
) -> _Decision:
    """The verdict of the compared arms; where a winner was tried again, of that."""
    candidates = [result for result in results if result.purpose == "candidate"]
    first = _make_decision(question, candidates, planned)
    if confirming is None:
        return first
    fresh = [result for result in results if result.purpose == "confirm"]
    again = _make_decision(confirming.question, fresh, confirming.planned)
    (comparison,), (compared,) = again.comparisons, again.compared
    confirmed = Confirmed(
        benchmark=confirming.question.benchmark,
        metric=confirming.question.name,
        seeds=confirming.seeds,
        seeds_reason=confirming.seeds_reason,
        runs=tuple(result.run_id for result in fresh),
        comparison=comparison,
    )
    verdict, reason, subject = first.verdict, first.reason, first.subject
    others = [c for c in first.comparisons if c.arm != confirming.winner]
    won = any(c.outcome == "win" for c in first.comparisons if c.arm == confirming.winner)
    # Without the tasks that it was trained on the choice may be no winner, and then only its fresh runs can make it one.
    if verdict != "INVALID" and (won or comparison.outcome == "win"):
        verdict, reason = confirmed_verdict(confirming, confirmed, compared, others)
        reason += _source(verdict, [compared])
        subject = again.subject
    return attrs.evolve(
        first, verdict=verdict, reason=reason, subject=subject, confirmed=confirmed, again=again
    )


def _make_decision(
    question: Question, results: Sequence[ArmResult], planned: Mapping[str, int] | None
) -> _Decision:
    arms: dict[str, list[ArmResult]] = {name: [] for name in planned or ()}
    for result in results:
        arms.setdefault(result.arm, []).append(result)
    found = compare_with_baseline(question, arms, planned)
    trained, compared = found.trained, found.compared
    comparisons, checkpoints = found.comparisons, found.checkpoints
    verdict, reason = verdict_of(question, comparisons, compared, found.claims, trained)
    if verdict == "INCONCLUSIVE" and question.claim == "better":
        reason += _checkpoint_claim(question, checkpoints, compared)
    reason += _source(verdict, compared)
    return _Decision(
        verdict=verdict,
        reason=reason,
        trained=trained,
        compared=compared,
        comparisons=comparisons,
        checkpoints=checkpoints,
        claims=found.claims,
        subject=subject_of(comparisons),
    )


def _checkpoint_claim(
    question: Question, checkpoints: Sequence[Comparison], compared: Sequence[ComparedArm]
) -> str:
    """The claim about the trained models, if it isn't known whether the next run of their recipe is like them."""
    winners = [c.arm for c in checkpoints if c.outcome == "win"]
    if not winners:
        return ""
    known = next((c.deviation for c in compared if c.deviation is not None and c.arm.arm in winners), None)
    why = (
        "they differ too much to expect the same of the next run"
        if known is None
        else f"the next run may not ({deviation_words(known)})"
    )
    return f"; the runs of {list_names(winners)} that were trained do beat {question.baseline}, but {why}"


def _source(verdict: Verdict, compared: Sequence[ComparedArm]) -> str:
    """Whose runs a verdict about a recipe rests on besides its own."""
    known = next((c.deviation for c in compared if c.deviation is not None), None)
    return f" ({deviation_words(known)})" if known is not None and verdict in ("SUPPORTED", "REFUTED") else ""


def _best(question: Question, trained: Mapping[str, ArmScore]) -> tuple[str, float] | tuple[None, None]:
    """The arm with the best score, the first of several, and the score."""
    scored = [(score.value, name) for name, score in trained.items() if score.value is not None]
    if not scored:
        return None, None
    pick = max if question.direction == "max" else min
    best = pick(value for value, _ in scored)
    return next(name for value, name in scored if value == best), best


def test_looks(results: Sequence[ArmResult]) -> dict[str, int]:
    """How often each `test` entry was scored; a scoring that arms share counts once."""
    scorings = {
        (e.benchmark, result.run_id if e.step else "untrained", e.step)
        for result in results
        for e in result.evaluations
        if e.split == "test" and e.model is None
    }
    return dict(Counter(benchmark for benchmark, _, _ in sorted(scorings)))


def _weaknesses(decided: _Decision, results: Sequence[ArmResult]) -> list[str]:
    """Warnings about the conclusion; a failed arm is listed with its failure only."""
    failed = {result.arm for result in results if result.failure is not None}
    lines = [
        f"{c.arm} has no score that counts: {c.reason}"
        for c in decided.comparisons
        if c.outcome == "unscored" and c.arm not in failed
    ]
    lines += [
        f"{score.arm}: {len(score.reasons)} repeat(s) without a score: {'; '.join(score.reasons)}"
        for score in decided.trained.values()
        if score.reasons and score.value is not None
    ]
    lines += [_missing(one) for one in decided.compared if one.missing]
    lines += [line for one in decided.compared if (line := missing_warning(one)) is not None]
    lines += dict.fromkeys(
        line
        for comparison, one in zip(decided.comparisons, decided.compared, strict=True)
        if (line := _run_variation_note(comparison, one)) is not None
    )
    if decided.again is None:
        return lines
    return [*lines, *(f"confirmation: {line}" for line in _weaknesses(decided.again, results))]


def _run_variation_note(comparison: Comparison, one: ComparedArm) -> str | None:
    """That equal runs differ as much as the arms do, where a win or a loss is of these very models and says nothing of the next run."""
    if comparison.claim != "checkpoint" or comparison.outcome not in ("win", "loss"):
        return None
    spreads = {score.arm: _spread(score) for score in (one.arm, one.base)}
    name = max(spreads, key=lambda arm: spreads[arm])
    if spreads[name] < abs(comparison.effect or 0.0):
        return None
    return (
        f"equal runs of {name} fall {number(spreads[name])} apart, and {comparison.arm} differs by {signed_text(comparison.effect)}: "
        f"the next run may differ; {MIN_SEEDS} training runs of each recipe would decide"
    )


def _spread(score: ArmScore) -> float:
    """How far the runs of an arm lie apart, by the means over their tasks."""
    means = [math.fsum(run.values()) / len(run) for run in score.by_run if run]
    return max(means) - min(means) if means and score.is_mean else 0.0


def _missing(one: ComparedArm) -> str:
    """Tasks that don't count, since only one of both has a score of them."""
    named = ", ".join(one.missing[:MOST_NAMED]) + (", ..." if len(one.missing) > MOST_NAMED else "")
    tasks = "task has" if len(one.missing) == 1 else "tasks have"
    return f"{len(one.missing)} {tasks} a score of only one of {one.arm.arm} and {one.base.arm} and don't count: {named}"


def _with_costs(
    question: Question, decided: _Decision, results: Sequence[ArmResult], curve: Sequence[SettlingPoint]
) -> tuple[SettlingPoint, ...]:
    """The points with the seconds and the price of an experiment of that size, by what the runs here took."""
    costs = Costs.of(results, question.benchmark) if curve else None
    if costs is None:
        return tuple(curve)
    runs = max((each.n_seeds for each in decided.comparisons), default=1)
    tasks = max((each.n_tasks for each in decided.comparisons), default=0)
    sides = 1 if question.baseline == BASE_MODEL else 2
    return tuple(costs.of_point(each, runs=max(1, runs), tasks=tasks, sides=sides) for each in curve)


def _settle(question: Question, decided: _Decision, confirming: Confirming | None) -> Advice | None:
    """Advice to settle an open verdict, or an open confirmation."""
    again = decided.again
    if confirming is not None and again is not None and again.comparisons[0].outcome == "inconclusive":
        return _settling_advice(confirming.question, again, winners=())
    tried = again.comparisons[0] if again is not None else None
    # One that fell behind in its second trial isn't tried a third time.
    fell = {tried.arm} if tried is not None and tried.outcome in ("tie", "loss") else set()
    winners = [c.arm for c in decided.comparisons if c.outcome == "win" and c.arm not in fell]
    return _settling_advice(question, decided, winners=winners)


def _settling_advice(question: Question, decided: _Decision, *, winners: Sequence[str]) -> Advice | None:
    missing = next((c for c in decided.comparisons if c.missing_decides), None)
    if missing is not None and not winners:
        return Advice(
            words=f"the scores of the samples of {missing.arm} and {question.baseline} that have none"
        )
    held = None if winners else best_held(question, decided.comparisons)
    if held is not None and held.effect and question.noise is not None:
        noise = with_limit(question.noise, len(decided.compared), question.coming_level)
        runs = runs_above(noise, held.effect)
        return Advice(
            words=f"{runs} training runs of {held.arm} and of {question.baseline}: if the effect stays, their means are above the noise",
            settling=Settling(arm=held.arm, runs=runs),
        )
    floored = [one for one in decided.compared if floor_words(question, one) is not None]
    undecided = [
        Open(
            comparison=comparison,
            paired=claim,
            significant=len(decided.compared) * claim.p_value <= question.level,  # of any effect at all
        )
        for comparison, c in zip(decided.comparisons, decided.compared, strict=True)
        if comparison.outcome == "inconclusive" and c not in floored and (claim := c.strongest) is not None
    ]
    if floored and not undecided and not winners:
        return Advice(words=f"tasks of which {question.baseline} solves some: easier ones, or partial credit")
    return settling_advice(
        winners,
        undecided,
        question=question,
        level=question.coming_level / max(1, len(decided.compared)),
    )
