"""`RunContext`: everything a running algorithm may use. It can be built with core alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs

from evsys.types.training import ModelSpec

if TYPE_CHECKING:
    from evsys.protocols import (
        Budget,
        Checkpoints,
        Dataset,
        Evaluate,
        Hooks,
        Log,
        Pause,
        Recorder,
        Rollouts,
        TrainingClient,
    )

__all__ = ["Clients", "RunContext", "StopFlag"]


@attrs.define(kw_only=True)
class StopFlag:
    """Set once, by anyone; the loop looks at it between steps. The first reason is kept."""

    reason: str | None = None

    def set(self, reason: str) -> None:
        """Ask for a stop."""
        if self.reason is None:
            self.reason = reason


@attrs.frozen(kw_only=True)
class Clients:
    """The models of a run. `teacher` and `reference` are there when the config names those roles; they aren't trained."""

    policy: TrainingClient
    teacher: TrainingClient | None = None
    reference: TrainingClient | None = None


@attrs.frozen(kw_only=True)
class RunContext:
    """One attempt at one arm.

    `config` is the arm's resolved tree; `seeds(purpose, index)` gives the derived seed of a purpose. `evaluate`,
    `rollouts` and `budget` are None where the config asks for none of it. `pause` is None where no one can ask for one. `retreats` is how often this run went back to an
    earlier checkpoint, since its training had collapsed.
    """

    run_id: str
    arm: str
    repeat: int
    attempt: int
    run_dir: Path
    config: Mapping[str, Any]
    model: ModelSpec
    seeds: Callable[..., int]
    data: Dataset
    clients: Clients
    record: Recorder
    checkpoints: Checkpoints
    hooks: Hooks
    log: Log
    evaluate: Evaluate | None = None
    rollouts: Rollouts | None = None
    budget: Budget | None = None
    deterministic: bool = False
    max_steps: int | None = None
    retreats: int = 0
    stop: StopFlag = attrs.field(factory=StopFlag)
    pause: Pause | None = None
    heartbeat: Callable[[], None] = lambda: None
    warn: Callable[[str], None] = lambda _message: None

    @property
    def stop_requested(self) -> str | None:
        """The reason someone asked this run to stop, or None."""
        return self.stop.reason

    def request_stop(self, reason: str) -> None:
        """End this run after the current step; its weights are kept and scored."""
        self.stop.set(reason)
