"""Requests to a service that completes conversations and texts, and the reading of its answers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from evsys.types import Completion, FinishReason, Message, SamplingParams
from evsys_runtime.data.answers import split_reasoning
from evsys_runtime.serving.messages import LEAST_LOGPROB, WireError, message_from_wire, message_to_wire

__all__ = ["Answer", "Echo", "UnreadableAnswerError", "echo_body", "read_answer", "read_echo", "request_body"]

_FINISH: Mapping[str, FinishReason] = {
    "stop": "stop",
    "length": "length",
    "tool_calls": "tool_calls",
    "function_call": "tool_calls",
    "content_filter": "error",
}


class UnreadableAnswerError(ValueError):
    """A body that is not a chat completion."""


@attrs.frozen(kw_only=True)
class Used:
    """The tokens that a service says it used; None where it doesn't."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cached_tokens: int = 0

    @property
    def tokens(self) -> int | None:
        """All of them; None where it doesn't say both."""
        if self.prompt_tokens is None or self.completion_tokens is None:
            return None
        return self.prompt_tokens + self.completion_tokens


@attrs.frozen(kw_only=True)
class Answer(Used):
    """The completions of one answer, and the tokens that it took."""

    completions: tuple[Completion, ...]


@attrs.frozen(kw_only=True)
class Echo(Used):
    """A service's answer about given tokens: a logprob each, NaN for the first, and their text."""

    logprobs: tuple[float, ...]
    text: str = ""


def request_body(
    model: str,
    messages: Sequence[Message],
    sampling: SamplingParams,
    *,
    n: int,
    tools: Sequence[Mapping[str, Any]],
    max_tokens_field: str = "max_tokens",
    reasoning: bool = False,
    token_ids: bool = False,
) -> dict[str, Any]:
    """The JSON object of a request. Neutral values are left out, since services refuse unknown fields.

    Args:
        model: the service's name of the model.
        messages: the conversation.
        sampling: how to sample.
        n: completions wanted.
        tools: tool schemas.
        max_tokens_field: the service's name for the longest answer.
        reasoning: send earlier reasoning back.
        token_ids: ask for token ids and logprobs.

    Raises:
        ValueError: this protocol can't express the request.
    """
    if sampling.prompt_logprobs or sampling.top_logprobs or sampling.top_prompt_logprobs:
        raise ValueError("logprobs of prompts or of tokens that weren't sampled can't be asked for here")
    if not reasoning:
        messages = [attrs.evolve(message, reasoning=None) for message in messages]
    optional = {
        "n": n if n > 1 else None,
        "top_p": sampling.top_p if sampling.top_p != 1.0 else None,
        "top_k": sampling.top_k,
        "stop": list(sampling.stop) or None,
        "stop_token_ids": list(sampling.stop_token_ids) or None,
        "seed": None if sampling.seed is None else sampling.seed % 2**63,
        "tools": [dict(tool) for tool in tools] or None,
        "logprobs": token_ids or None,
        "return_token_ids": token_ids or None,
    }
    return {
        "model": model,
        "messages": [message_to_wire(message) for message in messages],
        "temperature": sampling.temperature,
        max_tokens_field: sampling.max_tokens,
        **{name: value for name, value in optional.items() if value is not None},
    }


def echo_body(model: str, tokens: Sequence[int]) -> dict[str, Any]:
    """The JSON object of a request for the logprobs of given tokens: a completion that begins by repeating them.

    One token more is asked for, and one of the likeliest at each place, since not all services take 0 of either.
    """
    return {
        "model": model,
        "prompt": [int(token) for token in tokens],
        "echo": True,
        "logprobs": 1,
        "max_tokens": 1,
        "temperature": 1.0,
    }


