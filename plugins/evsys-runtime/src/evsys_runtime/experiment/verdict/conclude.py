"""The decision procedure: each arm against the baseline, corrected over arms, then the experiment's verdict."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence, Set
from typing import Literal

import attrs
import numpy as np

from evsys.types import ArmResult, Comparison, Conclusion, Outcome, Usage, Verdict, WithoutFlagged
from evsys_runtime.config.plan import ALPHA, MIN_TASKS
from evsys_runtime.evaluation.ranges import Range
from evsys_runtime.experiment.verdict.paired import Paired, holm, paired_difference
from evsys_runtime.experiment.verdict.power import detectable, smallest_p
from evsys_runtime.experiment.verdict.scores import ArmScore, TaskValue, arm_score, untrained_score
from evsys_runtime.experiment.verdict.settle import Open, what_would_settle

__all__ = ["BASE_MODEL", "Question", "conclude"]

NOT_A_MEAN = "the success metric is no mean over tasks, and this version tests means only"
BASE_MODEL = "base_model"


@attrs.frozen(kw_only=True)
class Question:
    """What the experiment asks, fixed before the first step.

    `task_value` computes the success metric on one task, `possible` says which values that can have, given the range of
    rewards (None where it isn't known); `seed` is the bootstrap's. Tasks `left_out` don't count.
    """

    benchmark: str
    metric: str
    direction: Literal["max", "min"]
    task_value: TaskValue
    baseline: str = BASE_MODEL
    minimum_effect: float = 0.0
    possible: Callable[[Range | None], Range | None] = lambda _rewards: None
    reward_range: Range | None = None
    seed: int = 0
    left_out: frozenset[str] = frozenset()

    @property
    def name(self) -> str:
        """`<benchmark>.<metric>`."""
        return f"{self.benchmark}.{self.metric}"


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
        correction="holm" if len(comparisons) > 1 else None,
        usage=usage,
        warnings=(*warnings, *_weakened(comparisons, trained, results)),
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
class _Compared:
    """A comparison before correction; `invalid` says why it can't be made at all."""

    arm: ArmScore
    base: ArmScore
    paired: Paired | None = None
    invalid: str | None = None
    uncomparable: str | None = None


@attrs.frozen(kw_only=True)
class _Decided:
    """A verdict with the scores of the trained arms and the comparisons behind it."""

    verdict: Verdict
    reason: str
    trained: Mapping[str, ArmScore]
    compared: Sequence[_Compared]
    comparisons: tuple[Comparison, ...]


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
    compared = [_compare(question, arms[name], trained, name) for name in arms if name != question.baseline]
    comparisons = _corrected(question, compared)
    verdict, reason = _verdict(question, comparisons, compared, trained)
    return _Decided(
        verdict=verdict, reason=reason, trained=trained, compared=compared, comparisons=comparisons
    )


def _compare(
    question: Question, group: Sequence[ArmResult], trained: Mapping[str, ArmScore], name: str
) -> _Compared:
    arm = trained[name]
    if question.baseline == BASE_MODEL:
        # Only repeats that were trained and scored: their starting weights are what they are compared with.
        counted = [result for result in group if result.run_id in arm.runs] or group
        base = untrained_score(
            counted, question.benchmark, question.metric, question.task_value, left_out=question.left_out
        )
    else:
        base = trained.get(question.baseline) or ArmScore(
            arm=question.baseline, reasons=(f"{question.baseline}: it never ran",)
        )
    for score in (arm, base):
        if score.invalid is not None:
            return _Compared(arm=arm, base=base, invalid=score.invalid)
    if arm.value is None or base.value is None:
        return _Compared(arm=arm, base=base)
    # Sorted, so that the order of tasks in a file changes no bit of the bootstrap.
    common = sorted(task for task in arm.values if task in base.values)
    if len(arm.hashes | base.hashes) > 1:
        changed = f"the benchmark or its verifier differs between {name} and {base.arm}"
        return _Compared(arm=arm, base=base, invalid=changed)
    if len(common) < MIN_TASKS:
        few = f"{name} and {base.arm} share {len(common)} scored tasks, and at least {MIN_TASKS} are needed"
        return _Compared(arm=arm, base=base, invalid=few)
    if not (arm.is_mean and base.is_mean):
        return _Compared(arm=arm, base=base, uncomparable=NOT_A_MEAN)
    labels = None
    if arm.clusters:
        names = {cluster: index for index, cluster in enumerate(sorted(set(arm.clusters.values())))}
        labels = np.array(
            [
                names[arm.clusters[task]] if task in arm.clusters else len(names) + i
                for i, task in enumerate(common)
            ]
        )
    paired = paired_difference(
        np.array([arm.values[task] for task in common]),
        np.array([base.values[task] for task in common]),
        labels,
        sign=1.0 if question.direction == "max" else -1.0,
        binary=arm.binary and base.binary,
        seed=question.seed,
        largest=_largest(question, arm, base),
    )
    return _Compared(arm=arm, base=base, paired=paired)


def _largest(question: Question, arm: ArmScore, base: ArmScore) -> float | None:
    """The largest difference that a task can have; None where that isn't known."""
    zero_one = (0.0, 1.0) if arm.zero_one and base.zero_one else None
    possible = question.possible(question.reward_range or zero_one)
    width = possible[1] - possible[0] if possible else math.inf
    return width if 0 < width < math.inf else None


def _corrected(question: Question, compared: Sequence[_Compared]) -> tuple[Comparison, ...]:
    made = [c for c in compared if c.paired is not None]
    corrected = dict(
        zip(
            (c.arm.arm for c in made),
            holm([c.paired.p_value for c in made if c.paired is not None], family=len(compared)),
            strict=True,
        )
    )
    return tuple(_comparison(question, c, corrected.get(c.arm.arm), len(compared)) for c in compared)


def _comparison(
    question: Question, compared: _Compared, p_corrected: float | None, family: int
) -> Comparison:
    arm, base, paired = compared.arm, compared.base, compared.paired
    if compared.uncomparable is not None:
        return Comparison(
            arm=arm.arm,
            outcome="inconclusive",
            before=base.value,
            after=arm.value,
            n_seeds=len(arm.runs),
            reason=compared.uncomparable,
        )
    if paired is None or p_corrected is None:
        reason = compared.invalid or "; ".join(dict.fromkeys((*arm.reasons, *base.reasons)))
        return Comparison(
            arm=arm.arm, outcome="unscored", before=base.value, after=arm.value, reason=reason or "not scored"
        )
    runs = len(arm.runs)
    claim = "one training run per recipe" if runs == 1 else f"{runs} training runs per recipe"
    return Comparison(
        arm=arm.arm,
        outcome=_outcome(paired, p_corrected, question.minimum_effect),
        before=base.value,
        after=arm.value,
        effect=paired.effect,
        low=_finite(paired.low),
        high=_finite(paired.high),
        p_value=paired.p_value,
        p_corrected=p_corrected,
        smallest_detectable_effect=detectable(paired, ALPHA),
        method=paired.method,
        claim="checkpoint",
        n_tasks=paired.n,
        n_seeds=runs,
        reason="; ".join(filter(None, (claim, _powerless(paired, family)))),
    )


def _finite(bound: float) -> float | None:
    """A bound of an interval; None where nothing can be excluded on that side."""
    return bound if math.isfinite(bound) else None


def _outcome(paired: Paired, p_corrected: float, minimum: float) -> Outcome:
    """Statistics.md 4.6: significant and large enough; equivalent; or not known."""
    significant = p_corrected <= ALPHA
    if significant and paired.effect > 0 and paired.effect >= minimum:
        return "win"
    if significant and paired.effect < 0 and -paired.effect >= minimum:
        return "loss"
    if -minimum <= paired.low and paired.high <= minimum:
        return "tie"
    return "inconclusive"


def _verdict(
    question: Question,
    comparisons: Sequence[Comparison],
    compared: Sequence[_Compared],
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


def _lost_repeats(compared: _Compared) -> str | None:
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


def _weakened(
    comparisons: Sequence[Comparison], trained: Mapping[str, ArmScore], results: Sequence[ArmResult]
) -> list[str]:
    """What to keep in mind; an arm that failed is told of with its failure and not once more."""
    failed = {result.arm for result in results if result.failure is not None}
    lines = [
        f"{c.arm} was not scored: {c.reason}"
        for c in comparisons
        if c.outcome == "unscored" and c.arm not in failed
    ]
    lines += [
        f"{score.arm}: {len(score.reasons)} repeat(s) without a score: {'; '.join(score.reasons)}"
        for score in trained.values()
        if score.reasons and score.value is not None
    ]
    return lines


def _powerless(paired: Paired, family: int) -> str | None:
    """Why a comparison couldn't have been significant whatever came out; None where it could."""
    level = ALPHA / max(1, family)
    if detectable(paired, level) is not None:
        return None
    units = f"{paired.clusters} {'clusters' if paired.clusters < paired.n else 'tasks'}"
    return f"{units} give p = {smallest_p(paired):.2g} at best, and {level:.2g} is needed"


def _settle(
    question: Question, comparisons: Sequence[Comparison], compared: Sequence[_Compared]
) -> str | None:
    undecided = [
        Open(
            comparison=comparison,
            paired=c.paired,
            significant=comparison.p_corrected is not None and comparison.p_corrected <= ALPHA,
        )
        for comparison, c in zip(comparisons, compared, strict=True)
        if comparison.outcome == "inconclusive" and c.paired is not None
    ]
    return what_would_settle(
        [c.arm for c in comparisons if c.outcome == "win"],
        undecided,
        baseline=question.baseline,
        minimum=question.minimum_effect,
        level=ALPHA / max(1, len(compared)),
    )
