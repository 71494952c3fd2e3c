"""The policy's agent and verifier in the shape that Harbor asks for. Harbor makes them by their import path, for each trial."""

from __future__ import annotations

import asyncio
from typing import Any

from evsys.types import NoScore
from evsys_rollouts_harbor.api import (
    AgentCapabilities,
    AgentContext,
    AgentTimeoutError,
    BaseAgent,
    BaseEnvironment,
    BaseVerifier,
    VerifierResult,
)
from evsys_rollouts_harbor.live import Place, live_rollout
from evsys_rollouts_harbor.outcomes import EvsysAgentError, EvsysNoScoreError, EvsysPassingError
from evsys_rollouts_harbor.places import Nowhere

__all__ = ["PolicyAgent", "PolicyVerifier"]


class PolicyAgent(BaseAgent):  # type: ignore[misc]  # Harbor has no types
    """Lets the policy's agent act, on the event loop of the caller."""

    capabilities = AgentCapabilities(skills=True, mcp_servers=True, mcp_http_headers=True)

    @staticmethod
    def name() -> str:
        """Its name in Harbor."""
        return "evsys"

    def version(self) -> str:
        """The version of nothing in particular: the agent is the policy's."""
        return "1"

    async def setup(self, environment: BaseEnvironment) -> None:
        """Nothing to set up."""

    async def run(self, instruction: str, environment: BaseEnvironment, context: AgentContext) -> None:
        """Act on one task, or one step of it.

        Raises:
            EvsysAgentError: the agent failed.
            EvsysPassingError: it failed for a reason that may pass.
            AgentTimeoutError: its time was over.
        """
        live = live_rollout(self.logs_dir)
        place = None if isinstance(environment, Nowhere) else Place(environment, asyncio.get_running_loop())
        acted = await live.act(instruction if live.task.path is not None else None, place)
        rollout = live.rollout()
        context.n_input_tokens = rollout.usage.prompt_tokens
        context.n_output_tokens = rollout.usage.completion_tokens
        context.cost_usd = rollout.usage.cost_usd
        if acted.timed_out:
            raise AgentTimeoutError(f"the agent's {live.timeout_seconds:g} s are over")
        if rollout.error is not None:
            passing = isinstance(rollout.score, NoScore) and rollout.score.retryable
            raise (EvsysPassingError if passing else EvsysAgentError)(rollout.error) from acted.failure


class PolicyVerifier(BaseVerifier):  # type: ignore[misc]  # Harbor has no types
    """Has the rollout judged by the policy's `verify`."""

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        self._live = live_rollout(self.trial_paths.trial_dir)

    async def verify(self) -> VerifierResult:
        """The reward as Harbor has it.

        Raises:
            EvsysNoScoreError: there is no score.
            EvsysPassingError: there is none for a reason that may pass.
        """
        score = await self._live.judge()
        if isinstance(score, NoScore):
            raise (EvsysPassingError if score.retryable else EvsysNoScoreError)(score.reason)
        return VerifierResult(rewards={"reward": score.value})
