"""Optional members of backends, of the clients that they return, and of what reads text."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

if TYPE_CHECKING:
    from evsys.types import (
        Completion,
        Datum,
        ModelSpec,
        Usage,
    )

__all__ = [
    "SupportsBackendFacts",
    "SupportsClientFacts",
    "SupportsEstimate",
    "SupportsKeepState",
    "SupportsPreflight",
    "SupportsPromptLogprobs",
    "SupportsSamplingCost",
    "SupportsSwitch",
    "SupportsText",
    "SupportsTrainingCost",
    "SupportsUsage",
]


@runtime_checkable
class SupportsBackendFacts(Protocol):
    """Declares how a backend runs."""

    honours: Collection[str]
    """The run options that it doesn't ignore; undeclared means all."""
    concurrent_arms: int
    """Arms that it trains side by side, by default."""
    simulated: bool
    """True if it only simulates a model, so that no score means anything."""
    free: bool
    """True if its use costs no money; `False` marks a verifier whose calls cost some."""


@runtime_checkable
class SupportsPreflight(Protocol):
    """Trains elsewhere."""

    async def preflight(self, model: ModelSpec) -> Any:
        """Ask the other side whether it can train the model, without making anything."""


@runtime_checkable
class SupportsEstimate(Protocol):
    """A training client that foresees time and memory."""

    def estimate(
        self, data: Sequence[Datum], steps: int, sampling: Mapping[str, int] | None = None
    ) -> Mapping[str, float]:
        """Expected `seconds` and `peak_bytes` of `steps` steps on batches like this one."""


@runtime_checkable
class SupportsClientFacts(Protocol):
    """Declares limits and facts of a training or sampling client."""

    max_length: int | None
    """The longest sequence in tokens that the model takes."""
    submits_ahead: bool
    """True if a step may be submitted before the one before it has ended."""
    facts: Mapping[str, Any]
    """Facts about the backend that the record notes."""
    digest: str
    """A hash of all weights of a snapshot: equal ones say the same."""


@runtime_checkable
class SupportsKeepState(Protocol):
    """A training client that saves states elsewhere, and removes old ones."""

    async def keep_state(self, state: Mapping[str, Any]) -> None:
        """Keep what `save_state` returned for the best checkpoint of the run so far."""


@runtime_checkable
class SupportsTrainingCost(Protocol):
    """Knows the price of training."""

    def training_cost(self, tokens: int) -> float | None:
        """US dollars of training on so many tokens; None if unknown."""


@runtime_checkable
class SupportsSamplingCost(Protocol):
    """Knows the price of sampling."""

    def sampling_cost(self, prompt_tokens: int, completion_tokens: int) -> float | None:
        """US dollars of one call; None if unknown."""


@runtime_checkable
class SupportsPromptLogprobs(Protocol):
    """An inference client that can be a teacher."""

    async def prompt_logprobs(self, tokens: Sequence[int]) -> Completion:
        """Logprobs of the tokens, each given those before it; the first one is NaN."""


@runtime_checkable
class SupportsUsage(Protocol):
    """Reports the usage of its calls."""

    def told_usage(self) -> Usage:
        """The usage of all calls since the last time, as the service counted it."""


@runtime_checkable
class SupportsText(Protocol):
    """Facts of renderers and tokenizers."""

    fingerprint: str
    """A hash of everything that decides the tokens."""
    control_tokens: Mapping[str, int]
    """The tokens that only a chat template may write, and their ids."""
    special_tokens: Mapping[str, str]
    """The named special tokens as text, such as `bos_token`, which chat templates use."""


@runtime_checkable
class SupportsSwitch(Protocol):
    """A deployer that first prepares a model next to the one in use, so that it can be tested, and then switches between them."""

    async def active(self) -> Mapping[str, Any] | None:
        """The place of the model in use, as `deploy` returned it; None before the first."""

    async def activate(self, place: Mapping[str, Any]) -> None:
        """Put a deployed model into use, at once and for all callers."""

    async def read_back(self, place: Mapping[str, Any]) -> Path:
        """The folder of the deployed model as a checkpoint, to be compared with what was scored."""
