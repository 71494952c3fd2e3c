"""An inference client answers messages: a service, or a stand-in for one. Agents and judges get one without knowing what is behind
it; the model in training has the same interface.

## In an experiment

A benchmark entry names clients in `models`, which are evaluated for comparison, or as its `inference`, which answers instead of the
trained model; [`openai_compatible`](../inference-clients.md) is one for services. One that offers `prompt_logprobs` can be a
[teacher's](../opd.md#where-the-teacher-runs) `inference`. [`Experiment(..., inference_factory=...)`](../python.md#replacing-parts) evaluates trained models through
your own clients.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from evsys import register_inference_client
from evsys.types import Completion, Message, SamplingParams, Usage


@register_inference_client("parrot")
class Parrot:
    """Repeats what was said last."""

    async def generate(
        self,
        messages: Sequence[Message],
        sampling: SamplingParams,
        *,
        n: int = 1,
        tools: Sequence[Mapping[str, Any]] = (),
    ) -> list[Completion]:
        said = Message(role="assistant", content=messages[-1].content)
        usage = Usage(prompt_tokens=len(messages), completion_tokens=1)
        return [Completion(message=said, finish_reason="stop", usage=usage) for _ in range(n)]
