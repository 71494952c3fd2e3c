"""The parts that an engine needs around any agent: a model client that records every turn, and the rollout made of
the record.

Tokens and logprobs are those of the sampler, taken at its output; nothing is tokenised again. The record is trusted
over what an agent says about itself.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any, Literal, cast

import attrs

from evsys.errors import PLUGIN_FAILURES, BackendError, EvsysError, RolloutError
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
from evsys.types.rollouts import MOST_TURNS
from evsys_runtime.accounting.usage import usage_of
from evsys_runtime.evaluation.failures import boundary_of, is_not_finite
from evsys_runtime.evaluation.seeds import rollout_seed, turn_seed
from evsys_runtime.rendering.history import Conversation
from evsys_runtime.rendering.policy_client import PolicyClient

if TYPE_CHECKING:
    from evsys.protocols import InferenceClient

__all__ = [
    "Acted",
    "RecordingModel",
    "act",
    "agent_context",
    "bound_model",
    "finish_rollout",
    "has_address",
    "judge_rollout",
    "reachable",
    "run_rollout",
]


class RecordingModel:
    """A core `InferenceClient` around another, for one rollout.

    Each call gets a seed of its own, derived from the rollout's and the call's number, unless the agent chose one.
    The policy's prompts continue from its own answers, token by token.

    Args:
        model: who answers.
        sampling: how the rollout is to be sampled, by its seed.
        most: answers that the rollout may have; then calls are refused, and how is sampled is not the agent's to
            say. None leaves both to the agent.

    Attributes:
        model: who answers this rollout.
        sampling: as given.
        messages: the conversation of the last call, with its answer.
        usage: what all calls took.
        overflowed: a conversation was longer than the model's context.
        not_finite: the model's numbers aren't finite, so it can't be sampled.
        refused: calls refused, since the rollout had had its answers.
    """

    def __init__(self, model: InferenceClient, sampling: SamplingParams, *, most: int | None = None) -> None:
        self._shared = model
        self.sampling = sampling
        self._most = most
        self._seed = sampling.seed or 0
        self.restart()

    def restart(self) -> None:
        """Forget all requests, for another attempt at the rollout."""
        shared = self._shared
        # A subclass has ways of its own, and is left to them.
        own = type(shared) is PolicyClient
        self.model: InferenceClient = Conversation(cast("PolicyClient", shared)) if own else shared
        self._calls: list[Sequence[Completion]] = []
        self.messages: tuple[Message, ...] = ()
        self.usage = Usage()
        self.overflowed = False
        self.not_finite = False
        self.refused = 0
        self._asked: list[int] = []

    @property
    def turns(self) -> tuple[Turn, ...]:
        """Every completion so far, in the order of the calls."""
        return self.turns_of(None)

    @property
    def oddities(self) -> dict[str, Any]:
        """Counts and flags for the metadata of the rollout."""
        counts = {"refused_calls": self.refused, "not_finite": self.not_finite}
        return {name: value for name, value in counts.items() if value}

    def turns_of(self, version: int | None) -> tuple[Turn, ...]:
        """The turns of a rollout of this version: those of another version say which."""
        return tuple(
            Turn(
                message=completion.message,
                prompt_tokens=completion.prompt_tokens,
                tokens=completion.tokens,
                logprobs=completion.logprobs,
                finish_reason=completion.finish_reason,
                policy_version=None if completion.policy_version == version else completion.policy_version,
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
        """Pass the call on and record what comes back.

        Raises:
            RolloutError: the rollout has had its answers.
        """
        call, seed = self.begin(n=n)
        if self._most is not None:
            sampling = self.allowed(sampling)
        if sampling.seed is None or sampling.seed == self._seed:
            sampling = attrs.evolve(sampling, seed=seed)
        try:
            completions = await self.model.generate(messages, sampling, n=n, tools=tools)
        except BackendError as exc:
            self.lost(call, exc)
            raise
        self.take(call, messages, completions)
        return completions

    def begin(self, chosen: int | None = None, n: int = 1) -> tuple[int, int]:
        """A call of the model for `n` answers begins: its number and its seed.

        A seed that a client has chosen for it goes into the rollout's, so that not all rollouts of a task are the same.

        Raises:
            RolloutError: the rollout has had its answers.
        """
        if self._most is not None and sum(self._asked) + n > self._most:
            self.refused += 1
            raise RolloutError(
                f"a rollout has at most {self._most} answers of the model (max_turns), and this would be one more",
                hint="raise max_turns in the params of the algorithm",
            )
        call = len(self._calls)
        self._calls.append(())
        self._asked.append(n)
        return call, turn_seed(self._seed, call) if chosen is None else rollout_seed(self._seed, chosen, 0)

    def lost(self, call: int, error: BackendError) -> None:
        """A call that had begun failed; it may be made again."""
        self.overflowed |= _is_overflow(error)
        self.not_finite |= is_not_finite(error)
        self._asked[call] = 0

    def allowed(self, asked: SamplingParams) -> SamplingParams:
        """The sampling params for an agent's request: those of the run, and at most its length."""
        own = self.sampling
        return attrs.evolve(
            asked,
            temperature=own.temperature,
            top_p=own.top_p,
            top_k=own.top_k,
            max_tokens=min(asked.max_tokens, own.max_tokens),
        )

    def take(self, call: int, messages: Sequence[Message], completions: Sequence[Completion]) -> None:
        """Record what a call that had begun came to."""
        self._calls[call] = completions
        for completion in completions:
            self.usage = self.usage + usage_of(completion)
        if completions:
            self.messages = (*messages, completions[0].message)


