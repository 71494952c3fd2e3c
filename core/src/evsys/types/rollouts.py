"""Values of sampling, rollouts and scoring."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import attrs

from evsys.types.rows import HarborTask, Message

if TYPE_CHECKING:
    from evsys.protocols import Agent, InferenceClient

__all__ = [
    "AgentContext",
    "Completion",
    "FinishReason",
    "NoScore",
    "Policy",
    "Rollout",
    "RolloutLimits",
    "SampleResult",
    "SampledSequence",
    "SamplingParams",
    "Score",
    "Turn",
    "Usage",
    "Verify",
]

FinishReason = Literal["stop", "length", "tool_calls", "error"]


@attrs.frozen(kw_only=True)
class SamplingParams:
    """How tokens are drawn. `temperature` 0 is greedy. `seed` names the random stream of sample 0; sample i of a call
    uses a stream derived from (seed, i). `prompt_logprobs` asks for the prompt's logprobs, `top_logprobs` for the k
    likeliest tokens of each sampled position, `top_prompt_logprobs` for those at each position of the prompt.
    """

    max_tokens: int = 256
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int | None = None
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    seed: int | None = None
    prompt_logprobs: bool = False
    top_logprobs: int = 0
    top_prompt_logprobs: int = 0


@attrs.frozen(kw_only=True)
class SampledSequence:
    """`tokens` and `logprobs` have one entry each; logprobs are the model's own at temperature 1."""

    tokens: Sequence[int]
    logprobs: Sequence[float]
    finish_reason: FinishReason
    top_logprobs: Sequence[Mapping[int, float]] | None = None


@attrs.frozen(kw_only=True)
class SampleResult:
    """All samples of one prompt; `prompt_logprobs[0]` is None, since nothing comes before the first token."""

    sequences: Sequence[SampledSequence]
    prompt_logprobs: Sequence[float | None] | None = None
    top_prompt_logprobs: Sequence[Mapping[int, float] | None] | None = None


@attrs.frozen(kw_only=True)
class Usage:
    """Tokens, seconds and money. `cost_usd` is None where no price is known (a local engine costs 0.0).

    `unpriced` counts the answers and trainings in it whose price no one knows: where there are any, `cost_usd` is the least
    that all of it cost.
    """

    prompt_tokens: int = 0
    completion_tokens: int = 0
    trained_tokens: int = 0
    seconds: float = 0.0
    cost_usd: float | None = None
    unpriced: int = 0

    def __add__(self, other: Usage) -> Usage:
        costs = [cost for cost in (self.cost_usd, other.cost_usd) if cost is not None]
        return Usage(
            prompt_tokens=self.prompt_tokens + other.prompt_tokens,
            completion_tokens=self.completion_tokens + other.completion_tokens,
            trained_tokens=self.trained_tokens + other.trained_tokens,
            seconds=self.seconds + other.seconds,
            cost_usd=sum(costs) if costs else None,
            unpriced=self.without_price + other.without_price,
        )

    @property
    def tokens(self) -> int:
        """All of them, regardless of their purpose."""
        return self.prompt_tokens + self.completion_tokens + self.trained_tokens

    @property
    def without_price(self) -> int:
        """`unpriced`, and 1 for tokens without a price that no one has counted there yet."""
        return self.unpriced or int(self.cost_usd is None and bool(self.tokens))


@attrs.frozen(kw_only=True)
class Completion:
    """One answer of a model. Token ids and logprobs are the sampler's own, None where the service hides them; so is
    `policy_version`, the number of optimiser steps behind the weights that answered.
    """

    message: Message
    finish_reason: FinishReason
    prompt_tokens: Sequence[int] | None = None
    tokens: Sequence[int] | None = None
    logprobs: Sequence[float] | None = None
    usage: Usage = attrs.field(factory=Usage)
    policy_version: int | None = None


