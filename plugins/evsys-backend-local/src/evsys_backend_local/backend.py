"""The plugin: what `backend: {kind: local}` builds. The engine is imported when a run is prepared, not before."""

from __future__ import annotations

import contextvars
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import attrs

from evsys.errors import BackendError, ConfigError, Problem
from evsys.types import Checkpoint, ModelSpec
from evsys_backend_local.config import CAPABILITIES, LocalConfig, capabilities_of
from evsys_backend_local.engine.devices import computes_on_gpu, require_device

if TYPE_CHECKING:
    from evsys.protocols import TrainingClient
    from evsys_backend_local.client import LocalTrainingClient
    from evsys_backend_local.engine.threads import DaemonExecutor

__all__ = ["LocalBackend"]


class LocalBackend:
    """Trains LoRA adapters, or all weights of small models, with the engine of this package: over numpy, or torch on a GPU."""

    Config = LocalConfig
    free: ClassVar[bool] = True  # nothing that it does is paid for
    capabilities: frozenset[str] = CAPABILITIES
    concurrent_arms: ClassVar[int] = 1  # one run keeps all cores of a machine busy
    honours: ClassVar[frozenset[str]] = frozenset(
        {
            "init_from_checkpoint",
            "load_checkpoint_path",
            "renderer",
            "seed",
            "lora_rank",
            "lora_alpha",
            "target_modules",
        }
    )

    def __init__(self, **fields: Any) -> None:
        self.config = LocalConfig(**fields)
        require_device(self.config.device)
        self.capabilities = capabilities_of(on_gpu=computes_on_gpu(self.config.device))
        self._executor: DaemonExecutor | None = None

    @staticmethod
    def validate_model(model: ModelSpec) -> Iterable[str | Problem]:
        """The problems of a model, found offline: unknown name, not fetched, unknown target modules."""
        from evsys_backend_local.models.resolve import model_problems

        return model_problems(model)

    async def prepare(
        self,
        model: ModelSpec,
        run_dir: Path,
        seed: int,
        restore: Checkpoint | None = None,
        *,
        deterministic: bool | None = None,
    ) -> TrainingClient:
        """Load the base weights (seconds for 135M parameters) and make or restore what is trained.

        Unless the run is known not to be `deterministic`, sample calls are coalesced only if the config asks for it.

        Raises:
            ConfigError: no such model, or it isn't on this machine.
            BackendError: its architecture isn't supported or its files are damaged.
            PluginLoadError: the device isn't there.
        """
        import asyncio  # here, so that checking a file stays quick

        from evsys_backend_local.client import LocalTrainingClient
        from evsys_backend_local.engine.threads import DaemonExecutor

        for key in ("init_from_checkpoint", "load_checkpoint_path"):
            address = getattr(model, key)
            if restore is None and address is not None:
                message = f"the local backend can't fetch {address!r}"
                raise ConfigError(
                    [Problem(path=f"$.model.{key}", message=message, hint="name a checkpoint's folder")]
                )
        # One thread: calls run in the order they were submitted, and the event loop stays free.
        self._executor = DaemonExecutor(1, "evsys-local")
        loop = asyncio.get_running_loop()

        def load() -> LocalTrainingClient:
            return LocalTrainingClient.load(config, model, seed, restore, executor)

        executor = self._executor
        config = self.config
        if config.coalesce is None:
            config = attrs.evolve(config, coalesce=deterministic is False)
        # The context goes along: it holds the registry of the project that runs.
        return await loop.run_in_executor(executor, contextvars.copy_context().run, load)

    async def teardown(self, client: TrainingClient | None) -> None:
        """End what still computes and free the engine. Safe after a failed `prepare` and when called twice.

        Pending calls get a `BackendError`.
        """
        import asyncio

        from evsys_backend_local.client import LocalTrainingClient

        executor, self._executor = self._executor, None
        if executor is None:
            return
        try:
            if isinstance(client, LocalTrainingClient):
                client.abort()
                await asyncio.get_running_loop().run_in_executor(executor, client.close)
            elif client is not None:
                raise BackendError(f"teardown got a {type(client).__name__}, which this backend didn't make")
        finally:
            executor.shutdown(wait=False, cancel_futures=True)
