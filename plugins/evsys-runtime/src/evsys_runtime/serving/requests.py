"""The body of a request for completions, of a conversation or of a plain text, read strictly: what can't be honoured is refused,
what can't matter is let be.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from evsys.types import Message, SamplingParams
from evsys_runtime.serving.errors import ApiError, bad_request
from evsys_runtime.serving.messages import WireError, messages_from_wire

__all__ = ["ChatRequest", "TextRequest", "read_body", "read_request", "read_text_request"]

MOST_CHOICES = 128
MOST_TOP_LOGPROBS = 20
MOST_STOPS = 16
MOST_TOP_K = 2**31 - 1
MOST_PROMPTS = 128
DEFAULT_TEXT_TOKENS = 16
"""Longest answer to a plain text whose request names none, as the protocol has it."""

_NEUTRAL: Mapping[str, tuple[Any, ...]] = {
    "frequency_penalty": (None, 0),
    "presence_penalty": (None, 0),
    "repetition_penalty": (None, 1),
    "min_p": (None, 0),
    "logit_bias": (None, {}),
    "ignore_eos": (None, False),
    "echo": (None, False),
    "response_format": (None, {"type": "text"}),
    "functions": (None, []),
    "function_call": (None, "none"),
    "prompt_logprobs": (None, 0, False),
    "parallel_tool_calls": (None, True),
    "modalities": (None, ["text"]),
    "audio": (None,),
}
"""Options that would change the answer and aren't offered, with the values that change nothing."""

_NEUTRAL_OF_TEXTS: Mapping[str, tuple[Any, ...]] = {
    **{name: values for name, values in _NEUTRAL.items() if name != "echo"},
    "best_of": (None, 1),
    "suffix": (None, ""),
    "stream": (None, False),
}


@attrs.frozen(kw_only=True)
class ChatRequest:
    """A request for chat completions. `max_tokens` None leaves the length to the server; `body` is what was sent."""

    model: str
    messages: tuple[Message, ...]
    tools: tuple[Mapping[str, Any], ...] = ()
    max_tokens: int | None = None
    n: int = 1
    sampling: SamplingParams = attrs.field(factory=SamplingParams)
    stream: bool = False
    include_usage: bool = False
    logprobs: bool = False
    return_token_ids: bool = False
    body: Mapping[str, Any] = attrs.field(factory=dict)


@attrs.frozen(kw_only=True)
class TextRequest:
    """A request for completions of plain texts, each as it was sent: a text, or token ids.

    `logprobs` asks for those of the tokens, and for this many of the likeliest; with `echo` the prompt's are
    returned as well, and `max_tokens` may be 0.
    """

    model: str
    prompts: tuple[str | tuple[int, ...], ...]
    max_tokens: int = DEFAULT_TEXT_TOKENS
    n: int = 1
    sampling: SamplingParams = attrs.field(factory=SamplingParams)
    echo: bool = False
    logprobs: int | None = None
    return_token_ids: bool = False
    tokens_as_ids: bool = False


def read_body(raw: bytes) -> Mapping[str, Any]:
    """The JSON object of a body.

    Raises:
        ApiError: it is none.
    """
    try:
        body = json.loads(raw)
    except (ValueError, RecursionError) as exc:
        raise ApiError(400, f"the body is not valid JSON: {exc}", code="invalid_json") from exc
    if not isinstance(body, dict):
        raise ApiError(400, "the body must be a JSON object", code="invalid_json")
    return body


def read_request(body: Mapping[str, Any]) -> ChatRequest:
    """The request that a body is.

    Raises:
        ApiError: the first fault, named by its parameter.
    """
    model = _model(body, _NEUTRAL)
    try:
        messages = messages_from_wire(body.get("messages"))
    except WireError as exc:
        raise bad_request(exc.message, exc.param) from exc
    options = body.get("stream_options") or {}
    if not isinstance(options, Mapping):
        raise bad_request("must be an object", "stream_options")
    return ChatRequest(
        model=model,
        messages=messages,
        tools=_tools(body),
        max_tokens=_whole(body, ("max_completion_tokens", "max_tokens"), low=1),
        n=_whole(body, ("n",), low=1, high=MOST_CHOICES) or 1,
        sampling=_sampling(body, _top_logprobs(body)),
        stream=_flag(body, "stream"),
        include_usage=_flag(options, "include_usage"),
        logprobs=_flag(body, "logprobs"),
        return_token_ids=_flag(body, "return_token_ids"),
        body=body,
    )


def read_text_request(body: Mapping[str, Any]) -> TextRequest:
    """The request for completions of plain texts that a body is.

    Raises:
        ApiError: the first fault, named by its parameter.
    """
    model = _model(body, _NEUTRAL_OF_TEXTS)
    echo = _flag(body, "echo")
    logprobs = _whole(body, ("logprobs",), low=0, high=MOST_TOP_LOGPROBS)
    most = _whole(body, ("max_tokens",), low=0 if echo else 1)
    n = _whole(body, ("n",), low=1, high=MOST_CHOICES) or 1
    if most == 0 and n > 1:
        raise bad_request("must be 1 where max_tokens is 0", "n")
    return TextRequest(
        model=model,
        prompts=_prompts(body.get("prompt")),
        max_tokens=DEFAULT_TEXT_TOKENS if most is None else most,
        n=n,
        sampling=_sampling(body, logprobs or 0),
        echo=echo,
        logprobs=logprobs,
        return_token_ids=_flag(body, "return_token_ids"),
        tokens_as_ids=_flag(body, "return_tokens_as_token_ids"),
    )


