"""What asking a model takes: a second one how likely tokens are, or the one that is trained for answers."""

from __future__ import annotations

from typing import Any

from evsys.types import Usage
from evsys_runtime.rendering.policy_client import sampling_cost

__all__ = ["used"]


def used(client: Any, prompt_tokens: int, completion_tokens: int = 0) -> Usage:
    """Tokens with their price, as far as the client knows it; where a service has the model, what that has told of its calls.

    Args:
        client: a sampling client, or a training client that was asked for a forward pass. One with `told_usage` gives what
            its calls took since it was asked last.
        prompt_tokens: that it read.
        completion_tokens: that it drew.
    """
    told = getattr(client, "told_usage", None)
    if told is not None:
        found: Usage = told()
        return found
    return Usage(
        prompt_tokens=prompt_tokens,
        completion_tokens=completion_tokens,
        cost_usd=sampling_cost(client, prompt_tokens, completion_tokens),
    )
