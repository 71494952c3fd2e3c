"""A second model of a run that a service has: asked through an inference client how likely tokens are, and never trained or sampled."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

import attrs

from evsys.errors import BackendError, ConfigError, EvsysError, Problem
from evsys.types import ForwardResult, Usage
from evsys_runtime.rendering.policy_client import sampling_cost
from evsys_runtime.rendering.resolve import load_renderer
from evsys_runtime.training.asking import all_of
from evsys_runtime.training.roles import PROBE

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from evsys.protocols import InferenceClient, Renderer, Tokenizer
    from evsys.types import Checkpoint, Completion, Datum, ModelSpec

__all__ = ["CAPABILITY", "MOST_AT_ONCE", "InferenceRole"]

CAPABILITY = "prompt_logprobs"
"""The capability that an inference client needs in a role, and its method."""

MOST_AT_ONCE = 64
"""Calls to a service at once, as engines make them: a step asks about all of its answers together."""

_REFUSALS = frozenset({400, 404, 405, 422, 501})
"""Statuses that say what a service can't do, rather than how it is."""


class _Telling(Protocol):
    """An inference client that offers the method."""

    async def prompt_logprobs(self, tokens: Sequence[int]) -> Completion: ...


class InferenceRole:
    """A core `Backend` over an inference client.

    Args:
        client: of the service.
        kind: its name in the file, for messages.
    """

    honours: frozenset[str] = frozenset()

    def __init__(self, client: InferenceClient, kind: str) -> None:
        self.capabilities = frozenset({CAPABILITY}) if hasattr(client, CAPABILITY) else frozenset()
        self._client: Any = client
        self._kind = kind

    async def preflight(self, model: ModelSpec) -> None:
        """Ask for the logprobs of a short text: does the service return them, and are its tokens those of `model`?

        Raises:
            ConfigError: they aren't, or it doesn't; or the tokenizer of `model` isn't on this machine.
            BackendError: the service can't be asked.
        """
        tokens = _renderer(model).tokenizer.encode(PROBE)
        telling: _Telling = self._client
        try:
            told = await telling.prompt_logprobs(tokens)
        except BackendError as error:
            if error.facts.get("status", 400) not in _REFUSALS or isinstance(error.__cause__, OSError):
                raise
            message = f"{error.message}, so it can't be asked how likely given tokens are"
            hint = error.hint or "name a service that does as vLLM or evsys serve: `echo` with `logprobs`"
            raise ConfigError([Problem(path="$.inference", message=message, hint=hint)]) from error
        said = told.message.content
        if said and not said.strip().startswith(PROBE.strip()):  # a token that was drawn may follow
            message = f"the service reads the tokens of {model.name!r} as {said[:60]!r}, so its model has another tokenizer"
            hint = "name a model of the service's family in `model.name`: its tokenizer is used"
            raise ConfigError([Problem(path="$.model.name", message=message, hint=hint)])

    async def prepare(
        self, model: ModelSpec, run_dir: Path, seed: int, restore: Checkpoint | None = None
    ) -> _Asked:
        """The model as an algorithm asks it; `model` says whose tokenizer it has."""
        return _Asked(self._client, self._kind, _renderer(model))

    async def teardown(self, client: object) -> None:
        """Nothing is held."""


def _renderer(model: ModelSpec) -> Any:
    """The renderer of the model whose tokenizer the service's has."""
    try:
        return load_renderer(model.name)
    except EvsysError as error:
        hint = "name an available model with the same tokenizer, such as the trained model"
        problem = Problem(path="$.model.name", message=f"its tokenizer is needed: {error.message}", hint=hint)
        raise ConfigError([problem]) from error


