"""An address for each rollout, at which the model answers chat completions and every exchange is on record.

So an agent that takes a base URL and nothing else can be trained: what it asks is rendered here, sampled from the policy, and
recorded by token ids and logprobs, in the rollout that its address belongs to.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any, Protocol

import attrs

from evsys.errors import BackendError, RolloutError
from evsys.optional import declared
from evsys_runtime.serving.completing import Exchange
from evsys_runtime.serving.errors import ApiError, context_overflow
from evsys_runtime.serving.models import ServedModel
from evsys_runtime.serving.routes import Bounds
from evsys_runtime.serving.server import chat_server

if TYPE_CHECKING:
    from numpy import float32
    from numpy.typing import NDArray

    from evsys.protocols import Log, SamplingClient, Tokenizer, TrainingClient
    from evsys.types import Completion, Message, SampleResult, SamplingParams
    from evsys_runtime.rendering.history import Conversation

__all__ = ["Endpoint", "Recording", "RolloutEndpoints", "rollout_endpoints"]

PREFIX = "/rollouts/{rollout}/v1"
BOUNDS = Bounds(running=1024, waiting=4096)
ANY_KEY = "evsys"
"""Clients insist on a key. This one opens nothing: the address itself can't be guessed."""


@attrs.frozen(kw_only=True)
class Endpoint:
    """The address at which a rollout reaches the model: base URL, key and model for clients of chat completions."""

    base_url: str
    api_key: str
    model: str

    @property
    def env(self) -> dict[str, str]:
        """The environment variables in which programs look for address and key."""
        return {
            "OPENAI_BASE_URL": self.base_url,
            "OPENAI_API_BASE": self.base_url,
            "OPENAI_API_KEY": self.api_key,
        }


class Recording(Protocol):
    """The recording of one rollout. `model` renders and samples, with `sampling`."""

    @property
    def model(self) -> Conversation:
        """The policy as this rollout has it."""

    @property
    def sampling(self) -> SamplingParams:
        """How the rollout is sampled."""

    overflowed: bool

    def begin(self, chosen: int | None = None, n: int = 1) -> tuple[int, int]:
        """A call of the model for `n` answers begins: its number and its seed, into which one goes chosen for it.

        Raises:
            RolloutError: the rollout has had its answers.
        """

    def lost(self, call: int, error: BackendError) -> None:
        """A call that had begun failed."""

    def allowed(self, asked: SamplingParams) -> SamplingParams:
        """The sampling params for a request."""

    def take(self, call: int, messages: Sequence[Message], completions: Sequence[Completion]) -> None:
        """Record what a call came to."""


class RolloutEndpoints:
    """A server on this machine, with a path for each rollout that asks for one. It starts with the first, and
    `close` ends it.

    The experiment sets the sampling: temperature, `top_p` and `top_k` are the run's regardless of a request, and an
    answer is as long as the request says, but no longer than the run allows. A request's own `seed` goes into the
    rollout's.

    Args:
        model: its name.
        tokenizer: the model's.
        context_length: most tokens of prompt and answer; None leaves it to the sampling client to refuse.
        bounds: of the server; by default more than an engine runs at once.
        log: of the server's own failures.
    """

    def __init__(
        self,
        *,
        model: str,
        tokenizer: Tokenizer,
        context_length: int | None = None,
        bounds: Bounds | None = None,
        log: Log | None = None,
    ) -> None:
        self.model = model
        self._tokenizer = tokenizer
        self._context_length = context_length
        self._options: dict[str, Any] = {"bounds": bounds or BOUNDS, "log": log}
        self._open: dict[str, _Open] = {}
        self._stack = AsyncExitStack()
        self._starting = asyncio.Lock()
        self._root: str | None = None

    @asynccontextmanager
    async def open(self, recording: Recording) -> AsyncIterator[Endpoint]:
        """An address for as long as the block continues; what is asked there afterwards, or still then, is refused.

        Raises:
            ConfigError: no server can be started on this machine.
        """
        root = await self._start_server()
        name = secrets.token_hex(16)
        rollout = self._open[name] = _Open(recording=recording, context_length=self._context_length)
        try:
            yield Endpoint(base_url=root.replace("{rollout}", name), api_key=ANY_KEY, model=self.model)
        finally:
            del self._open[name]
            rollout.end()

    async def close(self) -> None:
        """End the server. Safe to call twice, and where there is none."""
        self._root = None
        await self._stack.aclose()

    async def _start_server(self) -> str:
        async with self._starting:
            if self._root is None:
                server = chat_server(self, prefix=PREFIX, record=self._record, **self._options)
                self._root = await self._stack.enter_async_context(server)
            return self._root

    # --- the catalogue of the server ------------------------------------------------------------------------------

    async def find(self, name: str, scope: Mapping[str, str]) -> ServedModel | None:
        """The model as the rollout of a path has it, for one call; `openai/`, which many agents put before names, is left out."""
        rollout = self._rollout(scope)
        if self.model not in (name, name.removeprefix("openai/")):
            return None
        recording = rollout.recording
        return ServedModel(
            name=self.model,
            sampling_client=_Call(rollout),
            renderer=recording.model.renderer,
            tokenizer=self._tokenizer,
            max_tokens=recording.sampling.max_tokens,
        )

    async def names(self, scope: Mapping[str, str]) -> Sequence[str]:
        """The name of the model."""
        self._rollout(scope)
        return (self.model,)

    def _rollout(self, scope: Mapping[str, str]) -> _Open:
        found = self._open.get(scope["rollout"])
        if found is None:
            raise _gone_error()
        return found

    def _record(self, exchange: Exchange) -> None:
        call = exchange.model.sampling_client
        assert isinstance(call, _Call)
        call.took(exchange)


