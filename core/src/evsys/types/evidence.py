"""The evidence behind a conclusion: claims and their outcomes, noise between equal runs, forgetting, and the sample
size that would settle it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import attrs

__all__ = [
    "Claim",
    "ClaimOutcome",
    "ClaimResult",
    "Forgetting",
    "GuardResult",
    "Look",
    "LookSeries",
    "LossOutcome",
    "LossTest",
    "NoiseFloor",
    "Procedure",
    "RecipeRuns",
    "ReusedRun",
    "RunDeviation",
    "Settling",
    "SettlingPoint",
    "Subject",
]

Claim = Literal["better", "no_worse", "equal", "worse"]
Subject = Literal["checkpoint", "recipe"]
ClaimOutcome = Literal["supported", "refuted", "undecided"]
LossOutcome = Literal["exceeded", "within", "undecided"]


@attrs.frozen(kw_only=True)
class RecipeRuns:
    """The `scores` of the training runs of one recipe on the success metric, by run, on the tasks that all of them have a score of.

    `sampling_variance` is the part of a run's variance that comes from sampling its rollouts.
    """

    experiment_id: str | None
    arm: str
    scores: Mapping[str, float]
    sampling_variance: float


@attrs.frozen(kw_only=True)
class RunDeviation:
    """How far training runs of one recipe differ: the standard deviation of a run's score on `metric`, known from similar recipes.

    `sampling_deviation` is the part of it that comes from sampling rollouts. `freedom` are the degrees of freedom behind it, which also count
    how much recipes differ; `runs` the runs, `experiments` whose they are. `recipes` are their scores, as they were when the
    conclusion was written, so that it can be recomputed; empty in a claim, which `run_deviation` of the conclusion has them for.
    """

    standard_deviation: float
    freedom: float
    runs: int
    experiments: tuple[str, ...] = ()
    metric: str | None = None
    sampling_deviation: float = 0.0
    recipes: tuple[RecipeRuns, ...] = ()


@attrs.frozen(kw_only=True)
class ClaimResult:
    """The outcome of one claim about one subject.

    The claim `better` is that the effect of `arm` against `against` exceeds `margin`; `worse` that it is below
    `-margin`, `no_worse` that it is above `-margin`, and `equal` that it lies between `-margin` and `margin`. The
    subject is this `checkpoint`, as trained and evaluated, or its `recipe`, hence any other training run of it.
    `p_value` is two-sided and tests the effect against the margin; of `equal` it is the larger of two;
    `p_corrected` and the interval are corrected over all arms by `correction`, `bonferroni` or `westfall-young`.
    `deviation` is the run-to-run deviation in the error, if it was known from earlier runs.
    """

    claim: Claim
    arm: str
    against: str
    margin: float
    subject: Subject
    outcome: ClaimOutcome
    effect: float
    low: float | None = None
    high: float | None = None
    p_value: float | None = None
    p_corrected: float | None = None
    test: str | None = None
    correction: str | None = None
    deviation: RunDeviation | None = None


@attrs.frozen(kw_only=True)
class Settling:
    """The number of `tasks` and of training `runs` a side that would decide on `arm`; None if the present number is
    enough.
    """

    arm: str
    tasks: int | None = None
    runs: int | None = None


@attrs.frozen(kw_only=True)
class SettlingPoint:
    """The number of `tasks` and of training `runs` a side that would show an `effect`; None if the present number
    is enough.

    `seconds` and `cost_usd` estimate an experiment of that size; None if unknown.
    """

    effect: float
    tasks: int | None = None
    runs: int | None = None
    seconds: float | None = None
    cost_usd: float | None = None


@attrs.frozen(kw_only=True)
class Procedure:
    """With what the numbers of a conclusion were made: the level of significance, the draws of the bootstrap and their seed."""

    level: float
    draws: int
    seed: int
    numpy: str


@attrs.frozen(kw_only=True)
class Look:
    """One test of a question: what an experiment concluded, with the arm that has the smallest corrected p-value.

    `level` is the level of significance that the look could spend, None in records that don't state it.
    """

    experiment_id: str
    verdict: str | None
    arm: str | None = None
    effect: float | None = None
    low: float | None = None
    high: float | None = None
    p_value: float | None = None
    level: float | None = None


@attrs.frozen(kw_only=True)
class LookSeries:
    """The place of a conclusion in the series of looks at its question.

    Two conclusions are about the same question if `metric`, `claim` and `baseline` are the same, at least half of the smaller set of
    tasks is in the other one, and they share one of the `levers`: the config keys in which the arms differ from the baseline, with a sign
    for numbers. `tasks` is the hash of the task contents.
    `number` counts from 1, and `earlier` has the looks before it, the oldest first. `level` is the part of `alpha`, the level of the whole series, that
    this look may spend. `scorings` is more than 1 if a run was ended by its scores, or an experiment between its repeats: it could have ended at any
    of them, so the level is divided by their number. `tested` is false if there was nothing to test, and `complete` if every planned run has a score; a look that
    tested nothing, or that the same experiment completed later, spends nothing. `rebuilt`: the project's ledger of looks was missing once and was
    made again from the experiments on record, so looks of deleted ones aren't known. `similar` counts the looks of other experiments at similar
    questions: on the same tasks, by another metric, claim, baseline or lever. `other_tasks` counts those at the same question on other tasks, `unasked` the
    trained runs scored on these tasks without a look, `elsewhere` the looks at this question that this user took in places
    whose ledger isn't the project's, and `repeated` the compared runs that score on each task as a run of an earlier look: that run may
    have been chosen for it. They spend nothing of the level.
    """

    number: int
    level: float
    alpha: float
    metric: str
    claim: str
    baseline: str
    levers: tuple[str, ...]
    tasks: str | None = None
    scorings: int = 1
    tested: bool = True
    complete: bool = True
    earlier: tuple[Look, ...] = ()
    rebuilt: bool = False
    similar: int = 0
    other_tasks: int = 0
    unasked: int = 0
    elsewhere: int = 0
    repeated: int = 0


@attrs.frozen(kw_only=True)
class NoiseFloor:
    """How far equal runs of the baseline fall apart on the success metric.

    `runs` maps each equal run to its score. `largest` is the largest difference between two of them, `standard_deviation` that of
    the difference of two such runs. An effect has to exceed `limit`, which none of the compared arms does by chance with 95 % probability, that of means over n and m
    runs `limit` times the root of (1/n + 1/m) / 2. In records without a `limit` it had to exceed `largest`.
    `identity` shows whether another experiment has the same baseline and tasks; `experiment_id` is the experiment that the runs are
    of, None for this one.
    """

    baseline: str
    metric: str
    runs: Mapping[str, float]
    largest: float
    standard_deviation: float
    identity: str | None = None
    experiment_id: str | None = None
    limit: float | None = None


@attrs.frozen(kw_only=True)
class GuardResult:
    """Whether the reward of a run and its guard parted ways: a `verifier` of the same rollouts, or a `benchmark`.

    A gap is the mean reward minus the mean score of the guard, both scaled to 0..1. `start_gap` is that of the start, `gap` the present one.
    `growth_low` is a lower bound of the largest growth of the expected gap, which holds at all checks together with probability `1 - level`.
    `log10_evidence` is the logarithm of the evidence for a growth beyond `margin`; the alarm is raised at `-log10(level)`. `suspected_step` is the
    step of the alarm and `reason` says why, None where there was none. `groups` were compared in `checks`; `unscored` rollouts had no score of one side.
    """

    verifier: str | None = None
    benchmark: str | None = None
    level: float
    margin: float
    checks: int = 0
    groups: int = 0
    unscored: int = 0
    start_gap: float | None = None
    gap: float | None = None
    growth_low: float | None = None
    log10_evidence: float | None = None
    suspected_step: int | None = None
    reason: str | None = None


@attrs.frozen(kw_only=True)
class LossTest:
    """Whether a chain of stages lost more of an earlier benchmark's score than allowed, tested before its next stage.

    `change` is the score after `stage` minus the score right after the benchmark's own stage, over the tasks that both scored, signed so that
    below 0 is a loss; `low` and `high` are its 95 % interval, None where nothing can be excluded on that side. `outcome` is `exceeded` where a
    loss beyond `limit` is shown at `level`, `within` where a smaller loss is shown, else `undecided`. `p_value` belongs to the test
    for `exceeded`; it is None, with a `reason`, where there was nothing to test.
    """

    run: str
    benchmark: str
    metric: str
    stage: str
    limit: str
    level: float
    outcome: LossOutcome
    change: float | None = None
    low: float | None = None
    high: float | None = None
    p_value: float | None = None
    reason: str | None = None


@attrs.frozen(kw_only=True)
class Forgetting:
    """The scores of an arm trained on dataset after dataset, on the benchmark of each of them, after each of them.

    `values` has a row a benchmark and a column a stage, before the first one that of the starting weights: means
    over the seeds of the arm, `low` and `high` their 95 % intervals, None if nothing was scored. `scored` says how
    many of the `seeds` each value is of, since those that ended early are in no later column; it is empty if a
    record doesn't say. `own` is the column of the stage that a benchmark belongs to. `changes` are the paired
    differences of each later score and the one in that column, over tasks, signed so that below 0 is a loss, with
    their 95 % intervals in `change_low` and `change_high`; they are empty in records from before there were any.
    `retention` is the ratio of the two scores: it describes, and decides nothing. `tests` are those that
    `maximum_loss` or `minimum_retention` asked for, at `level` per chain; `stopped` says which seeds ended early.
    """

    arm: str
    benchmarks: tuple[str, ...]
    metrics: tuple[str, ...]
    stages: tuple[str, ...]
    own: tuple[int, ...]
    values: tuple[tuple[float | None, ...], ...]
    low: tuple[tuple[float | None, ...], ...]
    high: tuple[tuple[float | None, ...], ...]
    retention: tuple[tuple[float | None, ...], ...]
    seeds: int = 1
    scored: tuple[tuple[int, ...], ...] = ()
    minimum_retention: float | None = None
    stopped: tuple[str, ...] = ()
    changes: tuple[tuple[float | None, ...], ...] = ()
    change_low: tuple[tuple[float | None, ...], ...] = ()
    change_high: tuple[tuple[float | None, ...], ...] = ()
    maximum_loss: float | None = None
    level: float | None = None
    tests: tuple[LossTest, ...] = ()


@attrs.frozen(kw_only=True)
class ReusedRun:
    """The run of an earlier experiment that a result was taken from: nothing was trained or scored again.

    `folder` is the folder of that run in `experiment_id`, where its checkpoints and rollouts are. `hashes` are those of the files that the
    result rests on, by their path in that experiment's record.
    """

    experiment_id: str
    run_id: str
    folder: str
    hashes: Mapping[str, str] = attrs.field(factory=dict)
