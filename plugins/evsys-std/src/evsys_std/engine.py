"""The `direct` rollout engine: agents run in this process, on this event loop."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import attrs

from evsys import option
from evsys.errors import RolloutError

if TYPE_CHECKING:
    from evsys.types import HarborTask, Policy, Rollout, RolloutLimits
    from evsys_runtime import Job

__all__ = ["DirectEngine"]


class DirectEngine:
    """Runs each task's samples side by side, a bounded number at once, with a deadline for each.

    For tasks that need no environment of their own. An agent that crashes is data, and stops no other.
    """

    name: ClassVar[str] = "direct"

    @attrs.frozen(kw_only=True)
    class Config:
        """Parameters of `direct`."""

        max_retries: int = option(
            0, "how often a rollout is tried again that failed for a reason that may pass", ge=0
        )
        retry_wait_seconds: float = option(
            1.0, "wait before the first of these; doubled each time, up to a minute", ge=0
        )
        timeout_seconds: float | None = option(
            None, "time limit of an agent; by default that of the caller", gt=0
        )

    def __init__(self, **fields: Any) -> None:
        self.config = self.Config(**fields)

    def check_work(self, tasks: Sequence[HarborTask], environment: Any, harness: bool) -> None:
        """Say what of a benchmark entry can't be run here.

        Raises:
            RolloutError: it needs a place to act.
        """
        wants = "has no environments" if environment is not None else None
        wants = "can't run Harbor's agents" if harness else wants
        wants = "can't run tasks that are folders" if any(task.path is not None for task in tasks) else wants
        if wants is not None:
            raise RolloutError(f"engine 'direct' {wants}", hint="write engine: harbor, or leave it out")

    def rollout_seconds(self, allowed: float) -> float:
        """The longest time of one rollout with its retries."""
        return (self.config.timeout_seconds or allowed) * (1 + self.config.max_retries)

    def run(
        self, tasks: Sequence[HarborTask], policy: Policy, limits: RolloutLimits
    ) -> AsyncGenerator[Rollout]:
        """Yield every rollout once: as they finish, or with `limits.wave` wave after wave in the order of the
        tasks.

        Work begins with the first rollout asked for, and ends when the generator is closed. At most
        `2 * n_concurrent` rollouts run or wait to be taken, so a slow reader slows the engine down.
        """
        # `validate` looks at this engine and runs nothing, so that asyncio isn't imported for it.
        from evsys_runtime import jobs_of, run_rollout, scheduled, with_retries

        seconds = self.config.timeout_seconds or limits.timeout_seconds

        async def one(job: Job) -> Rollout:
            return await with_retries(
                lambda: run_rollout(*job, policy, timeout_seconds=seconds, max_turns=limits.max_turns),
                most=self.config.max_retries,
                wait_seconds=self.config.retry_wait_seconds,
            )

        width = min(limits.n_concurrent, max(1, len(tasks) * policy.num_samples))
        return scheduled(jobs_of(tasks, policy.num_samples), width, one, wave=limits.wave)
