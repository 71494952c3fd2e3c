"""What an engine needs around any agent: a model client that records every turn, and the rollout made of the record.

Tokens and logprobs are those of the sampler, taken where they come out; nothing is tokenised again. The record is trusted
over what an agent says about itself.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import attrs

from evsys.errors import PLUGIN_FAILURES, EvsysError
from evsys.types import (
    AgentContext,
    Completion,
    HarborTask,
    Message,
    NoScore,
    Policy,
    Rollout,
    SamplingParams,
    Turn,
    Usage,
)
from evsys_runtime.accounting.spent import used_by
from evsys_runtime.evaluation.failures import boundary_of
from evsys_runtime.evaluation.seeds import rollout_seed, turn_seed

if TYPE_CHECKING:
    from evsys.protocols import InferenceClient

__all__ = ["Acted", "RecordingModel", "act", "agent_context", "finish_rollout", "judged", "run_rollout"]


class RecordingModel:
    """A core `InferenceClient` around another, for one rollout.

    Each call gets a seed of its own, derived from the rollout's and the call's number, unless the agent chose one.

    Args:
        model: who answers.
        seed: the rollout's seed.
    """

    def __init__(self, model: InferenceClient, seed: int) -> None:
        self._model = model
        self._seed = seed
        self._calls: list[Sequence[Completion]] = []
        self.messages: tuple[Message, ...] = ()
        self.usage = Usage()

    @property
    def turns(self) -> tuple[Turn, ...]:
        """Every completion so far, in the order of the calls."""
        return tuple(
            Turn(
                message=completion.message,
                prompt_tokens=completion.prompt_tokens,
                tokens=completion.tokens,
                logprobs=completion.logprobs,
                finish_reason=completion.finish_reason,
            )
            for completions in self._calls
            for completion in completions
        )

    async def generate(
        self,
        messages: Sequence[Message],
        sampling: SamplingParams,
        *,
        n: int = 1,
        tools: Sequence[Mapping[str, Any]] = (),
    ) -> Sequence[Completion]:
        """Pass the call on and record what comes back."""
        call = len(self._calls)
        self._calls.append(())
        if sampling.seed is None or sampling.seed == self._seed:
            sampling = attrs.evolve(sampling, seed=turn_seed(self._seed, call))
        completions = await self._model.generate(messages, sampling, n=n, tools=tools)
        self._calls[call] = completions
        for completion in completions:
            self.usage = self.usage + used_by(completion)
        if completions:
            self.messages = (*messages, completions[0].message)
        return completions


def agent_context(policy: Policy, task_index: int, sample_index: int, *, max_turns: int) -> AgentContext:
    """What the agent of one rollout may know; its seed is derived from `policy.sampling.seed` (0 where None)."""
    seed = rollout_seed(policy.sampling.seed or 0, task_index, sample_index)
    return AgentContext(
        sampling=attrs.evolve(policy.sampling, seed=seed),
        seed=seed,
        sample_index=sample_index,
        max_turns=max_turns,
        system_prompt=policy.system_prompt,
        policy_version=policy.version,
    )


@attrs.frozen(kw_only=True)
class Acted:
    """How an agent's acting ended: what it said, what it raised, whether its time was over, how many seconds it took."""

    said: Rollout | str | None = None
    failure: BaseException | None = None
    timed_out: bool = False
    seconds: float = 0.0


async def act(
    task: HarborTask, policy: Policy, model: RecordingModel, context: AgentContext, *, timeout_seconds: float
) -> Acted:
    """Let the policy's agent act on one task, on this event loop. An agent that fails is data."""
    started = time.perf_counter()
    said: Rollout | str | None = None
    failure: BaseException | None = None
    deadline = asyncio.timeout(timeout_seconds)
    try:
        async with deadline:
            said = await policy.agent.run(task, model, task.tools, context)
    except PLUGIN_FAILURES as exc:
        failure = None if deadline.expired() else exc
    seconds = time.perf_counter() - started
    return Acted(said=said, failure=failure, timed_out=deadline.expired(), seconds=seconds)


async def run_rollout(
    task: HarborTask,
    task_index: int,
    sample_index: int,
    policy: Policy,
    *,
    timeout_seconds: float,
    max_turns: int = 1,
) -> Rollout:
    """Let the policy's agent act on one task in this process, and have the result judged.

    An agent that fails is data: the rollout says so and has no score. One that runs out of time is judged by the text
    that it got to, and flagged; without any text it has no score.
    """
    context = agent_context(policy, task_index, sample_index, max_turns=max_turns)
    model = RecordingModel(policy.model, context.seed)
    acted = await act(task, policy, model, context, timeout_seconds=timeout_seconds)
    rollout = finish_rollout(
        task,
        sample_index,
        model,
        acted.said,
        failure=acted.failure,
        timed_out=acted.timed_out,
        version=policy.version,
        seconds=acted.seconds,
    )
    return await judged(task, rollout, policy)


def finish_rollout(
    task: HarborTask,
    sample_index: int,
    model: RecordingModel,
    said: Rollout | str | None,
    *,
    failure: BaseException | None = None,
    timed_out: bool = False,
    version: int | None = None,
    seconds: float = 0.0,
) -> Rollout:
    """The rollout of an agent that ended: what it said, what its model client recorded, and how it went.

    Not judged yet. It has a `NoScore` of its own where there is nothing to judge: the agent failed (`failure`), or was
    out of time before the model said anything.
    """
    turns = model.turns
    own = said if isinstance(said, Rollout) else None
    output = said if isinstance(said, str) else own.output if own else ""
    if not output and turns and (own is not None or timed_out):
        output = turns[-1].message.content
    if failure is None and not timed_out and not isinstance(said, Rollout | str):
        failure = TypeError(f"the agent returned {type(said).__name__}, not a text or a Rollout")
    error, score = _fault(failure, own.error if own else None, silent=timed_out and not turns)
    return Rollout(
        task_id=task.task_id,
        sample_index=sample_index,
        messages=(own.messages if own else ()) or model.messages,
        turns=turns or (own.turns if own else ()),
        output=output,
        score=score,
        error=error,
        truncated=(own is not None and own.truncated)
        or any(turn.finish_reason == "length" for turn in turns),
        timed_out=timed_out or (own is not None and own.timed_out),
        policy_version=version,
        usage=attrs.evolve(model.usage if turns or own is None else own.usage, seconds=seconds),
        metadata=own.metadata if own else {},
    )


def _fault(failure: BaseException | None, told: str | None, *, silent: bool) -> tuple[str | None, NoScore]:
    """What went wrong, in words, and the absence of a score that it is; no words where there is something to judge."""
    if failure is not None:
        error = str(failure) if isinstance(failure, EvsysError) else f"{type(failure).__name__}: {failure}"
        passing = isinstance(failure.__cause__ or failure, OSError)
        return error, NoScore(reason=error, boundary=boundary_of(failure, "rollout"), retryable=passing)
    if told is not None:
        return told, NoScore(reason=told, boundary="rollout")
    if silent:
        error = "out of time before the model said anything"
        return error, NoScore(reason=error, boundary="rollout", retryable=True)
    return None, NoScore(reason="not scored")


async def judged(task: HarborTask, rollout: Rollout, policy: Policy) -> Rollout:
    """The rollout with its score; one that failed has its `NoScore` already."""
    if rollout.error is not None:
        return rollout
    try:
        score = await policy.verify(task, rollout)
    except PLUGIN_FAILURES as exc:
        score = NoScore(reason=f"{type(exc).__name__}: {exc}", boundary="verifier")
    return attrs.evolve(rollout, score=score)
