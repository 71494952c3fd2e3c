"""The results of runs, evaluations and experiments; the published result files have these shapes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import attrs

from evsys.types.evidence import (
    Claim,
    ClaimResult,
    Forgetting,
    GuardResult,
    LookSeries,
    NoiseFloor,
    Procedure,
    ReusedRun,
    RunDeviation,
    Settling,
    SettlingPoint,
    Subject,
)
from evsys.types.failures import Failure
from evsys.types.rollouts import Usage
from evsys.types.selection import SelectedCheckpoint, Selection

__all__ = [
    "ArmResult",
    "Comparison",
    "Conclusion",
    "Confirmed",
    "EvalResult",
    "EvaluationResult",
    "ExperimentResult",
    "MetricValue",
    "OutOfBand",
    "Outcome",
    "Purpose",
    "RunResult",
    "Status",
    "Verdict",
    "WithoutFlagged",
]

Status = Literal[
    "completed",
    "partial",
    "failed",
    "cancelled",
    "stalled",
    "collapsed",
    "budget_stopped",
    "stopped",
    "invalid",
    "skipped",
]
Outcome = Literal["win", "tie", "loss", "inconclusive", "unscored"]
Verdict = Literal["INVALID", "SUPPORTED", "CANDIDATE", "REFUTED", "INCONCLUSIVE"]
Purpose = Literal["candidate", "control", "confirm"]
Direction = Literal["max", "min"]


@attrs.frozen(kw_only=True)
class MetricValue:
    """A metric over a benchmark. `value` None is "not available", or the metric failed: then `reason` says why. The interval is
    at 95 %; `n` counts scored tasks, `excluded` those left out for want of samples.
    """

    value: float | None
    low: float | None = None
    high: float | None = None
    direction: Direction = "max"
    n: int = 0
    excluded: int = 0
    method: str | None = None
    reason: str | None = None


@attrs.frozen(kw_only=True)
class EvaluationResult:
    """One scoring of one benchmark entry. `step` counts optimiser steps behind the weights; 0 is untrained.

    `task_rewards` has the rewards of each task's scored samples, `clusters` the cluster of each task that has one:
    by the entry's `cluster_key`, or because another task asks the same. `copies` maps a task that asks the same as an earlier one to that one. `scored + no_score` is tasks times samples; `cached` of them were made before. `usage` is that of the model, `judged` that of models that judged it.
    `failure` is why the scoring failed, or, if it was completed, why the first of its `failed_metrics` did.
    """

    benchmark: str
    split: Literal["val", "test"]
    step: int
    status: Literal["completed", "failed", "invalid", "missing"]
    metrics: Mapping[str, MetricValue] = attrs.field(factory=dict)
    tasks: int = 0
    num_samples: int = 1
    scored: int = 0
    no_score: int = 0
    cached: int = 0
    task_rewards: Mapping[str, tuple[float, ...]] = attrs.field(factory=dict)
    clusters: Mapping[str, str] = attrs.field(factory=dict)
    copies: Mapping[str, str] = attrs.field(factory=dict)
    breakdown: Mapping[str, Mapping[str, Mapping[str, MetricValue]]] = attrs.field(factory=dict)
    benchmark_hash: str | None = None
    verifier_hash: str | None = None
    usage: Usage = attrs.field(factory=Usage)
    judged: Usage = attrs.field(factory=Usage)
    model: str | None = None
    seconds: float = 0.0
    failure: Failure | None = None
    warnings: tuple[str, ...] = ()

    @property
    def curve(self) -> str:
        """The name of its values in records and loggers: `<split>/<entry>`, with `@<model>` if an API model was
        scored.

        The name of a metric follows after another `/`.
        """
        return f"{self.split}/{self.benchmark}" + ("" if self.model is None else f"@{self.model}")

    @property
    def failed_metrics(self) -> dict[str, str]:
        """The metrics that raised an error or gave no finite number, each with its reason. The others hold."""
        return {name: metric.reason for name, metric in self.metrics.items() if metric.reason is not None}

    @property
    def fully_scored(self) -> bool:
        """Whether the scoring was completed and none of its metrics failed."""
        return self.status == "completed" and not self.failed_metrics


EvalResult = EvaluationResult
"""A shorter name of it."""


@attrs.frozen(kw_only=True)
class RunResult:
    """The return value of `Algorithm.train`: how far training came and why it ended there.

    The runner fills in the run, the evaluations, the failure, and the best and the selected checkpoint. `roles` has
    the share of second models in `usage`, such as `teacher`. `guard` compares the reward with a second verifier;
    None without one. `selected_checkpoint` is None if the last checkpoint counts.
    """

    status: Status
    steps: int = 0
    run_id: str = ""
    evaluations: tuple[EvaluationResult, ...] = ()
    failure: Failure | None = None
    stop_reason: str | None = None
    final_checkpoint: str | None = None
    best_checkpoint: str | None = None
    selected_checkpoint: SelectedCheckpoint | None = None
    metrics: Mapping[str, float] = attrs.field(factory=dict)
    usage: Usage = attrs.field(factory=Usage)
    roles: Mapping[str, Usage] = attrs.field(factory=dict)
    warnings: tuple[str, ...] = ()
    guard: GuardResult | None = None


@attrs.frozen(kw_only=True)
class OutOfBand:
    """A training metric that left the band `low` to `high` which its algorithm declares; `why` says what that means.

    It did in `steps` steps, a `share` of all, the first and last of which are `first_step` and `last_step`.
    """

    metric: str
    low: float | None
    high: float | None
    why: str
    first_step: int
    last_step: int
    steps: int
    share: float


@attrs.frozen(kw_only=True)
class ArmResult:
    """One arm at one repeat: its training, its evaluations, its failure if it had one. `stage` is which of its
    stages this is.

    `purpose` distinguishes the compared arms from equal runs of the baseline, which measure the noise between runs,
    and from confirmation runs of a winner. `cut_off` is the usage, in addition to `usage`, of interrupted work that
    was repeated. `reused` is the run on record that a result was taken from, None for a run of this experiment; the
    names of its checkpoints start from that run's folder.
    """

    run_id: str
    arm: str
    repeat: int
    seed: int
    status: Status
    identity: str
    run: RunResult | None = None
    evaluations: tuple[EvaluationResult, ...] = ()
    failure: Failure | None = None
    attempt: int = 1
    purpose: Purpose = "candidate"
    seconds: float = 0.0
    usage: Usage = attrs.field(factory=Usage)
    cut_off: Usage = attrs.field(factory=Usage)
    run_dir: str | None = None
    warnings: tuple[str, ...] = ()
    health: tuple[OutOfBand, ...] = ()
    stage: str | None = None
    reused: ReusedRun | None = None


@attrs.frozen(kw_only=True)
class Comparison:
    """An arm against the baseline on the success metric; positive `effect` is better in the metric's direction.

    A claim about a `checkpoint` holds of the very models trained, one about a `recipe` of another training run of
    it as well. `n_seeds` runs of the arm were scored, and `n_baseline_seeds` of the baseline. Of `n_missing` tasks
    at least one sample of either side has no score: `missing_samples` of the arm and `baseline_missing_samples` of
    the baseline in all; null in records of versions that didn't count them. A task that only one side has a score
    of doesn't count. `effect_bounds` are the smallest and the largest effect that missing samples allow; `n_units`
    of the tasks are independent: tasks of one cluster, such as copies of one task, count as one. `missing_decides`
    says why the outcome is `inconclusive` where it hangs on them. The intervals `low` to `high` of all arms hold
    together with probability 1 - `level`, the level of significance of the experiment. They follow from the same
    tests as `p_corrected`, by `correction`, `bonferroni` or `westfall-young` (None for a single arm): an interval
    leaves out no effect only if that is at most `level`. `method` names the test of `p_value`, which of a claim
    with a margin is a test of that margin. `standard_error` is that of `effect`. `shrunken_effect` is the effect
    expected of the next measurement, None where the arm wasn't chosen among several.
    """

    arm: str
    outcome: Outcome
    before: float | None = None
    after: float | None = None
    effect: float | None = None
    low: float | None = None
    high: float | None = None
    p_value: float | None = None
    p_corrected: float | None = None
    level: float | None = None
    standard_error: float | None = None
    correction: str | None = None
    smallest_detectable_effect: float | None = None
    method: str | None = None
    claim: Subject | None = None
    n_tasks: int = 0
    n_units: int | None = None
    n_seeds: int = 0
    n_baseline_seeds: int = 0
    n_missing: int = 0
    missing_samples: int | None = None
    baseline_missing_samples: int | None = None
    effect_bounds: tuple[float, float] | None = None
    missing_decides: str | None = None
    reason: str | None = None
    shrunken_effect: float | None = None


@attrs.frozen(kw_only=True)
class WithoutFlagged:
    """The verdict again, without the scored `tasks` of the success metric's entry among training rows."""

    benchmark: str
    tasks: tuple[str, ...]
    verdict: Verdict
    reason: str
    comparisons: tuple[Comparison, ...] = ()


