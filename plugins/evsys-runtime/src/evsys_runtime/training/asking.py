"""Asking a model, a second one or the trained one: calls side by side, and what they take."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable
from typing import Any

from evsys.optional import declared
from evsys.types import Usage
from evsys_runtime.rendering.policy_client import sampling_cost

__all__ = ["all_of", "priced_usage"]


async def all_of[T](calls: Iterable[Awaitable[T]]) -> list[T]:
    """The results of calls that run side by side; where one fails, nothing waits for the others any more."""
    waiting = list(calls)
    if len(waiting) == 1:
        return [await waiting[0]]
    tasks = [asyncio.ensure_future(call) for call in waiting]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()


def priced_usage(client: Any, prompt_tokens: int, completion_tokens: int = 0) -> Usage:
    """Tokens with their price, as far as the client knows it; if a service has the model, as it reported for its
    calls.

    Args:
        client: a sampling client, or a training client asked for a forward pass. One with `told_usage` returns the
            usage of its calls since the last question.
        prompt_tokens: that it read.
        completion_tokens: that it drew.
    """
    told = declared(client, "told_usage")
    if told is not None:
        found: Usage = told()
        return found
    return Usage(
        prompt_tokens=prompt_tokens,
        completion_tokens=completion_tokens,
        cost_usd=sampling_cost(client, prompt_tokens, completion_tokens),
    )
