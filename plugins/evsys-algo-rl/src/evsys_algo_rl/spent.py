"""What rollouts took: tokens and money of the model and of judging."""

from __future__ import annotations

from collections.abc import Sequence

from evsys.types import Rollout, Usage

__all__ = ["spent"]


def spent(rollouts: Sequence[Rollout]) -> Usage:
    """The sum over rollouts, at once: adding up hundreds of `Usage` one by one would be felt in each step.

    Rollouts run side by side, and beside the training, so their seconds don't add up to any.
    """
    used = [rollout.usage for rollout in rollouts]
    used += [rollout.score.usage for rollout in rollouts if rollout.score.usage is not None]
    costs = [one.cost_usd for one in used if one.cost_usd is not None]
    return Usage(
        prompt_tokens=sum(one.prompt_tokens for one in used),
        completion_tokens=sum(one.completion_tokens for one in used),
        trained_tokens=sum(one.trained_tokens for one in used),
        cost_usd=sum(costs) if costs else None,
        unpriced=sum(one.without_price for one in used),
    )
