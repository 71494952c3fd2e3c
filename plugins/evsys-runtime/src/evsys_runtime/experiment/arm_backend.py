"""The backend of one arm: the model that it trains, made ready, and torn down whatever happens."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import attrs

from evsys.errors import EvsysError, boundary
from evsys.protocols import Backend, Log, TrainingClient
from evsys.types import Checkpoint, ModelSpec
from evsys_runtime.config.placeholders import resolve
from evsys_runtime.config.plan import ArmConfig
from evsys_runtime.experiment.contracts import prepared, told
from evsys_runtime.experiment.session import Session, run_id_of
from evsys_runtime.experiment.watchdog import Watchdog
from evsys_runtime.record.run_record import RunRecord

__all__ = ["ArmBackend"]

TEARDOWN_SECONDS = 60.0


@attrs.define(kw_only=True, eq=False)
class ArmBackend:
    """Makes what one attempt at an arm trains; `warnings` gets what should be told with the result."""

    session: Session
    arm: ArmConfig
    record: RunRecord
    log: Log
    watch: Watchdog
    warnings: list[str]

    @asynccontextmanager
    async def client(self, model: ModelSpec, start: Checkpoint | None) -> AsyncIterator[TrainingClient]:
        """A model that is ready to be trained and sampled, torn down after the block, however that ends.

        Args:
            model: what is trained.
            start: where its weights come from; None where the model itself says.
        """
        name = self.arm.run.backend.kind
        backend: Backend = self.session.plan.registry.build(
            "backend", name, resolve(self.arm.run.backend.params)
        )
        if getattr(backend, "simulated", False):
            self._mark_simulated(model)
        client: TrainingClient | None = None
        try:
            with boundary("backend", name, run_id_of(self.arm)):
                seed = self.session.seeds(self.arm)("model")
                more = told(backend, deterministic=self.arm.deterministic, log=self.log)
                client = await prepared(
                    backend.prepare(model, self.record.directory, seed, start, **more), name
                )
            self.record.note(backend=dict(getattr(client, "facts", None) or {}))
            yield client
        except BaseException:
            try:
                await self._tear_down(backend, client)
            except EvsysError as exc:  # what went wrong first is what to tell
                self.warnings.append(exc.message)
                self.log.warning("teardown.failed", reason=exc.message, exc_info=exc)
            raise
        await self._tear_down(backend, client)

    def _mark_simulated(self, model: ModelSpec) -> None:
        """Keep it with the result where the backend only imitates a model, so that no number passes for the model's."""
        kind = self.arm.run.backend.kind
        self.session.simulated.add(kind)
        text = f"backend {kind!r} only imitates a model: what it scores says nothing about {model.name}"
        if text not in self.warnings:  # a run may need its backend several times, for scores that were lost
            self.warnings.append(text)

    async def _tear_down(self, backend: Backend, client: TrainingClient | None) -> None:
        name = self.arm.run.backend.kind
        with boundary("backend", name, run_id_of(self.arm)):
            async with self.watch.deadline(TEARDOWN_SECONDS, "backend", name, "teardown"):
                await backend.teardown(client)
