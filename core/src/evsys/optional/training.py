"""Optional members of algorithms."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

if TYPE_CHECKING:
    from evsys.protocols import Renderer
    from evsys.types import (
        LoraSpec,
        ModelSpec,
        RunResult,
    )

__all__ = [
    "SupportsCollapse",
    "SupportsForesight",
    "SupportsLora",
    "SupportsMeasure",
    "SupportsMeasureSchedule",
    "SupportsModelCheck",
    "SupportsPreview",
    "SupportsRoleCheck",
    "SupportsRoles",
    "SupportsRowsTrained",
    "SupportsTrainingFacts",
]


@runtime_checkable
class SupportsLora(Protocol):
    """Names what is trained of the model."""

    def lora(self) -> LoraSpec:
        """The trained matrices, and their rank."""


@runtime_checkable
class SupportsRoles(Protocol):
    """Uses second models."""

    roles: Mapping[str, Iterable[str]]
    """`teacher` or `reference`, with the capabilities that the role's backend must have."""
    required_roles: Collection[str]
    """Those of `roles` that it needs."""


@runtime_checkable
class SupportsRoleCheck(Protocol):
    """Knows which second models it can't use."""

    def validate_roles(self, model: ModelSpec, roles: Mapping[str, ModelSpec]) -> Iterable[str]:
        """Problems with the second models, a string each, before anything is prepared."""


@runtime_checkable
class SupportsTrainingFacts(Protocol):
    """Declares how it reads rows, and in which range its metrics are healthy."""

    shape: str
    """The type that rows are parsed to: `chat` (the default), `prompt`, `task`, or `pair`."""
    health: Mapping[str, Any]
    """A metric's name, and the `Band` that it stays in."""
    requires: Iterable[str]
    """Capabilities that the backend must have."""
    whole_batches: bool
    """True if it needs as many rows as a batch has."""
    goes_back: bool
    """True if a value that isn't finite is a collapse to go back from, and not a failure."""


@runtime_checkable
class SupportsModelCheck(Protocol):
    """An algorithm or a backend that knows which models it can't train."""

    def validate_model(self, model: ModelSpec) -> Iterable[str]:
        """Problems with the model, a string each, before anything is prepared."""


@runtime_checkable
class SupportsPreview(Protocol):
    """Shows rows as they are trained."""

    def preview(
        self, rows: Iterable[Any], renderer: Renderer, dropped: dict[str, int] | None = None
    ) -> Iterable[Any]:
        """The rows as tokens with their weights; `dropped` counts those left out, by reason."""


@runtime_checkable
class SupportsRowsTrained(Protocol):
    """Keeps some rows out of training."""

    def rows_trained(self, rows: int) -> int:
        """How many of `rows` rows are trained on."""


@runtime_checkable
class SupportsForesight(Protocol):
    """Bounds a step whose batch isn't built ahead, since answers are sampled for it."""

    def foreseen(self, step_idx: int) -> Any:
        """The most that the step takes, a `Foreseen`; None if unknown."""


@runtime_checkable
class SupportsMeasure(Protocol):
    """Measures by passes over the model."""

    async def measure(self, step: int, *, last: bool) -> Mapping[str, float]:
        """Metrics to record with those of the step; `step` counts optimiser steps."""


@runtime_checkable
class SupportsMeasureSchedule(Protocol):
    """Doesn't measure after every step."""

    def measures(self, step: int) -> bool:
        """True if `measure` takes passes after this step."""


@runtime_checkable
class SupportsCollapse(Protocol):
    """Decides how training continues after a collapse."""

    def after_collapse(self, result: RunResult, retreats: int) -> Any:
        """How to continue after `train` returned the status `collapsed`, a `Retreat`; None ends the run."""