@attrs.frozen(kw_only=True)
class Turn:
    """One call of the model inside a rollout; `prompt_tokens` is the full prompt of this call, history included.

    `policy_version` is there where weights change while rollouts run: None is the rollout's.
    """

    message: Message
    prompt_tokens: Sequence[int] | None = None
    tokens: Sequence[int] | None = None
    logprobs: Sequence[float] | None = None
    finish_reason: FinishReason = "stop"
    policy_version: int | None = None


@attrs.frozen(kw_only=True)
class Score:
    """A verdict on one rollout; `components` are named parts, each logged. `usage` is what a model took that judged."""

    value: float
    components: Mapping[str, float] = attrs.field(factory=dict)
    metadata: Mapping[str, Any] = attrs.field(factory=dict)
    usage: Usage | None = None


@attrs.frozen(kw_only=True)
class NoScore:
    """A typed absence: the rollout can't be judged. Never a reward of 0, never dropped from a count.

    `usage` is what was spent on judging all the same.
    """

    reason: str
    retryable: bool = False
    boundary: str | None = None
    usage: Usage | None = None


@attrs.frozen(kw_only=True)
class Rollout:
    """One attempt of a policy at a task. `score` and `error` are separate: both may be there.

    `output` is the final assistant text, `messages` the whole conversation, `policy_version` the number of
    optimiser steps behind the sampled weights.
    """

    task_id: str
    sample_index: int
    messages: tuple[Message, ...] = ()
    turns: tuple[Turn, ...] = ()
    output: str = ""
    score: Score | NoScore = attrs.field(factory=lambda: NoScore(reason="not scored"))
    error: str | None = None
    truncated: bool = False
    timed_out: bool = False
    policy_version: int | None = None
    usage: Usage = attrs.field(factory=Usage)
    metadata: Mapping[str, Any] = attrs.field(factory=dict)


MOST_TURNS = 100
"""Most answers of the model in a rollout if the run sets no `max_turns`."""


@attrs.frozen(kw_only=True)
class AgentContext:
    """The settings of a rollout for its agent: sampling, limits, its own seed.

    `environment` is the place to act in: `await environment.exec(command)` gives `stdout`, `stderr` and
    `return_code`; None if there is none. `await endpoint()` gives an address for this rollout alone, at which the
    model answers chat completions: `base_url`, `api_key` and `model`; it raises if the model has no such endpoint.
    The rollout has at most `max_turns` answers; `MOST_TURNS` if the run sets no limit.
    """

    sampling: SamplingParams
    seed: int
    sample_index: int = 0
    max_turns: int = MOST_TURNS
    system_prompt: str | None = None
    policy_version: int | None = None
    environment: Any = None
    endpoint: Any = None


type Verify = Callable[[HarborTask, Rollout], Awaitable[Score | NoScore]]
"""Judges a finished rollout; never raises: a verifier's failure is a `NoScore`."""


@attrs.frozen(kw_only=True)
class Policy:
    """Who acts in a rollout: an agent around a model client, how it samples, how often, and how it is judged.

    `environment` is where it acts, as the experiment file names it; None is nowhere. `endpoints` gives a rollout an
    address of its own; None where the model has none. `training` binds the agent: temperature, `top_p` and `top_k`
    are those of `sampling` regardless of its requests, no answer is longer, and after `max_turns` answers it gets
    no more.
    """

    model: InferenceClient
    agent: Agent
    verify: Verify
    sampling: SamplingParams = attrs.field(factory=SamplingParams)
    num_samples: int = 1
    system_prompt: str | None = None
    version: int | None = None
    environment: Any = None
    endpoints: Any = None
    training: bool = False


@attrs.frozen(kw_only=True)
class RolloutLimits:
    """Bounds of a rollout engine. `wave`: work is cut into fixed waves, so that batch composition, and with it every
    bit of the result, is the same each time. `directory`: where an engine may keep files of its own, such as the logs of its
    sandboxes, of all rollouts or of those that failed; None keeps none.
    """

    n_concurrent: int = 64
    timeout_seconds: float = 600.0
    max_turns: int = MOST_TURNS
    wave: bool = False
    directory: Path | None = None
    keep: Literal["all", "errors"] = "all"