@attrs.frozen(kw_only=True)
class Confirmed:
    """A winner alongside the baseline again, by `runs` that had no part in choosing it: `metric` is that of the entry `benchmark`.

    `seeds` runs of each were retrained; with 0 the trained models were evaluated again. One comparison, so nothing is corrected.
    `seeds_reason` is why there are so many, None where the file gives their number.
    """

    benchmark: str
    metric: str
    seeds: int
    runs: tuple[str, ...]
    comparison: Comparison
    seeds_reason: str | None = None


@attrs.frozen(kw_only=True)
class Conclusion:
    """The conclusion, derived from the numbers alone. `warnings` lists the reasons to doubt it.

    `best_arm` has the best score on the success metric, `best_score`, the mean over its repeats; `comparisons` say
    whether that is more than chance. `claim` and its `margin` are the tested claim; `subject` is the subject of the
    verdict: the trained `checkpoint` or its `recipe`. `claims` has the outcome of each arm, as a checkpoint and, if
    it can be known, as a recipe. If `comparisons` are about recipes, `checkpoints` has the outcomes for the trained
    models; else it is empty. `procedure` is None if nothing was tested. `without_flagged` is None if no scored task
    is known to be among the training rows. `confirmed` is None without a confirmation, `noise_floor` without equal
    runs. `run_deviation` is the deviation between runs of similar recipes on record; None if too few are known.
    `test_looks` counts the evaluations of each `test` entry here, `test_looks_before` those of earlier experiments
    with the same tasks. `usage` is the usage of the results, `cut_off` that of interrupted and repeated work.
    `health` lists by run the measures that left the bands of its algorithm. `selection` says which checkpoint of
    each run was compared; None if each was the last, with no other to select. `settle` says how to settle an open
    verdict, `settling` gives the numbers; None if no number would. `settling_curve` gives the sample sizes for
    effects of several sizes if no minimum effect is set. `question_changed` says how the question differs from that
    of an earlier experiment whose results were known by then. `looks` is the series of looks at the question, this
    one included; None if nothing was asked. `reused` maps runs taken from the record to the experiments that made
    them.
    """

    verdict: Verdict | None
    reason: str
    metric: str | None = None
    direction: Direction | None = None
    baseline: str | None = None
    minimum_effect: float | None = None
    claim: Claim | None = None
    margin: float | None = None
    subject: Subject | None = None
    claims: tuple[ClaimResult, ...] = ()
    best_arm: str | None = None
    best_score: float | None = None
    comparisons: tuple[Comparison, ...] = ()
    checkpoints: tuple[Comparison, ...] = ()
    correction: str | None = None
    procedure: Procedure | None = None
    usage: Usage = attrs.field(factory=Usage)
    cut_off: Usage = attrs.field(factory=Usage)
    warnings: tuple[str, ...] = ()
    test_looks: Mapping[str, int] = attrs.field(factory=dict)
    test_looks_before: Mapping[str, int] = attrs.field(factory=dict)
    question_changed: tuple[str, ...] = ()
    looks: LookSeries | None = None
    confirmed: Confirmed | None = None
    noise_floor: NoiseFloor | None = None
    run_deviation: RunDeviation | None = None
    settle: str | None = None
    settling: Settling | None = None
    settling_curve: tuple[SettlingPoint, ...] = ()
    without_flagged: WithoutFlagged | None = None
    forgetting: tuple[Forgetting, ...] = ()
    health: Mapping[str, tuple[OutOfBand, ...]] = attrs.field(factory=dict)
    selection: Selection | None = None
    reused: Mapping[str, str] = attrs.field(factory=dict)
    extra: Mapping[str, Any] = attrs.field(factory=dict)


@attrs.frozen(kw_only=True)
class ExperimentResult:
    """The whole experiment; `directory` is where its record lies.

    `failed` names the runs that didn't complete, and scorings that failed as `<run>/<benchmark>`.
    """

    experiment_id: str
    name: str
    status: Status
    directory: str
    conclusion: Conclusion
    arms: tuple[ArmResult, ...] = ()
    dry: bool = False
    seconds: float = 0.0
    usage: Usage = attrs.field(factory=Usage)
    warnings: tuple[str, ...] = ()
    exit_code: int = 0
    failed: tuple[str, ...] = ()

    @property
    def best_arm(self) -> str | None:
        """The arm with the best score on the success metric; None where nothing was scored on one."""
        return self.conclusion.best_arm

    @property
    def best_score(self) -> float | None:
        """The score of the best arm on the success metric, the mean over its repeats; None where there is no best arm."""
        return self.conclusion.best_score
