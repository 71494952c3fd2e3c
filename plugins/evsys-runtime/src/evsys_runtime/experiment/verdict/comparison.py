"""Each arm against the baseline: aligned by task, by one test for all, and corrected over arms."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import attrs
import numpy as np
from numpy.typing import NDArray

from evsys.types import ArmResult, Comparison, Outcome, RunDeviation
from evsys_record.text import list_names
from evsys_runtime.config.arm_tree import BASE_MODEL
from evsys_runtime.config.plan import MIN_TASKS
from evsys_runtime.experiment.verdict.question import Question
from evsys_runtime.experiment.verdict.run_deviation import deviation_words, recipe_runs, with_own_runs
from evsys_runtime.experiment.verdict.scores import ArmScore, Padding, untrained_score
from evsys_stats.claims import boundaries, claim_p, name_of_test, outcome_p
from evsys_stats.corrections import Corrected, corrected
from evsys_stats.paired import Pair, Paired, paired_differences
from evsys_stats.power import detectable, smallest_p
from evsys_stats.ranges import Range
from evsys_stats.recipe import MIN_SEEDS, errors_with, recipe_claim
from evsys_stats.shrinkage import with_shrunken_effects
from evsys_stats.signs import ENUMERATE_UP_TO

__all__ = [
    "DRAWS",
    "NOT_A_MEAN",
    "AlignedArms",
    "ComparedArm",
    "align",
    "checkpoint_claims",
    "cluster_labels",
    "compare_arms",
    "draws_at",
    "finite",
    "largest_difference",
    "missing_repeats",
    "strongest_claims",
]

DRAWS = 10_000
"""Draws of the bootstrap, at least."""

_MOST_DRAWS = 200_000
_DRAWS_PER_LEVEL = 4
"""The smallest p-value of so many draws is a quarter of the level that it is compared with."""

NOT_A_MEAN = "the success metric is not a mean over tasks, and this version tests means only"


@attrs.frozen(kw_only=True)
class ComparedArm:
    """An arm alongside the baseline before correction; `invalid` says why they can't be compared at all.

    `paired` compares the trained models, `recipe` the recipes, where enough of them were. `missing` are tasks that only one of
    both has a score of. `deviation` is the run-to-run deviation that `recipe` takes from earlier runs, None if it has enough of its own.
    """

    arm: ArmScore
    base: ArmScore
    paired: Paired | None = None
    recipe: Paired | None = None
    missing: tuple[str, ...] = ()
    invalid: str | None = None
    uncomparable: str | None = None
    deviation: RunDeviation | None = None

    @property
    def scored(self) -> tuple[str, ...]:
        """Tasks of which at least one side has a score."""
        return tuple(sorted(self.arm.values.keys() | self.base.values.keys()))

    @property
    def missing_samples(self) -> tuple[int, int]:
        """Samples of these tasks without a score, of the arm and of the baseline."""
        arm, base = (
            sum(max(0, side.drawn - side.samples.get(task, 0)) for task in self.scored)
            for side in (self.arm, self.base)
        )
        return arm, base

    @property
    def tasks_with_missing(self) -> int:
        """Tasks of which either side lacks a sample."""
        sides = (self.arm, self.base)
        return sum(any(side.samples.get(task, 0) < side.drawn for side in sides) for task in self.scored)

    @property
    def strongest(self) -> Paired | None:
        """The claim that decides the outcome: the one about the recipe if there is one."""
        return self.recipe or self.paired


@attrs.frozen(kw_only=True)
class AlignedArms:
    """Two arms on the tasks that both have scores of, in one order."""

    tasks: tuple[str, ...]
    pair: Pair


def compare_arms(
    question: Question,
    arms: Mapping[str, Sequence[ArmResult]],
    trained: Mapping[str, ArmScore],
    padding: Padding | None = None,
) -> list[ComparedArm]:
    """Compare each arm but the baseline with it.

    All of them by the same test, so that their p-values mean the same: McNemar's only where every arm has one 0/1 outcome a task.

    Args:
        question: what is asked.
        arms: each arm's results by its name.
        trained: each arm's score.
        padding: rewards for missing samples of untrained weights; None leaves them out.
    """
    names = [name for name in arms if name != question.baseline and question.contrast in (None, name)]
    found = [_side_by_side(question, arms[name], trained, name, padding) for name in names]
    sides = [_align(question, one) if _is_comparable(one) else None for one in found]
    pairs = [each.pair for each in sides if each is not None]
    binary = all(one.arm.binary and one.base.binary for one, each in zip(found, sides, strict=True) if each)
    level = question.level / max(1, len(found))
    draws = draws_at(level)
    made = iter(
        paired_differences(pairs, sign=_sign(question), binary=binary, draws=draws, seed=question.seed)
    )
    return [
        one
        if each is None
        else _add_recipe_claim(question, attrs.evolve(one, paired=next(made)), each, level)
        for one, each in zip(found, sides, strict=True)
    ]


def draws_at(level: float) -> int:
    """How many draws of the bootstrap can show a difference at a level, after correction for all arms."""
    return min(_MOST_DRAWS, max(DRAWS, math.ceil(_DRAWS_PER_LEVEL / level)))


def _sign(question: Question) -> float:
    return 1.0 if question.direction == "max" else -1.0


def _is_comparable(one: ComparedArm) -> bool:
    return one.invalid is None and one.uncomparable is None and None not in (one.arm.value, one.base.value)


def _side_by_side(
    question: Question,
    group: Sequence[ArmResult],
    trained: Mapping[str, ArmScore],
    name: str,
    padding: Padding | None,
) -> ComparedArm:
    """An arm and its baseline, and why nothing can be said of them."""
    arm = trained[name]
    if question.baseline == BASE_MODEL:
        # Only repeats that were trained and scored: their starting weights are what they are compared with.
        counted = [result for result in group if result.run_id in arm.runs] or group
        base = untrained_score(
            counted,
            question.benchmark,
            question.metric,
            question.task_value,
            left_out=question.left_out,
            padding=padding,
        )
    else:
        base = trained.get(question.baseline) or ArmScore(
            arm=question.baseline, reasons=(f"{question.baseline}: it never ran",)
        )
    for score in (arm, base):
        if score.invalid is not None:
            return ComparedArm(arm=arm, base=base, invalid=score.invalid)
    if arm.value is None or base.value is None:
        return ComparedArm(arm=arm, base=base)
    common = arm.values.keys() & base.values.keys()
    missing = tuple(sorted(arm.values.keys() ^ base.values.keys()))
    invalid = uncomparable = None
    if len(arm.hashes | base.hashes) > 1:
        invalid = f"the benchmark or its verifier differs between {name} and {base.arm}"
    elif len(common) < MIN_TASKS:
        invalid = (
            f"{name} and {base.arm} share {len(common)} scored tasks, and at least {MIN_TASKS} are needed"
        )
    elif (distinct := len({arm.copies.get(task, task) for task in common})) < MIN_TASKS:
        invalid = (
            f"{name} and {base.arm} share {len(common)} scored tasks, but only {distinct} different ones, "
            f"and at least {MIN_TASKS} are needed"
        )
    elif not (arm.is_mean and base.is_mean):
        uncomparable = NOT_A_MEAN
    return ComparedArm(arm=arm, base=base, missing=missing, invalid=invalid, uncomparable=uncomparable)


def _align(question: Question, one: ComparedArm) -> AlignedArms:
    largest = largest_difference(question.possible, one.arm, one.base, question.reward_range)
    return align(one.arm, one.base, one.arm.clusters, largest)


def align(arm: ArmScore, base: ArmScore, clusters: Mapping[str, str], largest: float | None) -> AlignedArms:
    """Two arms on the tasks that both have scores of.

    Args:
        arm: one of them, with the clusters or without.
        base: what it is compared with.
        clusters: the cluster of each task that belongs to one.
        largest: the largest difference that a task can have; None where that isn't known.
    """
    # Sorted, so that the order of tasks in a file changes no bit of the bootstrap.
    tasks = tuple(sorted(arm.values.keys() & base.values.keys()))
    pair = Pair(
        arm=np.array([arm.values[task] for task in tasks]),
        baseline=np.array([base.values[task] for task in tasks]),
        clusters=cluster_labels(clusters, tasks),
        largest=largest,
        tasks=tasks,
    )
    return AlignedArms(tasks=tasks, pair=pair)


def cluster_labels(clusters: Mapping[str, str], tasks: Sequence[str]) -> NDArray[np.int64] | None:
    """A number a cluster; a task without one is its own. None where no task has one."""
    if not clusters:
        return None
    names = {cluster: index for index, cluster in enumerate(sorted(set(clusters.values())))}
    return np.array(
        [names[clusters[task]] if task in clusters else len(names) + i for i, task in enumerate(tasks)]
    )


def largest_difference(
    possible: Callable[[Range | None], Range | None],
    arm: ArmScore,
    base: ArmScore,
    rewards: Range | None = None,
) -> float | None:
    """The largest difference that a task can have; None if unknown.

    Args:
        possible: the values that the metric can have, given the range of rewards.
        arm: one of the two.
        base: the other one.
        rewards: their range, if known; else the range of the observed ones.
    """
    zero_one = (0.0, 1.0) if arm.zero_one and base.zero_one else None
    values = possible(rewards or zero_one)
    width = values[1] - values[0] if values else math.inf
    return width if 0 < width < math.inf else None


def _add_recipe_claim(
    question: Question, one: ComparedArm, aligned: AlignedArms, level: float
) -> ComparedArm:
    """With the claim about recipes, where both have enough runs of theirs; a model that wasn't trained needs none."""
    trained = question.baseline != BASE_MODEL
    arm = _matrix(one.arm, aligned.tasks)
    base = _matrix(one.base, aligned.tasks) if trained else aligned.pair.baseline[None, :]
    if one.paired is None:
        return one
    clusters, sign = aligned.pair.clusters, _sign(question)
    few = len(arm) < MIN_SEEDS or (trained and len(base) < MIN_SEEDS)
    deviation = _deviation(question, one, [arm, base] if trained else [arm]) if few else None
    if few and deviation is None:
        return one
    recipe = recipe_claim(
        one.paired,
        arm,
        base,
        clusters,
        sign=sign,
        corrected_level=level,
        largest=aligned.pair.largest,
        errors=None if deviation is None else errors_with(deviation, arm, base, clusters, trained=trained),
    )
    return attrs.evolve(one, recipe=recipe, deviation=deviation)


