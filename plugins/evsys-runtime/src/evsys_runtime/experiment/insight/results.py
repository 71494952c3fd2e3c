"""The output of `evsys context`, `why` and `next`: the knowledge from all experiments."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import attrs

from evsys.types.evidence import Look, SettlingPoint
from evsys.types.results import Comparison
from evsys_record.differing import Difference
from evsys_record.past import Mark, MarkKind
from evsys_runtime.experiment.budget.project_budget import ProjectLimit

__all__ = [
    "BestRecipe",
    "Condition",
    "Context",
    "FailureClass",
    "Finding",
    "Fit",
    "Next",
    "NextStep",
    "Region",
    "Retracted",
    "Spent",
    "Unfinished",
    "WayToFail",
    "Why",
    "WhyArm",
    "WhyFailed",
    "WhyParent",
]


@attrs.frozen(kw_only=True)
class Condition:
    """A value that a key of an arm's config has; `value` is its JSON text. `>=` and `<=` are for numbers."""

    path: str
    relation: Literal["=", ">=", "<="]
    value: str

    def __str__(self) -> str:
        return f"{self.path} {self.relation} {self.value}"


@attrs.frozen(kw_only=True)
class Region:
    """A region of arms that failed in one way: all of them meet every condition, and so do `completed_inside` of
    the completed ones.

    Arms count by their configs: equal ones, and repeats, count once. `chance` bounds the probability of such a
    split if the conditions had nothing to do with it; `known_bad` if that is at most 5 % and none completed inside.
    """

    conditions: tuple[Condition, ...]
    failed: int
    completed_inside: int
    completed_outside: int
    chance: float
    known_bad: bool

    def __str__(self) -> str:
        return " and ".join(str(condition) for condition in self.conditions)


@attrs.frozen(kw_only=True)
class FailureClass:
    """Runs that ended badly in one way: by their status, the boundary and the type of the error, and its message
    without numbers and names.

    `message` is that of the newest run, `experiments` those that they are in, the newest first. `region` is None if
    nothing distinguishes their configs from completed ones.
    """

    status: str
    boundary: str | None
    error_type: str | None
    message: str
    runs: int
    arms: int
    experiments: tuple[str, ...]
    region: Region | None = None

    @property
    def name(self) -> str:
        """The status, and where and as what the error came up."""
        where = "/".join(part for part in (self.boundary, self.error_type) if part)
        return f"{self.status} {where}" if where else self.status


@attrs.frozen(kw_only=True)
class Finding:
    """The finding of an experiment: the deciding EXPERIMENT/ARM, its effect, how certain that is, and, if there is
    room, why it was run.

    `effect` is `[effect, low, high]` against the baseline with the 95 % interval, better is above 0. `says` begins
    with the subject of the claim, recipe or checkpoint, and the training runs times the tasks behind it. `marks`
    are the kinds of mark that the experiment has.
    """

    name: str
    effect: tuple[float | None, float | None, float | None] | None = None
    says: str = ""
    marks: tuple[MarkKind, ...] = ()


@attrs.frozen(kw_only=True)
class WayToFail:
    """A way in which runs ended badly, the newest experiment that has one, and in `region` what their arms alone have in common."""

    way: str
    runs: int
    arms: int
    latest: str
    region: str | None = None
    known_bad: bool = False
    says: str = ""


@attrs.frozen(kw_only=True)
class Retracted:
    """An experiment whose conclusion was taken back, and those that rest on it."""

    experiment: str
    reason: str
    resting: tuple[str, ...] = ()


@attrs.frozen(kw_only=True)
class Unfinished:
    """An experiment that runs, or ended before it was through."""

    experiment: str
    status: str
    marks: tuple[MarkKind, ...] = ()


@attrs.frozen(kw_only=True)
class Spent:
    """The usage of all experiments together; `unpriced` of them have parts without a price. Tokens and money of
    simulated models aren't counted.
    """

    cost_usd: float
    unpriced: int
    trained_tokens: int
    sampled_tokens: int
    seconds: float


@attrs.frozen(kw_only=True)
class Fit:
    """How the knowledge was fitted to the limit: `tokens` are bytes of UTF-8 divided by 4, of at most `limit`.

    `left_out` counts the items not named at all, `shortened` those in few words, by section.
    """

    limit: int
    tokens: int
    left_out: Mapping[str, int] = attrs.field(factory=dict)
    shortened: Mapping[str, int] = attrs.field(factory=dict)


@attrs.frozen(kw_only=True)
class BestRecipe:
    """The best arm so far by a metric: EXPERIMENT/ARM with its score and verdict, what it was trained of, and what one run of it takes.

    Null where it isn't known, or a checkpoint isn't there any more. `checkpoint` is a path from the project's folder.
    """

    metric: str
    score: float
    name: str
    verdict: str
    subject: str | None = None
    marks: tuple[MarkKind, ...] = ()
    model: str | None = None
    algorithm: str | None = None
    rows: int | None = None
    learning_rate: float | None = None
    runs: int = 0
    cost_usd: float | None = None
    seconds: float | None = None
    checkpoint: str | None = None


