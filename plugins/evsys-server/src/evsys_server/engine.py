"""The backend behind the server: made again by its kind for each model trained or restored."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs

from evsys import Registry, use_registry
from evsys.errors import boundary
from evsys.optional import declared
from evsys.types import Checkpoint, LoraSpec, ModelSpec

if TYPE_CHECKING:
    from evsys.protocols import Backend, Renderer, SamplingClient, Tokenizer, TrainingClient

__all__ = ["BaseModel", "Engine", "Prepared"]


@attrs.frozen(kw_only=True, eq=False)
class Prepared:
    """A backend with the model that it holds."""

    backend: Backend
    client: TrainingClient


@attrs.frozen(kw_only=True, eq=False)
class BaseModel:
    """A base model served, untrained."""

    name: str
    prepared: Prepared
    sampler: SamplingClient
    tokenizer: Tokenizer
    renderer: Renderer
    context_length: int | None


class Engine:
    """Makes backends of one kind.

    Args:
        registry: where the kind is found.
        kind: of the backend.
        params: of the backend, as in an experiment file.
        models: names of the base models served.
        directory: a folder that backends may write to.
        deterministic: whether results may not depend on what else is asked meanwhile.
    """

    def __init__(
        self,
        registry: Registry,
        kind: str,
        params: Mapping[str, Any],
        models: Sequence[str],
        directory: Path,
        *,
        deterministic: bool,
    ) -> None:
        self.kind = kind
        self.models = tuple(models)
        self.deterministic = deterministic
        self._registry = registry
        self._params = dict(params)
        self._directory = directory
        self._class = registry.get("backend", kind)
        arms = declared(self._class, "concurrent_arms")
        self._training = asyncio.Semaphore(arms or 1 << 16)
        self.bases: dict[str, BaseModel] = {}

    @property
    def capabilities(self) -> frozenset[str]:
        """The capabilities of the backend."""
        found: frozenset[str] = self._class.capabilities
        return found

    @property
    def same_bits(self) -> bool:
        """Whether what is asked twice has the same bits: it is asked for, and the backend can promise it."""
        return self.deterministic and "deterministic" in self.capabilities

    @property
    def simulated(self) -> bool:
        """Whether the backend only imitates a model."""
        return bool(declared(self._class, "simulated", False))

    @property
    def training(self) -> AbstractAsyncContextManager[None]:
        """Held while one model computes: where a single run keeps a machine busy, models take turns."""
        return self._training

    async def start(self) -> None:
        """Prepare the base models, so that what is wrong with one shows before the server listens.

        Raises:
            EvsysError: one of them can't be prepared.
        """
        for name in self.models:
            prepared = await self.prepare(ModelSpec(name=name, lora=LoraSpec(rank=1)), seed=0)
            client = prepared.client
            self.bases[name] = BaseModel(
                name=name,
                prepared=prepared,
                sampler=await client.sampling_client(),
                tokenizer=client.tokenizer,
                renderer=client.renderer,
                context_length=declared(client, "max_length"),
            )

    async def prepare(self, spec: ModelSpec, seed: int, restore: Checkpoint | None = None) -> Prepared:
        """A model to train, fresh or from a checkpoint.

        Raises:
            EvsysError: the backend can't.
        """
        with use_registry(self._registry), boundary("backend", self.kind):
            backend: Backend = self._registry.build("backend", self.kind, self._params)
            more = (
                {"deterministic": self.deterministic}
                if "deterministic" in inspect.signature(backend.prepare).parameters
                else {}
            )
            try:
                client = await backend.prepare(spec, self._directory, seed, restore, **more)
            except BaseException:
                await backend.teardown(None)
                raise
        return Prepared(backend=backend, client=client)

    async def release(self, prepared: Prepared) -> None:
        """Free what a model takes."""
        with boundary("backend", self.kind):
            await prepared.backend.teardown(prepared.client)

    async def stop(self) -> None:
        """Free the base models."""
        bases, self.bases = self.bases, {}
        for base in bases.values():
            await base.sampler.close()
            await self.release(base.prepared)
