"""`RolloutParams`: what an algorithm that learns from rollouts lets a file set of them, alongside what every training does."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from evsys import option
from evsys.types import RolloutLimits
from evsys.types.rollouts import MOST_TURNS

__all__ = ["RolloutParams"]


@attrs.frozen(kw_only=True, slots=False)  # two bases with slots can't be inherited from
class RolloutParams:
    """Who acts in a run's rollouts, where, and for how long. To inherit alongside `TrainingParams`."""

    max_turns: int | None = option(
        None,
        f"Most answers of one rollout; by default as many as the agent asks for, up to {MOST_TURNS}.",
        ge=1,
    )
    system_prompt: str | None = option(None, "Goes before each task.")
    agent_import_path: str | None = option(
        None, "Who acts in rollouts, as `module:name`; by default `run.agent`, else a plain chat.", min_len=1
    )
    environment: str | Mapping[str, Any] | None = option(
        None, "Environment of the agent: its kind, or its `kind` and `params`."
    )
    n_concurrent: int = option(64, "Rollouts that run at once.", ge=1)
    timeout_seconds: float = option(600.0, "Longest time of one rollout.", gt=0)
    max_retries: int = option(
        1, "How often a rollout that failed is sampled again; one that ran out of time isn't.", ge=0, le=10
    )

    def limits(self, *, wave: bool) -> RolloutLimits:
        """The bounds of an engine; `wave` where a run is deterministic."""
        return RolloutLimits(
            n_concurrent=self.n_concurrent,
            timeout_seconds=self.timeout_seconds,
            max_turns=self.max_turns or MOST_TURNS,
            wave=wave,
            keep="errors",
        )
