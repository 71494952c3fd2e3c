"""The memory of past experiments: the shapes that `evsys history`, `show` and `reindex` print."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, get_args

import attrs

from evsys.types.evidence import Settling, SettlingPoint
from evsys.types.results import ArmResult, Comparison, Conclusion, MetricValue, Status
from evsys.types.rollouts import Usage
from evsys_record.attempts import Attempt
from evsys_record.differing import Difference

__all__ = [
    "EXPERIMENT_STATUSES",
    "RUN_STATUSES",
    "History",
    "LookPlace",
    "Mark",
    "MarkKind",
    "NearArm",
    "PastEvaluation",
    "PastExperiment",
    "PastRun",
    "RecordFile",
    "Reindexed",
    "Scored",
    "Shown",
    "ShownRun",
    "Superseded",
    "Unreadable",
]


MarkKind = Literal[
    "retracted",
    "rests_on_retracted",
    "edited",
    "audit_differs",
    "dry",
    "simulated",
    "leaked",
    "reward_hacking",
    "question_changed",
    "look",
    "similar_looks",
    "other_tasks",
    "unasked",
    "elsewhere",
    "repeated_runs",
    "ledger_rebuilt",
    "reused",
    "grader_check_skipped",
    "unknown_weights",
    "judged_otherwise",
]


@attrs.frozen(kw_only=True)
class Mark:
    """A reason to be careful with a conclusion: its `kind` for programs, a `label` of a few words for tables, and a sentence."""

    kind: MarkKind
    label: str
    says: str


EXPERIMENT_STATUSES = (*get_args(Status), "running", "crashed", "unreadable")
"""How an experiment ended; `running` while someone holds its lock, `crashed` where its process is gone and never said how it
ended, `unreadable` where its files don't say.
"""

RUN_STATUSES = (*EXPERIMENT_STATUSES, "waiting")
"""The same of a run; `waiting` for one whose turn hasn't come, `skipped` for one whose turn never came."""


@attrs.frozen(kw_only=True)
class LookPlace:
    """Which look at its question an experiment is, and of how many on record."""

    number: int
    of: int


@attrs.frozen(kw_only=True)
class PastExperiment:
    """An experiment on record. `before` to `high` are those of `best_arm` on `metric`: its score and its effect
    against the baseline with the interval of that, from the confirmation if there was one. `moment` is when it
    began, by its folder's name if its files don't say, UTC.

    `claim` is the claim about the arms, with its `margin`; null in records of earlier versions. `failed` names the
    runs that didn't complete and the scorings that failed. `confirmed` compares the winner on runs that had no part
    in choosing it. `superseded` are the verdicts that it had before it was resumed, the oldest first. `retracted`
    is why its conclusion doesn't hold; `rests_on` are retracted experiments that it cites, itself or through those
    in `cites`.

    `marks` are the reasons to be careful with the conclusion. They follow from the other fields: `simulated_by`
    (backends that only simulate a model), `leaked_share` (of the scored tasks, those in training rows),
    `question_changed`, `hacking_suspected` (runs whose guard raised an alarm), `subject` (of the verdict:
    `checkpoint` or `recipe`), `edited` (conclusion.json is no longer what the run wrote), and `audit_differs`
    (checks of the saved audit that differ), `ledger_rebuilt` (the ledger of looks had been missing), and
    `similar_looks` (how many looks at similar questions came before), `looks_on_other_tasks`, `runs_without_a_look`
    (trained runs that had been scored on these tasks by experiments and evaluations without a look),
    `looks_elsewhere` (looks at this question that this user took in other places), `repeated_runs` (compared runs
    with the scores of a run of an earlier look), `reuses` (the experiments that made runs taken from the record) and
    `doubts` (marks that the conclusion itself has).
    `look` is its place among all
    looks at its question; None if it didn't test anything.
    """

    experiment_id: str
    name: str | None = None
    status: str = "unreadable"
    dry: bool = False
    moment: str = ""
    finished: str | None = None
    hypothesis: str | None = None
    description: str | None = None
    tags: tuple[str, ...] = ()
    parent: str | None = None
    project_goal_id: str | None = None
    verdict: str | None = None
    reason: str | None = None
    metric: str | None = None
    direction: str | None = None
    baseline: str | None = None
    best_arm: str | None = None
    before: float | None = None
    after: float | None = None
    effect: float | None = None
    low: float | None = None
    high: float | None = None
    comparisons: tuple[Comparison, ...] = ()
    confirmed: Comparison | None = None
    runs: int = 0
    runs_completed: int = 0
    algorithms: tuple[str, ...] = ()
    models: tuple[str, ...] = ()
    backends: tuple[str, ...] = ()
    config_hash: str | None = None
    usage: Usage | None = None
    seconds: float | None = None
    exit_code: int | None = None
    failed: tuple[str, ...] = ()
    minimum_effect: float | None = None
    claim: str | None = None
    margin: float | None = None
    settle: str | None = None
    settling: Settling | None = None
    settling_curve: tuple[SettlingPoint, ...] = ()
    superseded: tuple[str, ...] = ()
    retracted: str | None = None
    retracted_at: str | None = None
    cites: tuple[str, ...] = ()
    rests_on: tuple[str, ...] = ()
    subject: str | None = None
    simulated_by: tuple[str, ...] = ()
    leaked_share: float | None = None
    question_changed: tuple[str, ...] = ()
    hacking_suspected: tuple[str, ...] = ()
    edited: bool = False
    look: LookPlace | None = None
    audit_differs: int = 0
    ledger_rebuilt: bool = False
    similar_looks: int = 0
    looks_on_other_tasks: int = 0
    runs_without_a_look: int = 0
    looks_elsewhere: int = 0
    reuses: tuple[str, ...] = ()
    repeated_runs: int = 0
    doubts: tuple[Mark, ...] = ()
    marks: tuple[Mark, ...] = ()
    problem: str | None = None