def _deviation(
    question: Question, one: ComparedArm, sides: Sequence[NDArray[np.float64]]
) -> RunDeviation | None:
    """The run-to-run deviation of these recipes: that of similar ones, together with what their own runs show."""
    known = question.deviation
    if known is None or known.metric != question.name:
        return None
    own = []
    for scores in sides:
        whole = scores[:, ~np.isnan(scores).any(axis=0)]
        if len(whole) > 1 and whole.shape[1] > 1:
            own.append(recipe_runs(None, one.arm.arm, [str(i) for i in range(len(whole))], whole))
    return with_own_runs(known, own)


def _matrix(score: ArmScore, tasks: Sequence[str]) -> NDArray[np.float64]:
    """[S, n], NaN where a run has no score of a task; a run that has none at all is left out."""
    rows = np.array([[run.get(task, math.nan) for task in tasks] for run in score.by_run])
    return rows[~np.isnan(rows).all(axis=1)]


def missing_repeats(compared: ComparedArm) -> str | None:
    """Repeats without a score: the remaining ones may be the lucky ones. None where there are none."""
    for score in (compared.arm, compared.base):
        if len(score.runs) < score.planned:
            return f"only {len(score.runs)} of {score.planned} repeats of {score.arm} have a score"
    return None


def strongest_claims(question: Question, compared: Sequence[ComparedArm]) -> tuple[Comparison, ...]:
    """The comparisons that the verdict hangs on: about recipes where an arm and the baseline have enough training runs."""
    return _correct(question, compared, [one.strongest for one in compared])


