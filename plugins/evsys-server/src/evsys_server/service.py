"""The shared state of all parts of the server, and the end of a session."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

import attrs

from evsys.errors import PLUGIN_FAILURES, EvsysError
from evsys_server.batches import Batches
from evsys_server.checkpoints import CheckpointStore
from evsys_server.engine import Engine
from evsys_server.errors import RefusedError, reason_of
from evsys_server.limits import Limits
from evsys_server.models import TrainedModel
from evsys_server.promises import Answer, Promise, Promises
from evsys_server.samplers import Samplers
from evsys_server.sessions import Session, Sessions

if TYPE_CHECKING:
    from evsys.protocols import Log

__all__ = ["Service"]

SWEEP_SECONDS = 10.0


@attrs.define(kw_only=True, eq=False)
class Service:
    """The state of a running server."""

    engine: Engine
    store: CheckpointStore
    samplers: Samplers
    batches: Batches
    sessions: Sessions
    promises: Promises
    limits: Limits
    log: Log
    models: dict[str, TrainedModel] = attrs.field(factory=dict)
    _tasks: dict[str, set[asyncio.Task[None]]] = attrs.field(factory=dict)
    _ending: set[asyncio.Task[None]] = attrs.field(factory=set)

    def model(self, model_id: str) -> TrainedModel:
        """A model trained here.

        Raises:
            RefusedError: there is none.
        """
        model = self.models.get(model_id)
        if model is None:
            raise RefusedError(
                404, f"there is no model {model_id!r} here; its session ended, or the server was restarted"
            )
        return model

    def room_for(self, what: str) -> None:
        """Whether one more promise can be made.

        Raises:
            RefusedError: too many answers wait to be fetched.
        """
        if self.promises.outstanding >= self.limits.outstanding:
            raise RefusedError(
                429,
                f"{self.promises.outstanding} answers wait to be fetched; no {what} before",
                retry_after=1,
            )

    def start(self, promise: Promise, work: Awaitable[Answer]) -> None:
        """Work on a promise alongside everything else, until its session ends."""
        task = asyncio.get_running_loop().create_task(promise.fulfil(work))
        own = self._tasks.setdefault(promise.session_id, set())
        own.add(task)
        task.add_done_callback(own.discard)

    @property
    def working(self) -> int:
        """Promises worked on alongside the models' turns."""
        return sum(map(len, self._tasks.values()))

    async def end(self, session: Session, status: Mapping[str, Any]) -> None:
        """End a session: what it waits for fails, what it holds is freed. Its checkpoints stay.

        Continues when who asked for it goes away.
        """
        if session.status is not None:
            return
        self.sessions.end(session, status)
        task = asyncio.get_running_loop().create_task(self._free(session, status))
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)
        await asyncio.shield(task)

    async def _free(self, session: Session, status: Mapping[str, Any]) -> None:
        why = f"session {session.id} has ended"
        tasks = self._tasks.pop(session.id, set())
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        await self.batches.end_session(session.id)
        for model_id in session.models:
            model = self.models.get(model_id)
            if model is not None:
                await self.unload(model, why)
        self.promises.end_session(session.id, why)
        self._tidy(lambda: self.store.end_session(session.id))
        self.log.info("session.ended", session=session.id, status=status.get("type"))

    def _tidy(self, remove: Callable[[], None]) -> None:
        """Remove checkpoints; where that can't be done, nothing waits for it."""
        try:
            remove()
        except (OSError, EvsysError) as exc:
            self.log.error("checkpoints.not_removed", reason=reason_of(exc), exc_info=exc)

    async def unload(self, model: TrainedModel, why: str) -> None:
        """Free a model; pending calls fail, even if something can't be freed."""
        self.models.pop(model.id, None)
        frees: tuple[Callable[[], Awaitable[None]], ...] = (
            lambda: self.samplers.drop_owner(model.id),
            lambda: model.unload(why),
        )
        for free in frees:
            try:
                await free()
            except PLUGIN_FAILURES as exc:
                self.log.warning("model.unload_failed", model=model.id, reason=reason_of(exc), exc_info=exc)

    async def sweep(self) -> None:
        """For ever: end silent sessions, and remove checkpoints whose time is over."""
        while True:
            await asyncio.sleep(SWEEP_SECONDS)
            for session in self.sessions.silent(self.limits.session_seconds):
                await self.end(session, {"type": "cancelled", "detail": "no heartbeat"})
            self._tidy(self.store.expire)

    async def end_all(self) -> None:
        """End all sessions, so that waiting callers get an error."""
        for session in self.sessions.lasting():
            await self.end(session, {"type": "cancelled", "detail": "the server was stopped"})
        if self._ending:
            await asyncio.wait(self._ending)

    async def close(self) -> None:
        """End all sessions and free everything."""
        await self.end_all()
        await self.samplers.close()
        await self.engine.stop()
