"""The contents of a checked experiment file: the experiment, its arms, and how it is judged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import attrs

from evsys_runtime.config.arm_tree import Stage
from evsys_runtime.config.document import Document
from evsys_runtime.config.model import BenchmarkConfig, ExperimentConfig, RunConfig
from evsys_runtime.config.resolver import Resolver

if TYPE_CHECKING:
    from evsys import Registry
    from evsys.types import HarborTask, Proof, Purpose
    from evsys_runtime.config.search_plan import PlannedSearch

__all__ = [
    "ALPHA",
    "MIN_TASKS",
    "ArmConfig",
    "CheckpointSelection",
    "Plan",
    "ScoredTasks",
    "Stage",
    "SuccessMetric",
]

ALPHA = 0.05
"""A difference is significant where its p-value, corrected over the arms, is at most this."""

MIN_TASKS = 10
"""On fewer tasks nothing is decided: the verdict is INVALID."""


@attrs.frozen(kw_only=True)
class SuccessMetric:
    """The deciding metric of a benchmark entry, by the entry's label. `declared` is False if no direction is
    declared, and `max` is assumed.
    """

    benchmark: str
    metric: str
    direction: Literal["max", "min"]
    declared: bool = True

    def __str__(self) -> str:
        return f"{self.benchmark}.{self.metric}"

    def oriented(self, value: float) -> float:
        """A value of it so that more is better; of such a one the value."""
        return value if self.direction == "max" else -value


@attrs.frozen(kw_only=True)
class CheckpointSelection:
    """Which checkpoint of a run counts: the last, or the best by `metric` of the `val` entry `benchmark`.

    `direction` is that of the success metric if that selects, else None: the metric's own. `proof` says what keeps the selection
    out of the verdict's numbers, of the entry `proven`; both are None if nothing is decided. `reason` says why the last counts
    although an entry is scored during training.
    """

    checkpoint: Literal["best", "last"] = "last"
    benchmark: str = ""
    metric: str = ""
    direction: Literal["max", "min"] | None = None
    proof: Proof | None = None
    proven: str | None = None
    reason: str | None = None

    @property
    def by(self) -> str | None:
        """`<benchmark>.<metric>`; None for the last checkpoint."""
        return f"{self.benchmark}.{self.metric}" if self.checkpoint == "best" else None

    @property
    def scored_again(self) -> str | None:
        """The entry scored again on the selected weights alone, since it selected them; None if there is none."""
        return self.proven if self.proof in ("fresh_samples", "held_out_tasks") else None


@attrs.frozen(kw_only=True, eq=False)
class ArmConfig:
    """One arm at one repeat, or one `stage` of it there.

    `tree` is the arm as plain values, placeholders unresolved; arms share equal parts, so no one may
    change it. `digest` is the hash of what makes it this run (not its name and tags, the same for all repeats).
    `seed_override` takes the place of the experiment's `base_seed`. `deterministic` is what the file says, else
    what the backend promises. `after` is the run that has to be complete before this one begins. `purpose` is why
    it is run: to be compared, to show how far equal runs fall apart, or to confirm a winner. With `weights_of`
    nothing is trained: what that run ended with is scored, or for `base_model` untrained weights.
    """

    name: str
    repeat: int
    seed_override: int | None
    run: RunConfig
    tree: Mapping[str, Any]
    digest: str
    deterministic: bool
    benchmarks: tuple[BenchmarkConfig, ...]
    after: str | None = None
    stage: Stage | None = None
    purpose: Purpose = "candidate"
    weights_of: str | None = None

    @property
    def run_id(self) -> str:
        """`<arm>-s<repeat>`, of a stage `<arm>-s<repeat>.<index>-<stage>`."""
        return f"{self.name}-s{self.repeat}" + ("" if self.stage is None else f".{self.stage.label}")

    @property
    def label(self) -> str:
        """The arm's name, of a stage with that: `<arm>.<index>-<stage>`."""
        return self.name if self.stage is None else f"{self.name}.{self.stage.label}"


@attrs.frozen(kw_only=True, eq=False)
class ScoredTasks:
    """The tasks of a benchmark entry scored, as they were read when the file was checked.

    `content_hash` is that of the whole file; None if only part of it is scored.
    """

    tasks: Sequence[HarborTask]
    content_hash: str | None


@attrs.frozen(kw_only=True, eq=False)
class Plan:
    """A file without problems. `arms` come repeat by repeat, so that what is cut short holds whole sets of arms.

    `selection` says which checkpoint of each run counts.
    `registry` is the project's; `overrides` were applied on top of the file; `concurrent_arms` run side by side. `benchmark` took the place of
    the file's `metadata.benchmark`. `tasks` has those of each entry by its label. `stored` has the versions that names of stored data
    mean, see `Pins`. With a `search`
    there are no arms at the start but those that show how far equal ones fall apart. `resolver` has the algorithms of the arms as they
    were built when the file was checked.
    """

    document: Document
    experiment: ExperimentConfig
    arms: tuple[ArmConfig, ...]
    project_root: Path
    registry: Registry
    success: SuccessMetric | None = None
    selection: CheckpointSelection = attrs.field(factory=CheckpointSelection)
    search: PlannedSearch | None = None
    warnings: tuple[str, ...] = ()
    overrides: tuple[str, ...] = ()
    concurrent_arms: int = 1
    benchmark: BenchmarkConfig | None = None
    tasks: Mapping[str, ScoredTasks] = attrs.field(factory=dict)
    stored: Mapping[str, Mapping[str, Any]] = attrs.field(factory=dict)
    resolver: Resolver = attrs.field(
        default=attrs.Factory(lambda self: Resolver(self.registry), takes_self=True), repr=False
    )

    @property
    def looked_at(self) -> tuple[ArmConfig, ...]:
        """The arms, with a search those looked at in place of the ones that it is going to choose."""
        return self.arms if self.search is None else (*self.search.probes, *self.arms)