def checkpoint_claims(question: Question, compared: Sequence[ComparedArm]) -> tuple[Comparison, ...]:
    """The same about the models trained alone; none where `strongest_claims` says nothing else."""
    if all(one.recipe is None for one in compared):
        return ()
    return _correct(question, compared, [one.paired for one in compared])


def _correct(
    question: Question, compared: Sequence[ComparedArm], claims: Sequence[Paired | None]
) -> tuple[Comparison, ...]:
    made = [claim for claim in claims if claim is not None]
    minimum = question.minimum_effect
    found = corrected(
        made,
        [outcome_p(claim, minimum) for claim in made],
        family=len(compared),
        level=question.level,
        at_zero=minimum == 0,
    )
    p_values = iter(found.p_values)
    comparisons = [
        _without_comparison(one)
        if claim is None
        else _comparison(question, one, claim, next(p_values), found)
        for one, claim in zip(compared, claims, strict=True)
    ]
    return with_shrunken_effects(
        comparisons, [None if claim is None else claim.standard_error for claim in claims]
    )


def _without_comparison(compared: ComparedArm) -> Comparison:
    """An arm that nothing is said of."""
    arm, base = compared.arm, compared.base
    if compared.uncomparable is not None:
        return Comparison(
            arm=arm.arm,
            outcome="inconclusive",
            before=base.value,
            after=arm.value,
            n_seeds=len(arm.runs),
            n_baseline_seeds=len(base.runs),
            reason=compared.uncomparable,
        )
    invalid = None if compared.invalid is None else f"invalid: {compared.invalid}"
    reason = invalid or _merge_reasons((*arm.reasons, *base.reasons))
    return Comparison(
        arm=arm.arm, outcome="unscored", before=base.value, after=arm.value, reason=reason or "not scored"
    )


