"""The `openai_compatible` client: models of any service that speaks the chat-completions protocol."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar
from urllib.parse import urlsplit

import attrs

from evsys import option
from evsys.errors import BackendError
from evsys.types import Completion, Message, SamplingParams, Usage
from evsys_runtime import Limits, current_scope, load_prices, shared_breaker, shared_limiter
from evsys_runtime.accounting.prices import Price, PriceList
from evsys_std.inference.bodies import (
    Answer,
    UnreadableAnswerError,
    Used,
    echo_body,
    read_answer,
    read_echo,
    request_body,
)
from evsys_std.inference.calls import Service, public_address

__all__ = ["OpenAICompatible"]

_OWN_FIELDS = frozenset({"model", "messages", "n", "stream", "tools", "prompt", "echo"})
_OPTIONAL_FIELDS = ("temperature", "top_p", "seed", "stop", "max_tokens", "max_completion_tokens")
_BYTES_PER_TOKEN = 4  # of English text; an estimate for the limiter, corrected by each answer


@attrs.frozen(kw_only=True)
class OwnPrice:
    """US dollars per million tokens."""

    prompt: float = option(..., "Of prompts.", ge=0)
    completion: float = option(..., "Of completions.", ge=0)
    cached: float | None = option(None, "Of cached prompt tokens; by default as `prompt`.", ge=0)


@attrs.frozen(kw_only=True)
class OpenAICompatibleConfig:
    """Parameters of `openai_compatible`."""

    model: str = option(..., "The service's name of the model.", min_len=1)
    base_url: str = option(..., "Address of the service, up to and without /chat/completions.", min_len=1)
    api_key_env: str | None = option(
        None, "Environment variable that holds the key; none for a service without."
    )
    timeout_seconds: float = option(600.0, "Longest time of one call, its retries included.", gt=0)
    max_retries: int = option(
        6, "Attempts after the first, on statuses 408, 409, 429, 5xx and lost connections.", ge=0
    )
    requests_per_minute: int | None = option(
        None, "Limit of all calls to this service from any caller.", ge=1
    )
    tokens_per_minute: int | None = option(None, "Bound of the tokens of all calls to this service.", ge=1)
    max_concurrent: int | None = option(None, "Most calls to this service at once.", ge=1)
    price: OwnPrice | None = option(
        None, "Price of the model; by default from the price files, unknown where in none."
    )
    max_tokens_field: str = option(
        "max_tokens",
        "The service's name for the maximum length of an answer.",
        choices=("max_tokens", "max_completion_tokens"),
    )
    omit: tuple[str, ...] = option(
        (),
        "Fields that the service refuses, which are then left to it: temperature, top_p, seed, stop, max_tokens.",
    )
    extra: dict[str, Any] = option(
        attrs.Factory(dict), "More fields of each request, such as reasoning_effort."
    )
    send_reasoning: bool = option(False, "Send the reasoning of earlier turns back.")
    token_ids: bool = option(
        False, "Ask for token ids and logprobs, as vLLM and evsys serve them; refuse answers without."
    )


class OpenAICompatible:
    """A core `InferenceClient` over a service. Answers come whole, never streamed.

    Raises ValueError for params that can't work. All clients of a service in this process share its limits. Built again where an experiment names it, it holds connections
    only while calls are under way.
    """

    name: ClassVar[str] = "openai_compatible"
    Config: ClassVar[type] = OpenAICompatibleConfig
    conformance: ClassVar[Mapping[str, Any]] = {
        "params": {"model": "m", "base_url": "http://127.0.0.1:9/v1", "max_retries": 1},
        "address": "base_url",
        "service": True,
    }

    def __init__(self, **fields: Any) -> None:
        config = self.config = OpenAICompatibleConfig(**fields)
        if faults := list(_faults(config)):
            raise ValueError("; ".join(faults))
        key = os.environ.get(config.api_key_env) if config.api_key_env else None
        base = config.base_url.rstrip("/")
        self.model = config.model
        self._prices = _prices(config)
        self.warnings = self._prices.doubts(config.model)
        service = f"{public_address(base)} {config.api_key_env or ''}"
        self._limiter = shared_limiter(
            service,
            Limits(
                requests_per_minute=config.requests_per_minute,
                tokens_per_minute=config.tokens_per_minute,
                concurrency=config.max_concurrent,
            ),
        )
        self.service, self.texts = (
            Service(
                name=f"{self.name} ({config.model})",
                url=f"{base}{path}",
                key=key,
                limiter=self._limiter,
                breaker=shared_breaker(service.strip()),
                max_retries=config.max_retries,
                timeout_seconds=config.timeout_seconds,
            )
            for path in ("/chat/completions", "/completions")
        )

    async def generate(
        self,
        messages: Sequence[Message],
        sampling: SamplingParams,
        *,
        n: int = 1,
        tools: Sequence[Mapping[str, Any]] = (),
    ) -> Sequence[Completion]:
        """`n` completions of one conversation; a service that gives fewer at once is asked again.

        The prompt's tokens are counted in the first completion of each answer.

        Raises:
            BackendError: the service can't be reached, refuses, or answers something else.
        """
        found: list[Completion] = []
        while len(found) < n:
            seed = None if sampling.seed is None else sampling.seed + len(found)
            found += await self._ask(messages, attrs.evolve(sampling, seed=seed), n - len(found), tools)
        return found[:n]

    async def prompt_logprobs(self, tokens: Sequence[int]) -> Completion:
        """How likely the model finds each of some tokens, the first one apart.

        Raises:
            BackendError: the service can't be reached, refuses, or doesn't return them.
        """
        config = self.config
        body = self._adapt_body(echo_body(config.model, tokens))
        started = time.perf_counter()
        answered, slot = await self.texts.post(body, tokens=len(tokens) + 1)
        try:
            echo = read_echo(answered, len(tokens))
        except UnreadableAnswerError as exc:
            raise BackendError(
                f"{self.name} ({config.model}): {public_address(config.base_url)} doesn't return logprobs of given tokens: "
                f"{exc}",
                hint="it takes a service whose /completions honours `echo` with `logprobs`, as vLLM, SGLang and evsys serve do",
                plugin=self.name,
            ) from exc
        seconds = time.perf_counter() - started
        usage = self._usage(echo, echo.prompt_tokens or 0, echo.completion_tokens or 0, seconds)
        slot.used(usage.tokens or len(tokens))
        return Completion(
            message=Message(role="assistant", content=echo.text),
            finish_reason="length",
            tokens=list(tokens),
            logprobs=echo.logprobs,
            usage=usage,
        )

    def sampling_cost(self, prompt_tokens: int, completion_tokens: int) -> float | None:
        """US dollars of so many tokens; None where no one knows the price."""
        return self._prices.cost(self.model, prompt_tokens, completion_tokens, 0)

    def _adapt_body(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """A body without what the service refuses, and with what the user adds."""
        config = self.config
        return {name: value for name, value in body.items() if name not in config.omit} | config.extra

    async def _ask(
        self,
        messages: Sequence[Message],
        sampling: SamplingParams,
        n: int,
        tools: Sequence[Mapping[str, Any]],
    ) -> Sequence[Completion]:
        config = self.config
        try:
            body = request_body(
                config.model,
                messages,
                sampling,
                n=n,
                tools=tools,
                max_tokens_field=config.max_tokens_field,
                reasoning=config.send_reasoning,
                token_ids=config.token_ids,
            )
        except ValueError as exc:
            raise BackendError(f"{self.name}: {exc}", plugin=self.name) from exc
        body = self._adapt_body(body)
        started = time.perf_counter()
        answered, slot = await self.service.post(body, tokens=_estimate(messages, sampling, n))
        try:
            answer = read_answer(answered, token_ids=config.token_ids)
        except UnreadableAnswerError as exc:
            raise BackendError(
                f"{self.name} ({config.model}): {public_address(config.base_url)} answered something that is not a chat "
                f"completion: {exc}",
                plugin=self.name,
            ) from exc
        if answer.tokens is not None:
            slot.used(answer.tokens)
        return self._count_usage(answer, time.perf_counter() - started)

    def _count_usage(self, answer: Answer, seconds: float) -> list[Completion]:
        """The completions with their usage. Services report the sum over all: it is divided evenly."""
        share, rest = divmod(answer.completion_tokens or 0, len(answer.completions))
        counted = []
        for index, completion in enumerate(answer.completions):
            first = index == 0
            prompt = (answer.prompt_tokens or 0) if first else 0
            written = share + (1 if index < rest else 0)
            usage = self._usage(answer, prompt, written, seconds if first else 0.0, cached=first)
            counted.append(attrs.evolve(completion, usage=usage))
        return counted

    def _usage(self, used: Used, prompt: int, written: int, seconds: float, *, cached: bool = True) -> Usage:
        """Tokens of an answer with their price, where it says how many they are; `cached` ones among them are cheaper."""
        kept = used.cached_tokens if cached else 0
        cost = self._prices.cost(self.model, prompt, written, kept) if used.tokens is not None else None
        return Usage(
            prompt_tokens=prompt,
            completion_tokens=written,
            seconds=seconds,
            cost_usd=cost,
            unpriced=int(cost is None),
        )


def _faults(config: OpenAICompatibleConfig) -> Iterator[str]:
    """Faults that no service can work with. An address whose `${NAME}` isn't set is reported when it is
    substituted.
    """
    address = urlsplit(config.base_url)
    is_address = address.scheme in ("http", "https") and address.hostname
    if not is_address and "${" not in config.base_url:
        yield f"base_url {public_address(config.base_url)!r} is not an address such as http://127.0.0.1:8000/v1"
    if config.api_key_env and not os.environ.get(config.api_key_env):
        yield f"the environment variable {config.api_key_env}, which api_key_env names, isn't set"
    for name in sorted(_OWN_FIELDS & set(config.extra)):
        yield f"{name!r} can't be given in extra: evsys sets it"
    for name in config.omit:
        if name not in _OPTIONAL_FIELDS:
            yield f"{name!r} can't be given in omit, but {', '.join(_OPTIONAL_FIELDS)}"


def _prices(config: OpenAICompatibleConfig) -> PriceList:
    if config.price is None:
        return load_prices(current_scope().project_root)
    own = config.price
    price = Price(prompt=own.prompt, completion=own.completion, cached=own.cached)
    return PriceList(models={config.model: price})


def _estimate(messages: Sequence[Message], sampling: SamplingParams, n: int) -> int:
    """About how many tokens a call may use: its text by length, and its answers at their longest."""
    size = sum(len(message.content.encode("utf-8", "surrogatepass")) for message in messages)
    return size // _BYTES_PER_TOKEN + n * sampling.max_tokens
