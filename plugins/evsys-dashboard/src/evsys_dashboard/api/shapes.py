"""Shapes of the answers. Every field is always present; unknown values are null, and so are numbers that aren't finite."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from evsys_record import PastExperiment, PastRun
from evsys_record.past import Mark

__all__ = [
    "Curve",
    "Curves",
    "Events",
    "ExperimentAnswer",
    "ExperimentRow",
    "Experiments",
    "FileState",
    "Files",
    "Health",
    "LogLine",
    "LogLines",
    "Project",
    "Projects",
    "RolloutAnswer",
    "RolloutRow",
    "Rollouts",
    "RunAnswer",
    "SeriesRow",
    "TakenAnswer",
]


@attrs.frozen(kw_only=True)
class Health:
    """That the server runs. `local` if it shows the project that it was started in, without keys."""

    status: str
    version: str
    local: bool


@attrs.frozen(kw_only=True)
class Project:
    """A project; `version` counts the changes to its experiments."""

    name: str
    version: int
    experiments: int


@attrs.frozen(kw_only=True)
class Projects:
    """The projects that the key may read, by name, and its scopes. `control` if running experiments can be paused and stopped here."""

    projects: tuple[Project, ...]
    scopes: tuple[str, ...]
    local: bool
    control: bool


@attrs.frozen(kw_only=True)
class ExperimentRow:
    """An experiment in the list; fields are those of `PastExperiment`. `id` names it in addresses; `seen` is when something last came of it, in seconds since 1970."""

    id: str
    version: int
    seen: float
    name: str | None
    status: str
    dry: bool
    moment: str
    finished: str | None
    hypothesis: str | None
    verdict: str | None
    subject: str | None
    marks: tuple[Mark, ...]
    metric: str | None
    direction: str | None
    baseline: str | None
    best_arm: str | None
    before: float | None
    after: float | None
    effect: float | None
    low: float | None
    high: float | None
    minimum_effect: float | None
    cost_usd: float | None
    seconds: float | None
    runs: int
    runs_completed: int
    tags: tuple[str, ...]
    project_goal_id: str | None
    algorithms: tuple[str, ...]
    models: tuple[str, ...]
    backends: tuple[str, ...]
    parent: str | None
    retracted: str | None
    problem: str | None


@attrs.frozen(kw_only=True)
class Experiments:
    """Experiments of a project. `total` counts all that match; `facets` has the values to filter by: `verdict`, `status`, `tag`, `goal`, `plugin`, `model`."""

    total: int
    version: int
    experiments: tuple[ExperimentRow, ...]
    facets: Mapping[str, tuple[str, ...]]


@attrs.frozen(kw_only=True)
class ExperimentAnswer:
    """One experiment. `facts` is experiment.json, `conclusion` is conclusion.json, `config` the experiment file as text.

    `series` has the names of all curves by phase, `checks` the contents of data_check.json, grader_check.json and audit.json.
    """

    id: str
    version: int
    seen: float
    experiment: PastExperiment
    facts: Mapping[str, Any]
    conclusion: Mapping[str, Any] | None
    hypothesis: str | None
    conclusion_text: str | None
    config: str | None
    parent_config: str | None
    warnings: tuple[str, ...]
    runs: tuple[PastRun, ...]
    children: tuple[str, ...]
    series: Mapping[str, tuple[str, ...]]
    checks: Mapping[str, Any]
    files: tuple[FileState, ...]


@attrs.frozen(kw_only=True)
class SeriesRow:
    """A series of a run: the number of its points, its last step and value, and its extremes, over all attempts."""

    phase: str
    name: str
    count: int
    last_step: int | None
    last: float | None
    low: float | None
    high: float | None


@attrs.frozen(kw_only=True)
class RunAnswer:
    """One run. `facts` is run.json, `result` is run_result.json (null while it runs), `rollouts` counts them by phase."""

    id: str
    version: int
    run: PastRun
    facts: Mapping[str, Any]
    result: Mapping[str, Any] | None
    attempts: tuple[Mapping[str, Any], ...]
    series: tuple[SeriesRow, ...]
    checkpoints: tuple[Mapping[str, Any], ...]
    rollouts: Mapping[str, int]
    files: tuple[FileState, ...]


@attrs.frozen(kw_only=True)
class Curve:
    """The live values of a series, at most as many buckets as were asked for.

    `total` counts the values, `counts` those in each bucket, `steps` has the first step of each, `low` and `high` the smallest and the
    largest value in it (null where none is finite). If each bucket has one value, `low` equals `high`, and the buckets are the curve itself.
    """

    run: str
    arm: str | None
    repeat: int | None
    phase: str
    name: str
    total: int
    steps: tuple[int, ...]
    low: tuple[float | None, ...]
    high: tuple[float | None, ...]
    counts: tuple[int, ...]


@attrs.frozen(kw_only=True)
class Curves:
    """The curves asked for, in the order of the runs."""

    version: int
    curves: tuple[Curve, ...]


@attrs.frozen(kw_only=True)
class Events:
    """Events with numbers above the one asked for; `cursor` is the last one's."""

    events: tuple[Mapping[str, Any], ...]
    cursor: int


@attrs.frozen(kw_only=True)
class LogLine:
    """A line of a log: its place in the file, and its values."""

    place: int
    values: Mapping[str, Any]


@attrs.frozen(kw_only=True)
class LogLines:
    """Lines of a log. `cursor` is where the next ones will begin; `before` is where these begin, 0 at the start of the file."""

    lines: tuple[LogLine, ...]
    cursor: int
    before: int


@attrs.frozen(kw_only=True)
class RolloutRow:
    """A rollout in the list. `place` names it in addresses; texts are cut at 200 characters."""

    phase: str
    place: int
    attempt: int
    step: int
    benchmark: str | None
    task: str
    sample: int
    score: float | None
    output: str | None
    error: str | None
    reason: str | None
    truncated: bool
    timed_out: bool


@attrs.frozen(kw_only=True)
class Rollouts:
    """Live rollouts of a run. `total` counts all that match; `next` is the `after` of the next page, null on the last one."""

    total: int
    rollouts: tuple[RolloutRow, ...]
    next: int | None


@attrs.frozen(kw_only=True)
class RolloutAnswer:
    """One rollout, whole: `line` is its line in rollouts.jsonl. `previous` and `next` are the places of its neighbours in the file.

    `texts` has the text of each sampled token by turn, null if the model's tokenizer isn't on this machine.
    """

    row: RolloutRow
    line: Mapping[str, Any]
    texts: tuple[tuple[str, ...] | None, ...]
    previous: int | None
    next: int | None


@attrs.frozen(kw_only=True)
class FileState:
    """How much of a file is held: bytes, and their digest (CRC-32 of lines, SHA-256 of any other file)."""

    file: str
    size: int
    digest: str


@attrs.frozen(kw_only=True)
class Files:
    """The held part of each file of an experiment."""

    files: tuple[FileState, ...]


@attrs.frozen(kw_only=True)
class TakenAnswer:
    """The held part of each file of the batch, after it. A piece that would have left a gap wasn't taken."""

    version: int
    files: tuple[FileState, ...]