def _merge_reasons(reasons: Sequence[str]) -> str:
    """The reasons of runs, each `RUN: WHY`, with the runs of the same reason in one place."""
    runs: dict[str, list[str]] = {}
    for reason in dict.fromkeys(reasons):
        run, _, why = reason.partition(": ")
        runs.setdefault(why, []).append(run)
    return "; ".join(
        f"{list_names(names)}: {why}" if why else list_names(names) for why, names in runs.items()
    )


def _comparison(
    question: Question, compared: ComparedArm, claim: Paired, p_corrected: float, family: Corrected
) -> Comparison:
    arm, base = compared.arm, compared.base
    low, high = claim.interval(family.single_level, boundaries(question.minimum_effect))
    return Comparison(
        arm=arm.arm,
        outcome=_outcome(question, claim, p_corrected),
        before=base.value,
        after=arm.value,
        effect=claim.effect,
        low=finite(low),
        high=finite(high),
        p_value=outcome_p(claim, question.minimum_effect),
        p_corrected=p_corrected,
        level=question.level,
        standard_error=claim.standard_error,
        correction=family.method,
        smallest_detectable_effect=detectable(claim, question.level),
        method=name_of_test(claim, question.minimum_effect),
        claim="checkpoint" if claim.seeds is None else "recipe",
        n_tasks=claim.n,
        n_units=claim.clusters,
        n_seeds=len(arm.runs),
        n_baseline_seeds=len(base.runs),
        n_missing=compared.tasks_with_missing,
        missing_samples=compared.missing_samples[0],
        baseline_missing_samples=compared.missing_samples[1],
        reason="; ".join(
            filter(None, (_runs(question, compared), _powerless(question, claim, family.count)))
        ),
    )


def _deviation_note(compared: ComparedArm, claim: Paired) -> str | None:
    if compared.deviation is None or claim.seeds is None:
        return None
    return deviation_words(compared.deviation)


def _runs(question: Question, compared: ComparedArm) -> str:
    arm, base = len(compared.arm.runs), len(compared.base.runs)
    if question.baseline != BASE_MODEL and arm != base:
        return f"{arm} training run{'s' * (arm != 1)} and {base} of {question.baseline}"
    return "one training run per recipe" if arm == 1 else f"{arm} training runs per recipe"


def finite(bound: float) -> float | None:
    """A bound of an interval; None where nothing can be excluded on that side."""
    return bound if math.isfinite(bound) else None


def _outcome(question: Question, claim: Paired, p_corrected: float) -> Outcome:
    """Shown to be larger than the least that counts; equivalent; or not known."""
    if p_corrected <= question.level and claim.effect != 0:
        return "win" if claim.effect > 0 else "loss"
    if question.margin > 0 and claim_p("equal", question.margin, claim) <= question.level:
        return "tie"
    return "inconclusive"


def _powerless(question: Question, claim: Paired, family: int) -> str | None:
    """Why a comparison couldn't have been significant in any outcome; None if it could."""
    level = question.level / max(1, family)
    drawn = not claim.exact_binary and claim.clusters > ENUMERATE_UP_TO
    least = max(smallest_p(claim), 1 / (draws_at(level) + 1) if drawn else 0.0)
    if least <= level and detectable(claim, level) is not None:
        return None
    units = f"{claim.clusters} {'clusters' if claim.clusters < claim.n else 'tasks'}"
    return f"{units} give p = {least:.2g} at best, and {level:.2g} is needed"
