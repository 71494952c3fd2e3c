"""How a backend is tried: which model, from which folder, at which rate."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evsys.types import AdamParams, Checkpoint, ModelSpec
from evsys_conformance import toy

__all__ = ["CLOSE", "Trial"]

CLOSE: Any = {"rtol": 2e-3, "atol": 2e-3}
"""How near two computations of the same logprob in float32 are at least."""


@dataclass(frozen=True)
class Trial:
    """A backend under test. `make` makes a new one, since a backend object belongs to one run."""

    make: Callable[[], Any]
    model: ModelSpec
    folder: Path
    learning_rate: float

    @asynccontextmanager
    async def client(
        self, *, seed: int = 0, restore: Checkpoint | None = None, model: ModelSpec | None = None
    ) -> AsyncIterator[Any]:
        """A prepared client of a backend of its own, released afterwards."""
        backend = self.make()
        client = await backend.prepare(model or self.model, self.folder, seed, restore)
        try:
            yield client
        finally:
            await backend.teardown(client)

    async def step(
        self,
        client: Any,
        data: list[Any],
        loss: Any = "cross_entropy",
        params: Mapping[str, Any] | None = None,
        *,
        learning_rate: float | None = None,
    ) -> Any:
        """One step; what `forward_backward` and `optim_step` gave."""
        rate = self.learning_rate if learning_rate is None else learning_rate
        forward = client.forward_backward(data, loss, params)
        optim = client.optim_step(AdamParams(learning_rate=rate))
        return await forward, await optim

    async def save(self, client: Any, step: int, name: str = "checkpoint") -> Checkpoint:
        """Save its state in a new folder."""
        folder = self.folder / f"{name}-{step}"
        folder.mkdir()
        return Checkpoint(step=step, directory=folder, state=dict(await client.save_state(folder)))

    async def prompt(self, client: Any) -> list[int]:
        """Token ids to sample from: a question of the toy task."""
        tokens: list[int] = toy.datums(client.renderer)[0].tokens.tolist()
        return tokens
