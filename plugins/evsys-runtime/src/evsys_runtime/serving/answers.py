"""Answers as JSON: a whole completion, or the chunks of a stream."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping
from typing import Any

from evsys.protocols import Tokenizer
from evsys_runtime.serving.completing import Choice, Exchange
from evsys_runtime.serving.messages import LEAST_LOGPROB, message_to_wire

__all__ = ["answer", "chunks", "finite", "likeliest_first"]


def answer(exchange: Exchange) -> dict[str, Any]:
    """The `chat.completion` of an exchange."""
    request = exchange.request
    body: dict[str, Any] = {
        **_head(exchange, "chat.completion"),
        "choices": [
            {
                "index": index,
                "message": message_to_wire(choice.completion.message),
                "logprobs": _logprobs(exchange, choice) if request.logprobs else None,
                "finish_reason": choice.completion.finish_reason,
                **_token_ids(exchange, choice),
            }
            for index, choice in enumerate(exchange.choices)
        ],
        "usage": _usage(exchange),
    }
    if request.return_token_ids:
        body["prompt_token_ids"] = list(exchange.prompt)
    return body


def chunks(exchange: Exchange) -> Iterator[dict[str, Any]]:
    """The `chat.completion.chunk`s of an exchange: for each choice who speaks, what it says, and how it ends."""
    head = _head(exchange, "chat.completion.chunk")
    if exchange.request.include_usage:
        head["usage"] = None
    first = {"prompt_token_ids": list(exchange.prompt)} if exchange.request.return_token_ids else {}
    for index, choice in enumerate(exchange.choices):
        yield {**head, **first, "choices": [_part(index, {"role": "assistant", "content": ""})]}
        first = {}
        said = _part(index, _delta(choice))
        if exchange.request.logprobs:
            said["logprobs"] = _logprobs(exchange, choice)
        yield {**head, "choices": [said | _token_ids(exchange, choice)]}
        yield {**head, "choices": [_part(index, {}, choice.completion.finish_reason)]}
    if exchange.request.include_usage:
        yield {**head, "choices": [], "usage": _usage(exchange)}


def _head(exchange: Exchange, kind: str) -> dict[str, Any]:
    return {
        "id": exchange.id,
        "object": kind,
        "created": int(time.time()),
        "model": exchange.model.name,
    }


def _part(index: int, delta: Mapping[str, Any], finish_reason: str | None = None) -> dict[str, Any]:
    return {"index": index, "delta": delta, "logprobs": None, "finish_reason": finish_reason}


def _delta(choice: Choice) -> dict[str, Any]:
    fields = message_to_wire(choice.completion.message)
    del fields["role"]
    for place, call in enumerate(fields.get("tool_calls", ())):
        call["index"] = place
    return fields


def _token_ids(exchange: Exchange, choice: Choice) -> dict[str, Any]:
    return {"token_ids": list(choice.sequence.tokens)} if exchange.request.return_token_ids else {}


def _usage(exchange: Exchange) -> dict[str, int]:
    """Tokens of the prompt, counted once, and of all answers."""
    completion = sum(len(choice.sequence.tokens) for choice in exchange.choices)
    prompt = len(exchange.prompt)
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
    }


def _logprobs(exchange: Exchange, choice: Choice) -> dict[str, Any]:
    """An entry for every sampled token, that of the end included, so their number is that of `token_ids`."""
    tokenizer, sequence = exchange.model.tokenizer, choice.sequence
    tops = sequence.top_logprobs or [{}] * len(sequence.tokens)
    return {
        "content": [
            {
                **_token(tokenizer, token, logprob),
                "top_logprobs": [_token(tokenizer, other, value) for other, value in likeliest_first(top)],
            }
            for token, logprob, top in zip(sequence.tokens, sequence.logprobs, tops, strict=True)
        ],
        "refusal": None,
    }


def likeliest_first(top: Mapping[int, float]) -> list[tuple[int, float]]:
    """Tokens with their logprobs."""
    return sorted(top.items(), key=lambda item: -item[1])


def _token(tokenizer: Tokenizer, token: int, logprob: float) -> dict[str, Any]:
    text = tokenizer.decode([token])
    return {"token": text, "logprob": finite(logprob), "bytes": list(text.encode("utf-8"))}


def finite(logprob: float) -> float:
    """A logprob as JSON can say it."""
    number = float(logprob)
    return number if math.isfinite(number) else LEAST_LOGPROB
