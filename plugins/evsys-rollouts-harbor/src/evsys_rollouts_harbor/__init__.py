"""Rollouts as Harbor trials, and a bubblewrap sandbox. `policy_model` and `policy_endpoint` are for agents of Harbor's that use the
live model: as an object, or at an address.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from evsys_rollouts_harbor.live import CrossingModel

__all__ = ["policy_endpoint", "policy_model"]


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


async def policy_endpoint(agent: Any) -> Any:
    """The address at which the model answers chat completions for the rollout in which an agent of Harbor's acts:
    `base_url`, `api_key`, `model`.

    Requests are recorded, tokens included. In the agent's `run`: `address = await policy_endpoint(self)`.

    Args:
        agent: a `BaseAgent` that the engine `harbor` runs.

    Raises:
        RolloutError: it isn't one, or the model has no address.
    """
    from evsys_rollouts_harbor.live import live_rollout

    live = live_rollout(agent.logs_dir)
    return await live.caller.run(live.reach)
