"""Optional members of transforms, of data stores, of plugins that evaluate and search, and of what a `RunContext` carries."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Protocol, runtime_checkable

if TYPE_CHECKING:
    from evsys.types import (
        EvaluationResult,
        HarborTask,
        SearchAxis,
        StoredVersion,
    )

__all__ = [
    "SupportsCounterexample",
    "SupportsEvaluationEstimate",
    "SupportsKeep",
    "SupportsMetricFacts",
    "SupportsMonitoring",
    "SupportsOracle",
    "SupportsReadMetrics",
    "SupportsResearchFacts",
    "SupportsResults",
    "SupportsReuse",
    "SupportsRolloutTime",
    "SupportsSelection",
    "SupportsSize",
    "SupportsSpace",
    "SupportsTaskValue",
    "SupportsTransformFacts",
    "SupportsVersions",
    "SupportsWorkCheck",
]


@runtime_checkable
class SupportsTransformFacts(Protocol):
    """Declares how a transform works."""

    streaming: bool
    """True if it needs no more than one row at a time."""
    dropped: Mapping[str, int]
    """Rows that it left out, by reason."""
    uses: Any
    """Code that its result depends on, or other plugins that it calls."""


@runtime_checkable
class SupportsVersions(Protocol):
    """A data store of versions that never change. An experiment keeps the ID that a name meant when it began."""

    async def resolve(self, ref: str, kind: Literal["datasets", "benchmarks"]) -> StoredVersion:
        """The version of an ID, or the latest one of a name."""

    async def pull_version(self, version: StoredVersion) -> Iterable[Mapping[str, Any]]:
        """The rows of a version."""


@runtime_checkable
class SupportsReuse(Protocol):
    """Declares whether results may be stored and used again."""

    cacheable: bool
    """False if results must not be stored."""
    deterministic: bool
    """False if the same call may give another result."""
    blocking: bool
    """True if it computes so long that it is called in a thread."""
    warnings: Iterable[str]
    """Texts reported with the results."""
    reward_range: tuple[float, float]
    """The least and the largest reward of a verifier."""


@runtime_checkable
class SupportsOracle(Protocol):
    """A verifier that can write answers, by which it is checked before use."""

    def oracle(self, expected: Any, params: Mapping[str, Any]) -> Any:
        """An answer with full marks."""


@runtime_checkable
class SupportsCounterexample(Protocol):
    """A verifier that can write a wrong answer."""

    def counterexample(self, expected: Any, params: Mapping[str, Any]) -> Any:
        """An answer without any mark."""


@runtime_checkable
class SupportsMetricFacts(Protocol):
    """Declares how a metric is read."""

    direction: Literal["max", "min"]
    """Whether more is better."""
    needs_samples: int
    """Samples of a task that it needs."""
    value_range: tuple[float, float]
    """Its least and its largest value."""


@runtime_checkable
class SupportsTaskValue(Protocol):
    """A metric that has a value for each task, which paired tests need."""

    task_value: Callable[..., float | None]
    """The value of one task, from the rewards of its samples or from its rollouts."""


@runtime_checkable
class SupportsWorkCheck(Protocol):
    """A rollout engine that can't run everything."""

    def check_work(self, tasks: Sequence[HarborTask], environment: Any, harness: Any) -> None:
        """Raise the problem with these tasks, before a run begins."""


@runtime_checkable
class SupportsRolloutTime(Protocol):
    """A rollout engine that takes longer for a rollout than its caller allows for one try."""

    def rollout_seconds(self, allowed: float) -> float:
        """The longest time of one rollout with its retries, in seconds; `allowed` is the caller's limit of one try."""


@runtime_checkable
class SupportsMonitoring(Protocol):
    """A callback that watches metrics."""

    monitored: Iterable[str]
    """The metrics that it watches, `<entry>.<metric>`."""
    judgements: int
    """Evaluations that it needs before it can act."""


@runtime_checkable
class SupportsKeep(Protocol):
    """A search that stops arms early."""

    def keep(self, history: Sequence[Mapping[str, Any]], n: int, step: int, score: float) -> bool:
        """False stops arm `n`; asked at each score from within its training."""


@runtime_checkable
class SupportsSpace(Protocol):
    """A search that checks its space."""

    def validate_space(self, space: Sequence[SearchAxis]) -> Iterable[str]:
        """Problems with the space, a string each."""


@runtime_checkable
class SupportsSize(Protocol):
    """A search that knows how many arms it proposes."""

    def size(self, space: Sequence[SearchAxis]) -> int | None:
        """The arms that it proposes at most; None if unknown."""


@runtime_checkable
class SupportsResearchFacts(Protocol):
    """A researcher that declares what it reads."""

    uses_context: bool
    """Whether it reads `ResearchState.context`; True where undeclared."""


@runtime_checkable
class SupportsResults(Protocol):
    """An `evaluate` that lists its evaluations."""

    results: Sequence[EvaluationResult]
    """Those that have ended, in order of step."""
    pending: Sequence[Mapping[str, Any]]
    """Those under way, with their `benchmark` and `step`."""


@runtime_checkable
class SupportsSelection(Protocol):
    """An `evaluate` that selects a checkpoint."""

    def selects(self, step: int) -> bool:
        """True if the weights after `step` steps may be selected, and so have to be saved."""


@runtime_checkable
class SupportsEvaluationEstimate(Protocol):
    """An `evaluate` that foresees its time."""

    def estimate(self, start: int, end: int) -> float | None:
        """Seconds of the evaluations after step `start` up to `end`; None if unknown."""


@runtime_checkable
class SupportsReadMetrics(Protocol):
    """A `record` that can be read back."""

    def read_metrics(self, phase: str = "training") -> Iterable[Mapping[str, Any]]:
        """The lines of metrics of the live lineage."""
