"""Rollouts tried again after what may pass, for engines that have no retries of their own."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import attrs

from evsys.types import NoScore, Rollout, Usage

__all__ = ["with_retries"]

_LONGEST_WAIT_SECONDS = 60.0


async def with_retries(
    attempt: Callable[[], Awaitable[Rollout]], *, most: int, wait_seconds: float
) -> Rollout:
    """Run a rollout, and all of it again as long as it has no score for a reason that may pass.

    One that ran out of time isn't tried again: that it would hang again is likely, and costs as much. The rollout
    counts what all its attempts and their verdicts took, and says in `metadata.attempts` how many there were, where
    it was more than one.

    Args:
        attempt: makes one attempt; its failures are data.
        most: attempts after the first.
        wait_seconds: wait before the first of these; doubled each time, up to a minute.
    """
    rollout = await attempt()
    used, judging = rollout.usage, rollout.score.usage
    attempts = 1
    while attempts <= most and _may_pass(rollout):
        await asyncio.sleep(min(wait_seconds * 2 ** (attempts - 1), _LONGEST_WAIT_SECONDS))
        rollout = await attempt()
        attempts += 1
        used = used + rollout.usage
        if rollout.score.usage is not None:
            judging = (judging or Usage()) + rollout.score.usage
    if attempts == 1:
        return rollout
    return attrs.evolve(
        rollout,
        usage=used,
        score=attrs.evolve(rollout.score, usage=judging),
        metadata={**rollout.metadata, "attempts": attempts},
    )


def _may_pass(rollout: Rollout) -> bool:
    return isinstance(rollout.score, NoScore) and rollout.score.retryable and not rollout.timed_out
