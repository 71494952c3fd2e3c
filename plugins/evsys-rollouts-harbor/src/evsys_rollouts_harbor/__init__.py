"""Rollouts as Harbor trials, and a bubblewrap sandbox. `policy_model` is for agents of Harbor's that use the live model."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from evsys_rollouts_harbor.live import CrossingModel

__all__ = ["policy_model"]


def policy_model(agent: Any) -> "CrossingModel":
    """The model client of the rollout in which an agent of Harbor's acts: what it is asked is recorded, tokens included.

    In the agent's `run`: `[completion] = await policy_model(self).generate(messages)`.

    Args:
        agent: a `BaseAgent` that the engine `harbor` runs.

    Raises:
        RolloutError: it is none.
    """
    from evsys_rollouts_harbor.live import CrossingModel, live_rollout

    return CrossingModel(live_rollout(agent.logs_dir))
