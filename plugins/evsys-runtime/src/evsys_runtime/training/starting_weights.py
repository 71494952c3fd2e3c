"""The weights that a run started from, frozen, at any time of the run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from evsys import current_registry
from evsys.errors import boundary
from evsys_runtime.accounting.metering import without_meter
from evsys_runtime.config.placeholders import resolve
from evsys_runtime.data.scope import current_scope
from evsys_runtime.training.checkpoints import find_checkpoint

if TYPE_CHECKING:
    from evsys.protocols import SamplingClient
    from evsys.types import RunContext

__all__ = ["StartingWeights"]


class StartingWeights:
    """A snapshot of the starting weights, and the backend that it lives in where it isn't the run's own.

    Attributes:
        snapshot: the model before its first step.
    """

    def __init__(self, snapshot: SamplingClient, *, backend: Any = None, client: Any = None) -> None:
        self.snapshot = snapshot
        self._backend = backend
        self._client = client

    @classmethod
    async def of(cls, ctx: RunContext) -> StartingWeights:
        """Those of a run.

        A run that continues from a checkpoint has trained weights by now, so the starting ones are prepared again.
        """
        restored = ctx.checkpoints.restored
        if restored is None or restored.step == 0:
            return cls(await without_meter(ctx.clients.policy).sampling_client())
        spec = ctx.config["backend"]
        kind, params = spec["kind"], resolve(spec.get("params") or {})
        backend = current_registry().build("backend", kind, params)
        with boundary("backend", kind, ctx.run_id):
            start = find_checkpoint(ctx.model, current_scope().project_root)
            client = await backend.prepare(ctx.model, ctx.run_dir, ctx.seeds("model"), start)
            try:
                snapshot = await client.sampling_client()
            except BaseException:
                await backend.teardown(client)
                raise
        return cls(snapshot, backend=backend, client=client)

    async def close(self) -> None:
        """Release them. Safe to call twice."""
        await self.snapshot.close()
        backend, self._backend = self._backend, None
        if backend is not None:
            await backend.teardown(self._client)
