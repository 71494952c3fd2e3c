"""The output of `evsys plan` and `compare`: the expected cost and power of an experiment, and the differences of
two on record.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import attrs

from evsys.types import Claim, Purpose
from evsys_record.differing import Difference
from evsys_record.past import Mark

__all__ = [
    "ComparedArms",
    "ComparedMetric",
    "ComparedSide",
    "Comparing",
    "Design",
    "Neighbour",
    "Planned",
    "PlannedArm",
    "PlannedConfirm",
    "PlannedLimit",
    "PlannedScoring",
    "PlannedSearch",
]


@attrs.frozen(kw_only=True)
class PlannedArm:
    """An arm, or a `stage` of one, with its `runs`, one a repeat; those of `purpose` control are equal runs of the baseline. Numbers are those of one run; what isn't known is None, and `unknown` says why.

    `rows` are left to train on, `dropped` says why others aren't. `seconds` and `cost_usd` are of the training alone;
    `second_models` is what its teacher or reference takes of that money, by role. `reused` has, for each run that is taken from the record and
    so takes nothing, the experiment that made it.
    """

    arm: str
    runs: int
    algorithm: str
    model: str
    backend: str
    rows: int | None = None
    dropped: Mapping[str, int] = attrs.field(factory=dict)
    steps: int | None = None
    trained_tokens: int | None = None
    seconds: float | None = None
    cost_usd: float | None = None
    second_models: Mapping[str, float | None] = attrs.field(factory=dict)
    purpose: Purpose = "candidate"
    stage: str | None = None
    reused: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()

    @property
    def made(self) -> int:
        """How many of its runs are made."""
        return self.runs - len(self.reused)


@attrs.frozen(kw_only=True)
class PlannedSearch:
    """A search over `axes`: the `arms` that it proposes at most, None where no one knows; `stops` says whether it ends some early."""

    kind: str
    arms: int | None
    stops: bool
    axes: tuple[str, ...] = ()


@attrs.frozen(kw_only=True)
class PlannedScoring:
    """A benchmark entry: how often it is scored in all runs together, and what that comes to.

    Tokens, seconds and money are what a scoring of the same tasks took that is on record; None where there is none.
    """

    benchmark: str
    split: str
    tasks: int
    num_samples: int
    scorings: int | None = None
    rollouts: int | None = None
    tokens: int | None = None
    seconds: float | None = None
    cost_usd: float | None = None


@attrs.frozen(kw_only=True)
class Design:
    """The power of a verdict.

    `asked` is the claim with its `margin`. `level` is that of each comparison: the part that the series leaves to
    this `look` at the question, corrected for all comparisons. `units` are what the test takes for independent:
    tasks, or clusters of them. `smallest_p` is the p-value if all differ in one direction, `permutation_floor` that
    of the permutation of seeds; None if there isn't one.

    Not everything is known before: `correlation` of two arms' scores on a task and `base_rate` (0 is the lowest
    score, 1 the highest), both None if differences on record are better evidence, and `run_deviation`, the standard
    deviation between runs of a recipe, None for a claim about a checkpoint. Over all of these ranges,
    `smallest_detectable_effect` is found with at least 80 % power, with `power_low` to `power_high`; at best it is
    `smallest_detectable_at_best`. For the claims `no_worse` and `equal` both are margins, which equal arms are
    shown to keep. None if nothing would be found; `basis` names the source. `tasks_needed` and `runs_needed` show
    an effect of twice the margin with at least 80 % power, or, for `no_worse` and `equal`, the margin of equal
    arms; None if none is set, or no number suffices. At floor and ceiling are tasks on which the baseline has the
    lowest or highest possible score.
    """

    metric: str
    direction: str
    baseline: str
    minimum_effect: float
    comparisons: int
    runs: int
    level: float
    claim: Literal["checkpoint", "recipe"]
    tasks: int
    units: int
    clustered: bool
    smallest_p: float
    permutation_floor: float | None = None
    smallest_detectable_effect: float | None = None
    smallest_detectable_at_best: float | None = None
    power_low: float | None = None
    power_high: float | None = None
    correlation: tuple[float, float] | None = None
    base_rate: tuple[float, float] | None = None
    run_deviation: tuple[float, float] | None = None
    look: int | None = None
    asked: Claim | None = None
    margin: float | None = None
    tasks_needed: int | None = None
    runs_needed: int | None = None
    baseline_score: float | None = None
    tasks_at_floor: int | None = None
    tasks_at_ceiling: int | None = None
    basis: str = ""
    notes: tuple[str, ...] = ()


@attrs.frozen(kw_only=True)
class PlannedConfirm:
    """The most that a confirmation takes, in addition to the rest: `runs` with `seeds` fresh seeds, evaluated on
    `benchmark`.

    `fewest_seeds` may be enough, and `seeds_reason` says why, None if the file gives the number.

    Nothing of it is spent if no arm wins. Numbers are those of the most expensive arm, with the baseline's; None if
    unknown. `design` is the power of this comparison alone, which decides the verdict.
    """

    benchmark: str
    seeds: int
    runs: int
    fewest_seeds: int
    seeds_reason: str | None = None
    rollouts: int | None = None
    steps: int | None = None
    trained_tokens: int | None = None
    seconds: float | None = None
    cost_usd: float | None = None
    design: Design | None = None


@attrs.frozen(kw_only=True)
class PlannedLimit:
    """A `limit` of the budget against what the experiment is expected to use of it.

    `training` and `scoring` are the known parts over all runs, None if nothing is known; time is divided by the runs made at once.
    `confirmation` is what training a winner again takes on top. `fits` is False if the known parts of training and scoring exceed the limit,
    and None if a part isn't known.
    """

    name: str
    limit: float
    training: float | None = None
    scoring: float | None = None
    confirmation: float | None = None
    fits: bool | None = None


@attrs.frozen(kw_only=True)
class Neighbour:
    """An arm on record like a planned one. Without `differences` it is the same, with `same_seeds` its very runs."""

    arm: str
    experiment_id: str
    other_arm: str
    same_seeds: bool
    differences: tuple[Difference, ...] = ()
    status: str | None = None
    score: float | None = None
    verdict: str | None = None
    subject: str | None = None
    marks: tuple[Mark, ...] = ()
    outcome: str | None = None


@attrs.frozen(kw_only=True)
class Planned:
    """The output of `evsys plan --json`. Totals are over all runs but those of `confirm`, None if a part is
    unknown; nothing of it was trained or paid for. `budget` compares them with the limits of the experiment, `project`
    with what the budget of the project leaves. With a `search` one of `arms` represents all that it may propose, with the numbers of the one that takes most. `token` lets an agent's tool `run`
    start it, once; None from the command line.
    """

    name: str
    config: str
    runs: int
    concurrent: int
    arms: tuple[PlannedArm, ...]
    search: PlannedSearch | None = None
    scorings: tuple[PlannedScoring, ...] = ()
    steps: int | None = None
    trained_tokens: int | None = None
    seconds: float | None = None
    cost_usd: float | None = None
    design: Design | None = None
    confirm: PlannedConfirm | None = None
    budget: tuple[PlannedLimit, ...] = ()
    project: tuple[PlannedLimit, ...] = ()
    neighbours: tuple[Neighbour, ...] = ()
    warnings: tuple[str, ...] = ()
    token: str | None = None


@attrs.frozen(kw_only=True)
class ComparedSide:
    """One side of a comparison: an experiment on record, or a run of it, with the subject of its verdict and its marks."""

    name: str
    experiment_id: str
    run_id: str | None = None
    status: str | None = None
    verdict: str | None = None
    subject: str | None = None
    marks: tuple[Mark, ...] = ()
    steps: int | None = None
    trained_tokens: int | None = None
    seconds: float | None = None
    cost_usd: float | None = None


@attrs.frozen(kw_only=True)
class ComparedMetric:
    """A metric of two sides on the tasks that both scored, as `other - one`: an `effect` above 0 is a higher number.

    The interval is paired by task, at 95 %, and isn't corrected for how many are looked at. `reason` says why there is none.
    """

    benchmark: str
    split: str
    metric: str
    direction: str
    arms: str
    one: float | None = None
    other: float | None = None
    effect: float | None = None
    low: float | None = None
    high: float | None = None
    p_value: float | None = None
    method: str | None = None
    n_tasks: int = 0
    n_missing: int = 0
    reason: str | None = None


@attrs.frozen(kw_only=True)
class ComparedArms:
    """Two arms set side by side, and where their configs differ."""

    one: str
    other: str
    differences: tuple[Difference, ...] = ()


@attrs.frozen(kw_only=True)
class Comparing:
    """The output of `evsys compare --json`: `one` and `other` as they were named, and the parts on one side only."""

    one: ComparedSide
    other: ComparedSide
    arms: tuple[ComparedArms, ...] = ()
    only_one: tuple[str, ...] = ()
    only_other: tuple[str, ...] = ()
    metrics: tuple[ComparedMetric, ...] = ()
    warnings: tuple[str, ...] = ()