class _Asked:
    """Takes the place of a training client: the model as it is."""

    def __init__(self, client: _Telling, kind: str, renderer: Any) -> None:
        self.renderer: Renderer = renderer
        self.tokenizer: Tokenizer = renderer.tokenizer
        self._client = client
        self._kind = kind
        self._told = _Snapshot(client, kind)

    async def sampling_client(self) -> _Snapshot:
        """Always the same: no one trains it."""
        return _Snapshot(self._client, self._kind)

    async def forward(self, data: Sequence[Datum]) -> ForwardResult:
        """Logprobs of data whose targets are the tokens that follow.

        Raises:
            BackendError: they are others, or the service failed.
        """
        whole = [_read_in_one(datum) for datum in data]
        if None in whole:
            self._refuse()
        found = await all_of(self._told.compute_logprobs(tokens) for tokens in whole if tokens is not None)
        return ForwardResult(
            logprobs=[values[1:] for values in found], tokens=sum(len(datum.tokens) for datum in data)
        )

    def told_usage(self) -> Usage:
        """The usage of forward passes since the last call."""
        return self._told.told_usage()

    def forward_backward(self, data: object, loss_fn: object, loss_params: object = None) -> Awaitable[Any]:
        """Refused."""
        self._refuse()

    def optim_step(self, params: object) -> Awaitable[Any]:
        """Refused."""
        self._refuse()

    async def save_state(self, directory: object) -> dict[str, Any]:
        """Refused."""
        self._refuse()

    def _refuse(self) -> NoReturn:
        raise BackendError(f"{self._kind}: a model behind a service can only return logprobs")


class _Snapshot:
    """A core `SamplingClient` that only shows how likely tokens are."""

    version = 0

    def __init__(self, client: _Telling, kind: str) -> None:
        self._client = client
        self._kind = kind
        self._places = asyncio.Semaphore(MOST_AT_ONCE)
        self._used = Usage()
        self._calls: set[asyncio.Task[NDArray[Any]]] = set()

    async def compute_logprobs(self, tokens: Sequence[int]) -> NDArray[Any]:
        """Logprob of each token given those before it, [N]; entry 0 is NaN.

        Raises:
            BackendError: the service failed, or returned something else.
        """
        call = asyncio.ensure_future(self._ask(tokens))
        self._calls.add(call)
        call.add_done_callback(self._calls.discard)
        return await call

    async def _ask(self, tokens: Sequence[int]) -> NDArray[Any]:
        import numpy as np

        async with self._places:
            told = await self._client.prompt_logprobs(tokens)
        self._used += _usage_of_call(self._client, told.usage, len(tokens))
        found = np.asarray(told.logprobs if told.logprobs is not None else (), np.float32)
        if found.shape != (len(tokens),):
            raise BackendError(f"{self._kind} gave {found.size} logprobs for {len(tokens)} tokens")
        return found

    def told_usage(self) -> Usage:
        """The usage of calls since the last call of this, by the service's own counts."""
        used, self._used = self._used, Usage()
        return used

    async def sample(self, prompt: object, params: object, n: int = 1) -> Any:
        """Refused."""
        raise BackendError(
            f"{self._kind}: a model behind a service can only return logprobs, and can't be sampled in a role"
        )

    async def close(self) -> None:
        """End the calls under way: those alongside one that failed, which nothing waits for any more."""
        for call in tuple(self._calls):
            call.cancel()


def _read_in_one(datum: Datum) -> list[int] | None:
    """The input tokens of a datum and its last target, [N + 1]; None if its targets aren't the tokens that follow."""
    tokens, targets = datum.tokens.tolist(), datum.loss_inputs["target_tokens"].tolist()
    return [*tokens, targets[-1]] if tokens[1:] == targets[:-1] else None


def _usage_of_call(client: Any, told: Usage, tokens: int) -> Usage:
    """The usage of a call: by the service's counts; if it sent none, at an unknown price; if its client never
    reports them, by the tokens sent, at the client's price.
    """
    if told.tokens:
        return attrs.evolve(told, seconds=0.0)  # calls run side by side, and alongside the training
    cost = None if told.unpriced else sampling_cost(client, tokens, 0)
    return Usage(prompt_tokens=tokens, cost_usd=cost, unpriced=int(cost is None))
