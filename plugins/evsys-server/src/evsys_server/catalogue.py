"""The models of this server for its chat-completions endpoint: base models by name, checkpoints by address."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING

from evsys.types import SampleResult, SamplingParams
from evsys_runtime import ServedModel
from evsys_runtime.serving.errors import ApiError
from evsys_server.errors import RefusedError
from evsys_server.service import Service

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from evsys.protocols import SamplingClient

__all__ = ["ServerCatalogue"]


class _Lent:
    """A sampling client lent for each call, so that snapshots may come and go in between."""

    def __init__(self, service: Service, source: str) -> None:
        self._service = service
        self._source = source
        self.version = 0

    @asynccontextmanager
    async def _client(self) -> AsyncIterator[SamplingClient]:
        async with AsyncExitStack() as lent:
            try:
                client = await lent.enter_async_context(self._service.samplers.lend(self._source))
            except RefusedError as exc:
                raise ApiError(exc.status, exc.message) from exc
            yield client

    async def sample(self, prompt: Sequence[int], params: SamplingParams, n: int = 1) -> SampleResult:
        """Draw `n` continuations."""
        async with self._client() as client:
            return await client.sample(prompt, params, n)

    async def compute_logprobs(self, tokens: Sequence[int]) -> NDArray[np.float32]:
        """Logprob of each token given those before it."""
        async with self._client() as client:
            return await client.compute_logprobs(tokens)

    async def close(self) -> None:
        """Nothing is held between calls."""


class ServerCatalogue:
    """A `Catalogue` of all that can be sampled from."""

    def __init__(self, service: Service) -> None:
        self._service = service

    async def find(self, name: str, scope: Mapping[str, str]) -> ServedModel | None:
        """A base model, or a checkpoint by `tinker://...`."""
        try:
            base = self._service.engine.bases[self._service.samplers.base_of(name)]
        except RefusedError:
            return None
        return ServedModel(
            name=name,
            sampling_client=_Lent(self._service, name),
            renderer=base.renderer,
            tokenizer=base.tokenizer,
            context_length=base.context_length,
        )

    async def names(self, scope: Mapping[str, str]) -> Sequence[str]:
        """All names: base models, then checkpoints for sampling, newest first."""
        saved = [saved.path for saved in self._service.store.all() if saved.kind == "sampler_weights"]
        return [*self._service.engine.bases, *saved]