@asynccontextmanager
async def rollout_endpoints(
    client: TrainingClient, model: str, log: Log | None = None
) -> AsyncIterator[RolloutEndpoints]:
    """The addresses at which agents of a run and of its evaluations reach its model over HTTP; nothing is started
    before the first request.
    """
    endpoints = RolloutEndpoints(
        model=model,
        tokenizer=client.tokenizer,
        context_length=declared(client, "max_length"),
        log=log,
    )
    try:
        yield endpoints
    finally:
        await endpoints.close()


def _gone_error() -> ApiError:
    return ApiError(404, "there is no such rollout, or it is over", code="rollout_not_found")


@attrs.define(kw_only=True, eq=False)
class _Open:
    """A rollout that may ask."""

    recording: Recording
    context_length: int | None
    ended: asyncio.Event = attrs.field(factory=asyncio.Event)
    asking: set[asyncio.Task[SampleResult]] = attrs.field(factory=set)

    def end(self) -> None:
        """Take no more, and let go of what is still being sampled."""
        self.ended.set()
        for task in self.asking:
            task.cancel()


class _Call:
    """The policy's sampling client, for one call of one rollout."""

    def __init__(self, rollout: _Open) -> None:
        self._rollout = rollout
        self._client: SamplingClient = rollout.recording.model.sampling_client
        self.free = bool(declared(self._client, "free", False))
        self._number: int | None = None

    @property
    def version(self) -> int:
        """Optimiser steps behind the weights."""
        return self._client.version

    async def sample(self, prompt: Sequence[int], params: SamplingParams, n: int = 1) -> SampleResult:
        """Sample as the run says.

        Raises:
            ApiError: the prompt leaves no room for an answer, or the rollout is over, or has had its answers.
            BackendError: sampling failed.
        """
        rollout, recording = self._rollout, self._rollout.recording
        if rollout.ended.is_set():
            raise _gone_error()
        limit = rollout.context_length
        if limit is not None and len(prompt) >= limit:
            recording.overflowed = True
            raise context_overflow(len(prompt), 1, limit)
        try:
            self._number, seed = recording.begin(params.seed, n)
        except RolloutError as exc:
            raise ApiError(400, exc.message, code="max_turns_exceeded") from exc
        asked = attrs.evolve(recording.allowed(params), seed=seed)
        if limit is not None:
            asked = attrs.evolve(asked, max_tokens=min(asked.max_tokens, limit - len(prompt)))
        # At once, since who asks has looked already which version it is that answers.
        sampling = self._client.sample(prompt, asked, n)
        task = asyncio.Task(sampling, loop=asyncio.get_running_loop(), eager_start=True)
        rollout.asking.add(task)
        try:
            return await task
        except asyncio.CancelledError:
            current = asyncio.current_task()
            if rollout.ended.is_set() and not (current and current.cancelling()):
                raise _gone_error() from None
            raise
        except BackendError as exc:
            recording.lost(self._number, exc)
            raise
        finally:
            rollout.asking.discard(task)

    def took(self, exchange: Exchange) -> None:
        """Put an exchange on record."""
        rollout = self._rollout
        if rollout.ended.is_set() or self._number is None:
            raise _gone_error()
        recording, messages = rollout.recording, exchange.request.messages
        completions = [choice.completion for choice in exchange.choices]
        for completion in completions:
            recording.model.history.answered(completion)
        recording.take(self._number, messages, completions)

    async def compute_logprobs(self, tokens: Sequence[int]) -> NDArray[float32]:
        """As the policy does."""
        return await self._client.compute_logprobs(tokens)

    async def close(self) -> None:
        """Nothing: the policy is closed by who has it."""
