"""From a request to its answers: render, check that it fits, sample, parse."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import attrs

from evsys.errors import BackendError, DataError, boundary
from evsys.types import Completion, SampledSequence
from evsys_runtime.rendering.policy_client import PolicyClient
from evsys_runtime.serving.errors import ApiError, bad_request, context_overflow
from evsys_runtime.serving.models import ServedModel
from evsys_runtime.serving.off_loop import off_loop
from evsys_runtime.serving.requests import ChatRequest

if TYPE_CHECKING:
    from evsys.protocols import SamplingClient

__all__ = ["Choice", "Exchange", "before_stop", "complete", "of_sampler", "require_all"]


@attrs.frozen(kw_only=True)
class Choice:
    """One answer: as a message, and as the sampler gave it. The message ends before a stop text, the tokens after it."""

    completion: Completion
    sequence: SampledSequence


@attrs.frozen(kw_only=True)
class Exchange:
    """An answered request.

    Attributes:
        model: who answered.
        request: what was asked.
        prompt: the tokens that the model saw.
        choices: the answers, with the sampler's own tokens and logprobs.
        scope: the variable parts of the requested path.
        headers: those of the request, names in lower case, without the key.
        id: of the answer, as the client sees it.
    """

    model: ServedModel
    request: ChatRequest
    prompt: Sequence[int]
    choices: tuple[Choice, ...]
    scope: Mapping[str, str] = attrs.field(factory=dict)
    headers: Mapping[str, str] = attrs.field(factory=dict)
    id: str = ""

    @property
    def answered_tokens(self) -> int:
        """The tokens of all answers, including those that are alternatives of others."""
        tokens = sum(len(choice.sequence.tokens) for choice in self.choices)
        return tokens * (1 + self.request.sampling.top_logprobs)


async def complete(model: ServedModel, request: ChatRequest, *, size: int, **facts: Any) -> Exchange:
    """Answer a request.

    Args:
        model: who answers.
        request: what is asked.
        size: bytes of the request. A long one is rendered in a thread.
        facts: more fields of the exchange.

    Raises:
        ApiError: the conversation can't be rendered, or doesn't fit.
        BackendError: sampling failed.
    """
    started = time.perf_counter()
    policy = PolicyClient(model.sampling_client, model.renderer)
    try:
        prompt = await off_loop(size, lambda: model.renderer.render_prompt(request.messages, request.tools))
    except DataError as exc:
        raise bad_request(str(exc), "messages") from exc
    sampling = attrs.evolve(request.sampling, max_tokens=_max_tokens(model, request, len(prompt)))
    version = policy.version
    with of_sampler(model.sampling_client, len(prompt), sampling.max_tokens):
        sequences = await policy.sample(prompt, sampling, request.n)
    require_all(sequences, request.n)
    seconds = time.perf_counter() - started
    choices = tuple(
        Choice(
            completion=_cut_at_stop(
                policy.completion(prompt, sequence, version, first=index == 0, seconds=seconds),
                sampling.stop,
            ),
            sequence=sequence,
        )
        for index, sequence in enumerate(sequences)
    )
    return Exchange(model=model, request=request, prompt=prompt, choices=choices, **facts)


def _max_tokens(model: ServedModel, request: ChatRequest, prompt_tokens: int) -> int:
    """How long the answer may be; a length that the request doesn't name is cut to what fits."""
    wanted = request.max_tokens
    if model.context_length is None:
        return wanted or model.max_tokens
    room = model.context_length - prompt_tokens
    if room < (wanted or 1):
        raise context_overflow(prompt_tokens, wanted or 1, model.context_length)
    return wanted or min(model.max_tokens, room)


@contextmanager
def of_sampler(
    client: SamplingClient, prompt_tokens: int, max_tokens: int, param: str = "messages"
) -> Iterator[None]:
    """Call a sampling client; a refusal, or a context that is too short by the fact `limit`, becomes the answer.

    Args:
        client: of the model.
        prompt_tokens: of the prompt.
        max_tokens: of the answer.
        param: the place of the prompt in the request.
    """
    try:
        with boundary("backend", type(client).__name__):
            yield
    except BackendError as exc:
        if isinstance(exc.__cause__, ApiError):  # a sampling client that knows how to refuse
            raise exc.__cause__ from exc
        limit = exc.facts.get("limit")
        if isinstance(limit, int):
            raise context_overflow(prompt_tokens, max_tokens, limit, param) from exc
        raise


def require_all(sequences: Sequence[SampledSequence], n: int) -> None:
    """Refuse what a sampling client gave, unless it is what it was asked for.

    Raises:
        BackendError: it is more, or less.
    """
    if len(sequences) != n:
        raise BackendError(f"the sampling client gave {len(sequences)} answers, and was asked for {n}")


def _cut_at_stop(completion: Completion, stops: Sequence[str]) -> Completion:
    """The completion with its text cut before the first stop text: the protocol doesn't return those."""
    message = completion.message
    return attrs.evolve(
        completion, message=attrs.evolve(message, content=before_stop(message.content, stops))
    )


def before_stop(text: str, stops: Sequence[str]) -> str:
    """A text up to the first of the stop texts."""
    return text[: min((place for stop in stops if (place := text.find(stop)) >= 0), default=len(text))]
