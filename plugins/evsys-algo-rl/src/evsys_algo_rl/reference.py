"""The weights that a run started from, frozen: what `kl_coef` holds the policy near to."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from evsys import current_registry
from evsys.errors import AlgorithmError, boundary
from evsys_runtime.config.placeholders import resolve
from evsys_runtime.data.scope import current_scope
from evsys_runtime.training.checkpoints import find_checkpoint

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from evsys.protocols import SamplingClient
    from evsys.types import RunContext
    from evsys_algo_rl.groups import TaskGroup

__all__ = ["Reference"]


class Reference:
    """A snapshot of the starting weights, and the backend that it lives in where it isn't the run's own."""

    def __init__(self, snapshot: SamplingClient, *, backend: Any = None, client: Any = None) -> None:
        self._snapshot = snapshot
        self._backend = backend
        self._client = client

    @classmethod
    async def of(cls, ctx: RunContext) -> Reference:
        """The reference of a run: the model before its first step.

        A run that goes on from a checkpoint has trained weights by now, so the starting ones are prepared once more.
        """
        restored = ctx.checkpoints.restored
        if restored is None or restored.step == 0:
            return cls(await ctx.clients.policy.sampling_client())
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

    async def logprobs(self, groups: Sequence[TaskGroup]) -> dict[int, NDArray[np.float32]]:
        """What the reference says of every token of every trained sequence, by the sequence's `id`.

        Raises:
            AlgorithmError: it says too little.
        """
        rows = [
            row
            for group in groups
            for member in group.members
            if member.trained
            for row in member.trajectories
        ]
        found = await asyncio.gather(*(self._snapshot.compute_logprobs(row.tokens.tolist()) for row in rows))
        for row, values in zip(rows, found, strict=True):
            if len(values) != len(row):
                raise AlgorithmError(f"the reference gave {len(values)} logprobs for {len(row)} tokens")
        return {id(row): values for row, values in zip(rows, found, strict=True)}

    async def close(self) -> None:
        """Release it. Safe to call twice."""
        await self._snapshot.close()
        backend, self._backend = self._backend, None
        if backend is not None:
            await backend.teardown(self._client)
