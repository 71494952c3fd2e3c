"""Completions of plain texts and token ids: what the model would say next, and how likely it finds what is there."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import attrs

from evsys.errors import BackendError, DataError
from evsys.types import SampledSequence, SampleResult, SamplingParams
from evsys_runtime.serving.answers import finite, likeliest_first
from evsys_runtime.serving.completing import before_stop, of_sampler, require_all
from evsys_runtime.serving.errors import bad_request, context_overflow
from evsys_runtime.serving.models import ServedModel
from evsys_runtime.serving.off_loop import off_loop
from evsys_runtime.serving.requests import TextRequest

if TYPE_CHECKING:
    from evsys.protocols import SamplingClient, Tokenizer

__all__ = ["complete_texts"]

type _Likeliest = Mapping[int, float] | None


@attrs.frozen(kw_only=True)
class _Answered:
    """A prompt, and what the sampler made of it."""

    model: ServedModel
    request: TextRequest
    prompt: Sequence[int]
    result: SampleResult

    @property
    def told_tokens(self) -> int:
        """The tokens that its choices report, likeliest ones among them."""
        own = len(self.prompt) if self.request.echo else 0
        tokens = sum(own + len(sequence.tokens) for sequence in self.result.sequences)
        return tokens * (1 + (self.request.logprobs or 0))


@attrs.frozen(kw_only=True)
class _Told:
    """Tokens of one choice, with what is known of each; a logprob is None for the first token of a prompt."""

    tokens: Sequence[int]
    logprobs: Sequence[float | None]
    likeliest: Sequence[_Likeliest]


async def complete_texts(model: ServedModel, request: TextRequest, *, id: str) -> dict[str, Any]:
    """The `text_completion` that answers a request, `n` choices for each prompt in order.

    Args:
        model: who answers.
        request: what is asked.
        id: of the answer.

    Raises:
        ApiError: a prompt doesn't fit, or has tokens that the model doesn't.
        BackendError: sampling failed.
    """
    choices: list[dict[str, Any]] = []
    counts = [0, 0]
    for sent in request.prompts:
        prompt = await off_loop(sent, partial(_tokens, model, sent))
        result = await _sample(model, request, prompt)
        counts[0] += len(prompt)
        answered = _Answered(model=model, request=request, prompt=prompt, result=result)
        counts[1] += sum(len(sequence.tokens) for sequence in result.sequences)
        for choice in await off_loop(answered.told_tokens, partial(_choices, answered)):
            choices.append({"index": len(choices), **choice})
    return {
        "id": id,
        "object": "text_completion",
        "created": int(time.time()),
        "model": model.name,
        "choices": choices,
        "usage": {"prompt_tokens": counts[0], "completion_tokens": counts[1], "total_tokens": sum(counts)},
    }


def _tokens(model: ServedModel, sent: str | tuple[int, ...]) -> list[int]:
    try:
        tokens = model.tokenizer.encode(sent) if isinstance(sent, str) else list(sent)
    except DataError as exc:
        raise bad_request(str(exc), "prompt") from exc
    size = model.tokenizer.vocab_size
    if odd := [token for token in tokens if not 0 <= token < size]:
        raise bad_request(f"{odd[0]} is not a token of this model, which has {size}", "prompt")
    return tokens


async def _sample(model: ServedModel, request: TextRequest, prompt: list[int]) -> SampleResult:
    """Samples with what is asked for of the prompt; without a token to sample, one empty sequence."""
    length = model.context_length
    if length is not None and len(prompt) + request.max_tokens > length:
        raise context_overflow(len(prompt), request.max_tokens, length, "prompt")
    client, top = model.sampling_client, request.logprobs
    with of_sampler(client, len(prompt), request.max_tokens, "prompt"):
        if not request.max_tokens:
            return await _read_prompt(client, prompt, top)
        told = request.echo and top is not None
        sampling = attrs.evolve(
            request.sampling,
            max_tokens=request.max_tokens,
            stop_token_ids=(*request.sampling.stop_token_ids, *model.tokenizer.eos_token_ids),
            prompt_logprobs=told,
            top_prompt_logprobs=(top or 0) if told else 0,
        )
        result = await client.sample(prompt, sampling, request.n)
    require_all(result.sequences, request.n)
    if told and (result.prompt_logprobs is None or len(result.prompt_logprobs) != len(prompt)):
        raise BackendError("the sampling client returned no logprobs of the prompt")
    return result


async def _read_prompt(client: SamplingClient, prompt: list[int], top: int | None) -> SampleResult:
    """The model's logprobs of a prompt, which may fill its context, so that nothing can come after it.

    The likeliest at its last place are therefore those of a sample that begins there.
    """
    if top is None:
        return SampleResult(sequences=[_NOTHING])
    logprobs = [None, *(float(value) for value in (await client.compute_logprobs(prompt))[1:])]
    likeliest: list[_Likeliest] = [None] * len(prompt)
    if top and len(prompt) > 1:
        wanted = SamplingParams(max_tokens=1, top_logprobs=top, top_prompt_logprobs=top)
        before = await client.sample(prompt[:-1], wanted, 1)
        last: Sequence[_Likeliest] = before.sequences[0].top_logprobs or [None]
        likeliest = [*(before.top_prompt_logprobs or likeliest[:-1]), last[0]]
    return SampleResult(sequences=[_NOTHING], prompt_logprobs=logprobs, top_prompt_logprobs=likeliest)


_NOTHING = SampledSequence(tokens=(), logprobs=(), finish_reason="length")


def _choices(answered: _Answered) -> list[dict[str, Any]]:
    return [_choice(answered, sequence) for sequence in answered.result.sequences]


def _choice(answered: _Answered, sequence: SampledSequence) -> dict[str, Any]:
    request, prompt, tokenizer = answered.request, answered.prompt, answered.model.tokenizer
    tokens = sequence.tokens
    if tokens and tokens[-1] in tokenizer.eos_token_ids:  # it ends the text and is not part of it
        tokens = tokens[:-1]
    said = before_stop(tokenizer.decode(tokens), request.sampling.stop)
    choice: dict[str, Any] = {
        "text": tokenizer.decode(prompt) + said if request.echo else said,
        "logprobs": None,
        "finish_reason": sequence.finish_reason,
    }
    if request.logprobs is not None:
        choice["logprobs"] = _logprobs(tokenizer, request, _text_of(answered, sequence))
    if request.return_token_ids:
        choice |= {"prompt_token_ids": list(prompt), "token_ids": list(sequence.tokens)}
    return choice


def _text_of(answered: _Answered, sequence: SampledSequence) -> _Told:
    prompt, result = answered.prompt, answered.result
    tops: Sequence[_Likeliest] = sequence.top_logprobs or [None] * len(sequence.tokens)
    if not answered.request.echo:
        return _Told(tokens=sequence.tokens, logprobs=sequence.logprobs, likeliest=tops)
    before: Sequence[_Likeliest] = result.top_prompt_logprobs or [None] * len(prompt)
    return _Told(
        tokens=[*prompt, *sequence.tokens],
        logprobs=[*(result.prompt_logprobs or ()), *sequence.logprobs],
        likeliest=[*before, *tops],
    )


def _logprobs(tokenizer: Tokenizer, request: TextRequest, told: _Told) -> dict[str, Any]:
    """As the protocol has them: lists of one entry a token. Tokens that read the same share an entry of the likeliest, the likelier's."""

    def name(token: int) -> str:
        return f"token_id:{token}" if request.tokens_as_ids else tokenizer.decode([token])

    def row(token: int, logprob: float | None, likeliest: _Likeliest) -> dict[str, float] | None:
        if logprob is None or likeliest is None:
            return None
        found: dict[str, float] = {}
        best = likeliest_first(likeliest)[: request.logprobs]
        for other, value in [*best, (token, logprob)]:
            found.setdefault(name(other), finite(value))
        return found

    texts = [tokenizer.decode([token]) for token in told.tokens]
    offsets = [0]
    for text in texts:
        offsets.append(offsets[-1] + len(text))
    rows = [row(*one) for one in zip(told.tokens, told.logprobs, told.likeliest, strict=True)]
    return {
        "tokens": [name(token) for token in told.tokens] if request.tokens_as_ids else texts,
        "token_logprobs": [None if value is None else finite(value) for value in told.logprobs],
        "top_logprobs": rows if request.logprobs else None,
        "text_offset": offsets[:-1],
    }
