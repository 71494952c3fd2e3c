"""What a checked experiment file is: the experiment, its arms, and how it is judged."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import attrs

from evsys_runtime.config.document import Document
from evsys_runtime.config.model import BenchmarkConfig, ExperimentConfig, RunConfig

if TYPE_CHECKING:
    from evsys import Registry

__all__ = ["ALPHA", "MIN_TASKS", "ArmConfig", "Plan", "SuccessMetric"]

ALPHA = 0.05
"""A difference is significant where its p-value, corrected over the arms, is at most this."""

MIN_TASKS = 10
"""On fewer tasks nothing is decided: the verdict is INVALID."""


@attrs.frozen(kw_only=True)
class SuccessMetric:
    """What decides: a metric of a benchmark entry, by the entry's label. `declared` is False where nobody said which
    way is better, and `max` is assumed.
    """

    benchmark: str
    metric: str
    direction: Literal["max", "min"]
    declared: bool = True

    def __str__(self) -> str:
        return f"{self.benchmark}.{self.metric}"


@attrs.frozen(kw_only=True, eq=False)
class ArmConfig:
    """One arm at one repeat.

    `tree` is the arm as plain values, placeholders unresolved; arms share the parts that are equal, so nobody may change
    it. `digest` is the hash of what makes it this run (not its name and tags, the same for all repeats). `seed_override`
    takes the place of the experiment's `base_seed`. `deterministic` is what the file says, else what the backend promises.
    """

    name: str
    repeat: int
    seed_override: int | None
    run: RunConfig
    tree: Mapping[str, Any]
    digest: str
    deterministic: bool
    benchmarks: tuple[BenchmarkConfig, ...]


@attrs.frozen(kw_only=True, eq=False)
class Plan:
    """A file without problems. `arms` come repeat by repeat, so that what is cut short holds whole sets of arms.

    `registry` is the project's; `overrides` were applied on top of the file; `concurrent_arms` run side by side.
    """

    document: Document
    experiment: ExperimentConfig
    arms: tuple[ArmConfig, ...]
    project_root: Path
    registry: Registry
    success: SuccessMetric | None = None
    warnings: tuple[str, ...] = ()
    overrides: tuple[str, ...] = ()
    concurrent_arms: int = 1