@attrs.frozen(kw_only=True)
class Context:
    """The output of `evsys context --json`: the knowledge to have before the next experiment, the most useful
    first.

    `best` has the best recipe by each of the most frequent metrics. `supported` and `candidates` hold winners,
    confirmed or the best of several; `open` questions that the numbers left open; `refuted` those that tie or lose.
    Everything is named once. `verdicts`, `metrics` and `goals` count experiments. `budget` has the limits of the project.
    """

    project: str
    about: str | None
    experiments: int
    runs: int
    verdicts: Mapping[str, int]
    metrics: Mapping[str, int]
    goals: Mapping[str, int]
    spent: Spent
    budget: Mapping[str, ProjectLimit] = attrs.field(factory=dict)
    best: tuple[BestRecipe, ...] = ()
    retracted: tuple[Retracted, ...] = ()
    supported: tuple[Finding, ...] = ()
    candidates: tuple[Finding, ...] = ()
    open: tuple[Finding, ...] = ()
    failures: tuple[WayToFail, ...] = ()
    unfinished: tuple[Unfinished, ...] = ()
    refuted: tuple[Finding, ...] = ()
    fit: Fit | None = None


@attrs.frozen(kw_only=True)
class WhyArm:
    """An arm's comparison and what its outcome follows from, in words."""

    comparison: Comparison
    says: str


@attrs.frozen(kw_only=True)
class WhyFailed:
    """A run that ended badly: what it said, where, what helps, and how often runs on record ended so."""

    run_id: str
    status: str
    way: str
    message: str
    place: str | None
    hint: str | None
    steps: int | None
    runs_on_record: int
    region: str | None = None
    known_bad: bool = False


@attrs.frozen(kw_only=True)
class WhyParent:
    """An arm alongside the one of the parent that is nearest to it, and how both did; `one` of the differences is the parent's value."""

    arm: str
    parent_arm: str
    differences: tuple[Difference, ...] = ()
    effect: float | None = None
    parent_effect: float | None = None


@attrs.frozen(kw_only=True)
class Why:
    """The output of `evsys why --json`: why an experiment, or one arm of it, ended as it did.

    `subject` is that of the verdict, a checkpoint or a recipe. `checkpoints` says which checkpoint of each run was
    compared. `weakened` lists the reasons to doubt the conclusion. `parent_verdict`, `parent_retracted` (why) and
    `changed` are about its parent, as far as that is on record. `looks` are all looks at its question, this
    experiment's included, the oldest first.
    """

    experiment_id: str
    arm: str | None
    status: str
    verdict: str | None
    reason: str
    metric: str | None
    direction: str | None
    baseline: str | None
    minimum_effect: float | None
    subject: str | None = None
    arms: tuple[WhyArm, ...] = ()
    confirmed: WhyArm | None = None
    settle: str | None = None
    checkpoints: tuple[str, ...] = ()
    weakened: tuple[str, ...] = ()
    failed: tuple[WhyFailed, ...] = ()
    parent: str | None = None
    parent_verdict: str | None = None
    parent_retracted: str | None = None
    parent_subject: str | None = None
    parent_marks: tuple[Mark, ...] = ()
    changed: tuple[WhyParent, ...] = ()
    looks: tuple[Look, ...] = ()
    marks: tuple[Mark, ...] = ()


@attrs.frozen(kw_only=True)
class NextStep:
    """A next step: what it would show, its needs, its cost by that of similar runs, and how to do it.

    `worth` is its expected information in bits, and `bits_per_usd` and `bits_per_hour` divide that by its cost,
    null if that is unknown or zero. `runs` are training runs, None if it needs something else. `config` is a whole
    experiment file as JSON, if one is to be run; `curve` has the sample sizes for effects of several sizes, if a
    minimum effect has to be chosen first. `command` is None if a person has to do something first. `checkpoint` is
    the selected one of the arm's first run, from the folder of the experiment on; None if its last one counts.
    `subject` (of its verdict) and `marks` are those of `experiment`.
    """

    kind: Literal["resume", "confirm", "settle", "hypothesis", "lever", "neighbour"]
    experiment: str
    arm: str | None
    learns: str
    needs: str
    worth: float
    runs: int | None = None
    cost_usd: float | None = None
    seconds: float | None = None
    bits_per_usd: float | None = None
    bits_per_hour: float | None = None
    curve: tuple[SettlingPoint, ...] = ()
    command: str | None = None
    checkpoint: str | None = None
    config: Mapping[str, Any] | None = None
    subject: str | None = None
    marks: tuple[Mark, ...] = ()


@attrs.frozen(kw_only=True)
class Next:
    """The output of `evsys next --json`: the first of `total` next steps, the cheapest per expected information
    first.
    """

    total: int
    steps: tuple[NextStep, ...] = ()