def agent_context(policy: Policy, task_index: int, sample_index: int, *, max_turns: int) -> AgentContext:
    """The context for the agent of one rollout; its seed is derived from `policy.sampling.seed` (0 where None)."""
    seed = rollout_seed(policy.sampling.seed or 0, task_index, sample_index)
    return AgentContext(
        sampling=attrs.evolve(policy.sampling, seed=seed),
        seed=seed,
        sample_index=sample_index,
        max_turns=max_turns,
        system_prompt=policy.system_prompt,
        policy_version=policy.version,
    )


def bound_model(policy: Policy, context: AgentContext) -> RecordingModel:
    """The model of one rollout: in training the agent is bound by what the context says, else it may ask as it likes."""
    most = context.max_turns if policy.training else None
    return RecordingModel(policy.model, context.sampling, most=most)


@attrs.frozen(kw_only=True)
class Acted:
    """How an agent's acting ended: what it said, what it raised, whether its time was over, how many seconds it took."""

    said: Rollout | str | None = None
    failure: BaseException | None = None
    timed_out: bool = False
    seconds: float = 0.0


def has_address(policy: Policy, model: RecordingModel) -> bool:
    """Whether a rollout can have an address of its own: its model is sampled here, and is not a service."""
    return policy.endpoints is not None and isinstance(model.model, Conversation)


@asynccontextmanager
async def reachable(policy: Policy, model: RecordingModel) -> AsyncIterator[Callable[[], Awaitable[Any]]]:
    """A function that gives a rollout an address of its own, made at the first call; it raises a `RolloutError` if
    there can't be one.

    The address is good for as long as the block continues.
    """
    endpoints = policy.endpoints if has_address(policy, model) else None
    once = asyncio.Lock()
    found: list[Any] = []
    async with AsyncExitStack() as stack:

        async def endpoint() -> Any:
            if endpoints is None:
                raise RolloutError(
                    "this model has no address for rollouts", hint="a service is asked at its own address"
                )
            async with once:
                if not found:
                    found.append(await stack.enter_async_context(endpoints.open(model)))
            return found[0]

        yield endpoint


