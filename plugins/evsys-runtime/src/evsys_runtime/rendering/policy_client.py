"""The trained model as an inference client: messages in, messages out, with the sampler's own tokens and logprobs."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import attrs

from evsys.errors import boundary
from evsys.optional import declared
from evsys.types import Completion, FinishReason, Message, SampledSequence, SamplingParams, Usage

if TYPE_CHECKING:
    from evsys.protocols import Renderer, SamplingClient

__all__ = ["PolicyClient", "sampling_cost"]


class PolicyClient:
    """A core `InferenceClient` over a sampling client.

    Nothing is tokenised twice: `Completion.prompt_tokens` is what was sent, `tokens` and `logprobs` are what came back.

    Args:
        sampling_client: a frozen snapshot of the model.
        renderer: the model's renderer.
    """

    def __init__(self, sampling_client: SamplingClient, renderer: Renderer) -> None:
        self.sampling_client = sampling_client
        self.renderer = renderer

    @property
    def version(self) -> int:
        """Optimiser steps behind the snapshot."""
        return self.sampling_client.version

    async def generate(
        self,
        messages: Sequence[Message],
        sampling: SamplingParams,
        *,
        n: int = 1,
        tools: Sequence[Mapping[str, Any]] = (),
    ) -> Sequence[Completion]:
        """`n` completions of one conversation. The prompt's tokens are counted once, in the first of them.

        Raises:
            DataError: the conversation can't be rendered.
            BackendError: sampling failed.
        """
        started = time.perf_counter()
        prompt = self.renderer.render_prompt(messages, tools)
        version = (
            self.version
        )  # of the weights that answer: `sample` chooses them before it waits for anything
        sequences = await self.sample(prompt, sampling, n)
        seconds = time.perf_counter() - started
        return [
            self.completion(prompt, sequence, version, first=index == 0, seconds=seconds)
            for index, sequence in enumerate(sequences)
        ]

    async def sample(
        self, prompt: Sequence[int], sampling: SamplingParams, n: int = 1
    ) -> Sequence[SampledSequence]:
        """`n` continuations of a rendered prompt, which end where the renderer's turns end.

        Raises:
            BackendError: sampling failed.
        """
        stops = tuple(dict.fromkeys((*sampling.stop_token_ids, *self.renderer.stop_token_ids)))
        with boundary("backend", type(self.sampling_client).__name__):
            result = await self.sampling_client.sample(
                prompt, attrs.evolve(sampling, stop_token_ids=stops), n
            )
        return result.sequences

    def completion(
        self,
        prompt: Sequence[int],
        sequence: SampledSequence,
        version: int,
        *,
        first: bool = True,
        seconds: float = 0.0,
    ) -> Completion:
        """The completion that a sampled sequence is, by weights of `version`. The `first` of a prompt counts its tokens and
        seconds.
        """
        message = self.renderer.parse(sequence.tokens)
        prompt_tokens = len(prompt) if first else 0
        reason: FinishReason = sequence.finish_reason
        if message.tool_calls and reason == "stop":
            reason = "tool_calls"
        return Completion(
            message=message,
            finish_reason=reason,
            prompt_tokens=prompt,
            tokens=sequence.tokens,
            logprobs=sequence.logprobs,
            policy_version=version,
            usage=Usage(
                prompt_tokens=prompt_tokens,
                completion_tokens=len(sequence.tokens),
                seconds=seconds if first else 0.0,
                cost_usd=sampling_cost(self.sampling_client, prompt_tokens, len(sequence.tokens)),
            ),
        )


def sampling_cost(client: SamplingClient, prompt_tokens: int, completion_tokens: int) -> float | None:
    """US dollars of a sample: 0 where the client is free, else what it says; None where no one knows."""
    if declared(client, "free", False):
        return 0.0
    cost = declared(client, "sampling_cost")
    return None if cost is None else cost(prompt_tokens, completion_tokens)
