"""A model that costs nothing."""

import asyncio
from collections.abc import Sequence

import numpy as np

from evsys.types import SampledSequence, SampleResult, SamplingParams

__all__ = ["InstantModel"]


class InstantModel:
    """A sampling client that gives every prompt the same answer after one turn of the event loop."""

    version = 0

    def __init__(self, tokens: Sequence[int]) -> None:
        self._sequence = SampledSequence(tokens=tokens, logprobs=[-0.5] * len(tokens), finish_reason="stop")

    async def sample(self, prompt: Sequence[int], params: SamplingParams, n: int = 1) -> SampleResult:
        await asyncio.sleep(0)
        return SampleResult(sequences=[self._sequence] * n)

    async def compute_logprobs(self, tokens: Sequence[int]) -> np.ndarray:
        return np.full(len(tokens), -0.5, dtype=np.float32)

    async def close(self) -> None:
        pass