def read_echo(body: Mapping[str, Any], count: int) -> Echo:
    """The logprobs in a body for `count` sent tokens.

    Raises:
        UnreadableAnswerError: it has no logprobs for them.
    """
    choices = body.get("choices")
    choice = choices[0] if isinstance(choices, list) and choices else None
    if not isinstance(choice, Mapping):
        raise UnreadableAnswerError("it has no choices")
    told = choice.get("logprobs")
    values = told.get("token_logprobs") if isinstance(told, Mapping) else None
    if not isinstance(values, list):
        raise UnreadableAnswerError("it returns no logprobs")
    used = _usage_fields(body)
    if not count <= len(values) <= count + max(1, used["completion_tokens"] or 0):
        raise UnreadableAnswerError(f"it returns the logprobs of {len(values)} tokens, and {count} were sent")
    text = choice.get("text")
    return Echo(
        logprobs=(float("nan"), *(_logprob(value) for value in values[1:count])),
        text=text if isinstance(text, str) else "",
        **used,
    )


def _logprob(value: object) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool) or math.isnan(value):
        raise UnreadableAnswerError(f"a token's logprob is {value!r}")
    return float("-inf") if value <= LEAST_LOGPROB else float(value)


def read_answer(body: Mapping[str, Any], *, token_ids: bool = False) -> Answer:
    """The completions of a body.

    Raises:
        UnreadableAnswerError: it is not a chat completion, or lacks token ids and logprobs asked for.
    """
    choices = body.get("choices")
    if not isinstance(choices, list) or not choices:
        raise UnreadableAnswerError("it has no choices")
    return Answer(
        completions=tuple(_completion(body, choice, token_ids=token_ids) for choice in choices),
        **_usage_fields(body),
    )


def _usage_fields(body: Mapping[str, Any]) -> dict[str, Any]:
    """The tokens that a body says were used."""
    usage = body.get("usage")
    usage = usage if isinstance(usage, Mapping) else {}
    details = usage.get("prompt_tokens_details")
    return {
        "prompt_tokens": _count(usage.get("prompt_tokens")),
        "completion_tokens": _count(usage.get("completion_tokens")),
        "cached_tokens": _count(details.get("cached_tokens")) or 0 if isinstance(details, Mapping) else 0,
    }


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _completion(body: Mapping[str, Any], choice: object, *, token_ids: bool) -> Completion:
    said = choice.get("message") if isinstance(choice, Mapping) else None
    if not isinstance(choice, Mapping) or not isinstance(said, Mapping):
        raise UnreadableAnswerError("a choice has no message")
    refusal = said.get("refusal")
    if said.get("content") is None and isinstance(refusal, str):
        said = {**said, "content": refusal}
    try:
        message = message_from_wire({**said, "role": "assistant"})
    except WireError as exc:
        raise UnreadableAnswerError(f"{exc.param} {exc.message}") from exc
    if message.reasoning is None:  # not every service separates it
        reasoning, content = split_reasoning(message.content)
        message = attrs.evolve(message, reasoning=reasoning, content=content)
    reason = choice.get("finish_reason")
    finish = _FINISH.get(reason, "stop") if isinstance(reason, str) else "stop"
    if not token_ids:
        return Completion(message=message, finish_reason=finish)
    prompt, tokens, logprobs = _token_fields(body, choice)
    return Completion(
        message=message, finish_reason=finish, prompt_tokens=prompt, tokens=tokens, logprobs=logprobs
    )


def _token_fields(
    body: Mapping[str, Any], choice: Mapping[str, Any]
) -> tuple[list[int], list[int], list[float]]:
    """Token ids and logprobs, of equal length or refused: one that is filled up would train what no one sampled."""
    prompt, tokens = body.get("prompt_token_ids"), choice.get("token_ids")
    entries = (choice.get("logprobs") or {}).get("content")
    if not isinstance(prompt, list) or not isinstance(tokens, list) or not isinstance(entries, list):
        raise UnreadableAnswerError("it has no token ids or no logprobs, which `token_ids: true` asks for")
    values = [entry.get("logprob") if isinstance(entry, Mapping) else None for entry in entries]
    logprobs = [float(value) for value in values if isinstance(value, int | float)]
    if not len(tokens) == len(values) == len(logprobs):
        raise UnreadableAnswerError(f"it has {len(tokens)} token ids and {len(logprobs)} logprobs")
    return prompt, tokens, logprobs