def _model(body: Mapping[str, Any], neutral: Mapping[str, tuple[Any, ...]]) -> str:
    """The model's name, where nothing is asked for that isn't offered."""
    model = body.get("model")
    if not isinstance(model, str) or not model:
        raise bad_request("must be the name of a model", "model", code="missing_required_parameter")
    for name, allowed in neutral.items():
        if body.get(name) not in allowed:
            raise bad_request(f"{body[name]!r} isn't offered here", name, code="unsupported_parameter")
    return model


def _prompts(value: object) -> tuple[str | tuple[int, ...], ...]:
    """One prompt, or a list of them: a text each, or token ids."""
    found = [value] if _is_prompt(value) else value
    if not isinstance(found, list) or not found or not all(map(_is_prompt, found)):
        raise bad_request(
            "must be a string, a list of token ids, or a list of either, and none empty", "prompt"
        )
    if len(found) > MOST_PROMPTS:
        raise bad_request(f"has {len(found)} prompts, and may have {MOST_PROMPTS}", "prompt")
    return tuple(prompt if isinstance(prompt, str) else tuple(prompt) for prompt in found)


def _is_prompt(value: object) -> bool:
    is_text_or_ids = isinstance(value, str) or (isinstance(value, list) and all(map(_is_whole, value)))
    return is_text_or_ids and bool(value)


def _top_logprobs(body: Mapping[str, Any]) -> int:
    top = _whole(body, ("top_logprobs",), low=0, high=MOST_TOP_LOGPROBS) or 0
    if top and not _flag(body, "logprobs"):
        raise bad_request("needs logprobs: true", "top_logprobs")
    return top


def _sampling(body: Mapping[str, Any], top: int) -> SamplingParams:
    temperature = _number(body, "temperature", low=0.0, high=2.0)
    top_p = _number(body, "top_p", low=0.0, high=1.0)
    if top_p == 0.0:
        raise bad_request("must be above 0", "top_p")
    top_k = _whole(body, ("top_k",), low=-1, high=MOST_TOP_K)
    return SamplingParams(
        temperature=1.0 if temperature is None else temperature,
        top_p=1.0 if top_p is None else top_p,
        top_k=top_k if top_k is not None and top_k > 0 else None,
        stop=_stops(body.get("stop")),
        stop_token_ids=_ids(body.get("stop_token_ids")),
        seed=None if (seed := _whole(body, ("seed",), low=None)) is None else seed % 2**63,
        top_logprobs=top,
    )


def _tools(body: Mapping[str, Any]) -> tuple[Mapping[str, Any], ...]:
    """The tools that the model is shown: none where the request says that it mustn't call any."""
    tools = body.get("tools") or []
    if not isinstance(tools, Sequence) or isinstance(tools, str):
        raise bad_request("must be a list of functions", "tools")
    for index, tool in enumerate(tools):
        function = tool.get("function") if isinstance(tool, Mapping) else None
        name = function.get("name") if isinstance(function, Mapping) else None
        if not isinstance(name, str) or not name or tool.get("type", "function") != "function":
            raise bad_request('must be {"type": "function", "function": {"name": ...}}', f"tools[{index}]")
    choice = body.get("tool_choice")
    if choice not in (None, "auto", "none"):
        raise bad_request(f"{choice!r} isn't offered here", "tool_choice", code="unsupported_parameter")
    return () if choice == "none" else tuple(tools)


def _stops(value: object) -> tuple[str, ...]:
    found = () if value is None else (value,) if isinstance(value, str) else value
    if not isinstance(found, list | tuple) or not all(isinstance(stop, str) and stop for stop in found):
        raise bad_request("must be a string or a list of strings, none of them empty", "stop")
    if len(found) > MOST_STOPS:
        raise bad_request(f"has {len(found)} texts, and may have {MOST_STOPS}", "stop")
    return tuple(found)


def _ids(value: object) -> tuple[int, ...]:
    found = () if value is None else value
    if not isinstance(found, list | tuple) or not all(map(_is_whole, found)):
        raise bad_request("must be a list of token ids", "stop_token_ids")
    return tuple(found)


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _whole(
    body: Mapping[str, Any], names: Sequence[str], *, low: int | None, high: int | None = None
) -> int | None:
    """The first of the names that has a value, a whole number within its bounds."""
    for name in names:
        value = body.get(name)
        if value is None:
            continue
        too_small = _is_whole(value) and low is not None and value < low
        if not _is_whole(value) or too_small or (high is not None and value > high):
            bounds = "" if low is None else f" from {low}" + ("" if high is None else f" to {high}")
            raise bad_request(f"must be a whole number{bounds}, got {value!r}", name)
        return int(value)
    return None


def _number(body: Mapping[str, Any], name: str, *, low: float, high: float) -> float | None:
    value = body.get(name)
    if value is None:
        return None
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not math.isfinite(value) or not low <= value <= high:
        raise bad_request(f"must be a number from {low:g} to {high:g}, got {value!r}", name)
    return float(value)


def _flag(body: Mapping[str, Any], name: str) -> bool:
    value = body.get(name)
    if value is not None and not isinstance(value, bool):
        raise bad_request(f"must be true or false, got {value!r}", name)
    return bool(value)