async def act(
    task: HarborTask, policy: Policy, model: RecordingModel, context: AgentContext, *, timeout_seconds: float
) -> Acted:
    """Let the policy's agent act on one task, on this event loop. An agent that fails is data."""
    started = time.perf_counter()
    said: Rollout | str | None = None
    failure: BaseException | None = None
    deadline = asyncio.timeout(timeout_seconds)
    try:
        async with deadline, reachable(policy, model) as endpoint:
            reaching = attrs.evolve(context, endpoint=endpoint)
            said = await policy.agent.run(task, model, task.tools, reaching)
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
    max_turns: int = MOST_TURNS,
) -> Rollout:
    """Let the policy's agent act on one task in this process, and have the result judged.

    An agent that fails is data: the rollout says so and has no score. One that runs out of time is judged by the text
    that it got to, and flagged; without any text it has no score.
    """
    context = agent_context(policy, task_index, sample_index, max_turns=max_turns)
    model = bound_model(policy, context)
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
    return await judge_rollout(task, rollout, policy)


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

    Not judged yet. It has a `NoScore` of its own where there is nothing to judge: the agent failed (`failure`), or
    was out of time before the model answered. A conversation that grew longer than the model's context is cut
    short, as one that ran out of time is, and no failure; so is one whose agent wanted more answers than it may
    have, regardless of its reaction.
    """
    turns = model.turns_of(version)
    ending = _ending_of(said, turns, failure, timed_out=timed_out, refused=model.refused > 0)
    # The record of the model client counts, and the agent's own rollout where that client wasn't used.
    own = _own_rollout(task, sample_index, said)
    output = own.output
    if not output and turns and (own is said or ending in ("timed out", "cut off")):
        output = turns[-1].message.content
    if ending == "no rollout":
        failure = TypeError(f"the agent returned {type(said).__name__}, not a string or a Rollout")
    reasons = [turn.finish_reason for turn in turns]
    error = _WITHHELD if own.error is None and reasons[-1:] == ["error"] else own.error
    error, score = _fault(None if ending == "cut off" else failure, error, silent=timed_out and not turns)
    return Rollout(
        task_id=task.task_id,
        sample_index=sample_index,
        messages=own.messages or model.messages,
        turns=turns or own.turns,
        output=output,
        score=score,
        error=error,
        truncated=own.truncated or model.overflowed or model.refused > 0 or "length" in reasons,
        timed_out=timed_out or own.timed_out,
        policy_version=version,
        usage=attrs.evolve(model.usage if turns or own is not said else own.usage, seconds=seconds),
        metadata={**own.metadata, **model.oddities},
    )


def _own_rollout(task: HarborTask, sample_index: int, said: Rollout | str | None) -> Rollout:
    if isinstance(said, Rollout):
        return said
    return Rollout(task_id=task.task_id, sample_index=sample_index, output=said or "")


_WITHHELD = "the service withheld or broke off the model's answer, as a content filter does"

type _Ending = Literal["returned", "no rollout", "timed out", "cut off", "failed"]


def _ending_of(
    said: Rollout | str | None,
    turns: Sequence[Turn],
    failure: BaseException | None,
    *,
    timed_out: bool,
    refused: bool,
) -> _Ending:
    """How an agent ended; it is cut off where it would have gone on beyond the model's context or the answers that it may have."""
    if turns and failure is not None and (refused or _is_overflow(failure)):
        return "cut off"
    if timed_out:
        return "timed out"
    if failure is not None:
        return "failed"
    return "returned" if isinstance(said, Rollout | str) else "no rollout"


def _is_overflow(failure: BaseException | None) -> bool:
    """True for a prompt longer than the model's context, which sampling clients report by the fact `limit`."""
    return isinstance(failure, BackendError) and "limit" in failure.facts


def _fault(failure: BaseException | None, told: str | None, *, silent: bool) -> tuple[str | None, NoScore]:
    """The fault, in words, and the resulting absence of a score; no words if there is an answer to judge."""
    if failure is not None:
        error = str(failure) if isinstance(failure, EvsysError) else f"{type(failure).__name__}: {failure}"
        passing = isinstance(failure.__cause__ or failure, OSError)
        return error, NoScore(reason=error, boundary=boundary_of(failure, "rollout"), retryable=passing)
    if told is not None:
        return told, NoScore(reason=told, boundary="rollout")
    if silent:
        error = "out of time before the model answered"
        return error, NoScore(reason=error, boundary="rollout", retryable=True)
    return None, NoScore(reason="not scored")


async def judge_rollout(task: HarborTask, rollout: Rollout, policy: Policy) -> Rollout:
    """The rollout with its score; one that failed has its `NoScore` already."""
    if rollout.error is not None:
        return rollout
    try:
        score = await policy.verify(task, rollout)
    except PLUGIN_FAILURES as exc:
        score = NoScore(reason=f"{type(exc).__name__}: {exc}", boundary="verifier")
    return attrs.evolve(rollout, score=score)