@attrs.frozen(kw_only=True)
class PastRun:
    """A run (an arm at a repeat) on record, as its newest attempt left it. `score` is the success metric of the checkpoint that
    counts, with its interval; None unless it completed. `selected_step` and `selected_checkpoint`, from the run's folder
    on, are None if the last checkpoint counts. `rows` counts those that it was trained on. `label` is the arm's name, with the stage of it that this is. `diverged`: its loss rose and stayed up, though it may have completed.
    `reused_from` is the experiment that made it, where this one took it from the record: it is one run, however often it is on record.
    """

    experiment_id: str
    run_id: str
    folder: str | None = None
    arm: str | None = None
    label: str | None = None
    repeat: int | None = None
    seed: int | None = None
    status: str = "unreadable"
    algorithm: str | None = None
    model: str | None = None
    backend: str | None = None
    identity: str | None = None
    data_hash: str | None = None
    rows: int | None = None
    attempts: int = 0
    steps: int | None = None
    selected_step: int | None = None
    selected_checkpoint: str | None = None
    score: float | None = None
    low: float | None = None
    high: float | None = None
    failure: str | None = None
    place: str | None = None
    boundary: str | None = None
    error_type: str | None = None
    plugin: str | None = None
    diverged: bool = False
    usage: Usage | None = None
    seconds: float | None = None
    reused_from: str | None = None
    problem: str | None = None


@attrs.frozen(kw_only=True)
class NearArm:
    """The arm on record that is nearest to one of a config, of each experiment one.

    `distance` adds up what differs: 1 for a value, less for a number that is near. `same` are those of `model`, `data` and `algorithm` that
    are the same. In `differences`, `one` is what the config has and `other` what is on record.
    """

    experiment_id: str
    arm: str
    near_to: str
    distance: float
    same: tuple[str, ...] = ()
    differences: tuple[Difference, ...] = ()
    runs: int = 0
    status: str | None = None
    score: float | None = None
    outcome: str | None = None
    effect: float | None = None
    low: float | None = None
    high: float | None = None
    verdict: str | None = None
    subject: str | None = None
    metric: str | None = None
    hypothesis: str | None = None
    retracted: str | None = None
    rests_on: tuple[str, ...] = ()
    marks: tuple[Mark, ...] = ()


@attrs.frozen(kw_only=True)
class PastEvaluation:
    """An evaluation as `evsys history` lists it: `scores` maps `<benchmark>.<metric>` to its value.

    `tests` names the benchmarks that have the tasks of a final test: each scoring of them is a look at the test.
    """

    evaluation_id: str
    model: str
    moment: str
    status: str
    scores: Mapping[str, float | None] = attrs.field(factory=dict)
    tests: tuple[str, ...] = ()


@attrs.frozen(kw_only=True)
class History:
    """The output of `evsys history --json`. `total` is the number found, of which the first are listed:
    experiments, or their runs, or, with `--near`, the nearest arms of experiments.

    `evaluations` are those that `evsys eval` recorded, if nothing narrows the list but its length and a date.
    `index` is the path of the index, None in memory; `full_text` says how words are searched for.
    """

    records: str
    index: str | None
    full_text: Literal["fts5", "like"]
    total: int
    experiments: tuple[PastExperiment, ...] = ()
    runs: tuple[PastRun, ...] = ()
    near: tuple[NearArm, ...] = ()
    evaluations: tuple[PastEvaluation, ...] = ()


@attrs.frozen(kw_only=True)
class Unreadable:
    """A record, or a run of one, that can't be read, and why."""

    experiment_id: str
    run_id: str | None
    problem: str


@attrs.frozen(kw_only=True)
class Reindexed:
    """The output of `evsys reindex --json`: the counts of the new index, without dry runs."""

    records: str
    index: str | None
    full_text: Literal["fts5", "like"]
    experiments: int
    runs: int
    dry: int
    seconds: float
    unreadable: tuple[Unreadable, ...] = ()


@attrs.frozen(kw_only=True)
class RecordFile:
    """A file of a record, or a folder with the bytes of all that is in it; a folder's path ends in `/`."""

    path: str
    bytes: int


@attrs.frozen(kw_only=True)
class Scored:
    """A metric of what a run started from (step 0) or ended with."""

    benchmark: str
    split: str
    step: int
    metric: str
    score: MetricValue


@attrs.frozen(kw_only=True)
class ShownRun:
    """A run in `evsys show`. `result` is all of run_result.json; what is printed has it, and `files`, of a run asked for by
    name.
    """

    past: PastRun
    attempts: tuple[Attempt, ...] = ()
    scores: tuple[Scored, ...] = ()
    files: tuple[RecordFile, ...] = ()
    result: ArmResult | None = None


@attrs.frozen(kw_only=True)
class Superseded:
    """The conclusion of an experiment before it was resumed, and the file that holds it."""

    file: str
    verdict: str | None
    reason: str


@attrs.frozen(kw_only=True)
class Shown:
    """The output of `evsys show --json`. `ancestors` begins with the parent; `conclusion` is None before there is
    one; `superseded` are those before it, the oldest first.
    """

    directory: str
    experiment: PastExperiment
    conclusion: Conclusion | None = None
    superseded: tuple[Superseded, ...] = ()
    ancestors: tuple[str, ...] = ()
    children: tuple[str, ...] = ()
    runs: tuple[ShownRun, ...] = ()
    files: tuple[RecordFile, ...] = ()
