"""Snapshots sampled from: few of them live in memory, the others come back from their checkpoint when asked."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from typing import TYPE_CHECKING

import attrs

from evsys.errors import PLUGIN_FAILURES
from evsys_server.checkpoints import SCHEME, CheckpointStore
from evsys_server.engine import Engine, Prepared
from evsys_server.errors import RefusedError

if TYPE_CHECKING:
    from evsys.protocols import SamplingClient

__all__ = ["Samplers"]


@attrs.define(kw_only=True, eq=False)
class _Live:
    """A snapshot in memory: whose backend it came from, or the one that was made for it, and how many use it now."""

    client: SamplingClient
    owner: str | None = None
    prepared: Prepared | None = None
    users: int = 0
    over: bool = False


class Samplers:
    """Sampling clients by what they sample: a base model's name, or a checkpoint's address.

    Args:
        engine: restores what isn't in memory.
        store: where checkpoints lie.
        most_live: snapshots in memory alongside the base models; the least recently used goes first.
    """

    def __init__(self, engine: Engine, store: CheckpointStore, *, most_live: int = 8) -> None:
        self._engine = engine
        self._store = store
        self._most = most_live
        self._live: OrderedDict[str, _Live] = OrderedDict()
        self._locks: dict[str, asyncio.Lock] = {}
        # Where results may not depend on what else is asked meanwhile, each call is a batch of its own.
        self._one_at_a_time = asyncio.Lock() if engine.deterministic else None

    def base_of(self, source: str) -> str:
        """The base model under a source.

        Raises:
            RefusedError: there is no such checkpoint or model here.
        """
        name = self._store.find(source).spec.name if source.startswith(SCHEME) else source
        if name not in self._engine.bases:
            served = ", ".join(self._engine.bases)
            raise RefusedError(400, f"base model {name!r} isn't served here; served: {served}")
        return name

    @asynccontextmanager
    async def lend(self, source: str) -> AsyncIterator[SamplingClient]:
        """The sampling client of a source for one call, which stays open while it is lent.

        Raises:
            RefusedError: there is no such checkpoint or model here.
        """
        turn: AbstractAsyncContextManager[object] = self._one_at_a_time or nullcontext()
        if not source.startswith(SCHEME):
            self.base_of(source)
            async with turn:
                yield self._engine.bases[source].sampler
            return
        self._store.find(source)
        live = await self._hold(source)
        try:
            async with turn:
                yield live.client
        finally:
            live.users -= 1
            if live.over:
                await self._close(live)

    async def _hold(self, source: str) -> _Live:
        """The snapshot of a source with one user more, so that no one closes it from now on."""
        if source not in self._live:
            lock = self._locks.setdefault(source, asyncio.Lock())
            async with lock:
                if source not in self._live:
                    await self._restore(source)
            self._locks.pop(source, None)
        live = self._live[source]
        live.users += 1
        self._live.move_to_end(source)
        return live

    async def _restore(self, source: str) -> None:
        self.base_of(source)
        saved = self._store.find(source)
        restore = self._store.restorable(saved, with_optimizer=False)
        prepared = await self._engine.prepare(saved.spec, saved.seed, restore)
        try:
            await self._make_room()
            client = await prepared.client.sampling_client()
        except BaseException:  # no one else knows of it
            await self._engine.release(prepared)
            raise
        self._live[source] = _Live(client=client, prepared=prepared)

    async def add(self, source: str, client: SamplingClient, owner: str) -> None:
        """Take a snapshot of a model trained here; it goes when its owner is unloaded."""
        await self.drop(source)
        await self._make_room()
        self._live[source] = _Live(client=client, owner=owner)

    async def _make_room(self) -> None:
        idle = [name for name, live in self._live.items() if not live.users]
        for name in idle[: max(0, len(self._live) + 1 - self._most)]:
            await self.drop(name)

    async def drop(self, source: str) -> None:
        """Forget a snapshot; who uses it now may finish."""
        live = self._live.pop(source, None)
        if live is not None:
            live.over = True
            await self._close(live)

    async def drop_owner(self, owner: str) -> None:
        """Forget the snapshots of an unloaded model: all of them, also where one can't be closed, which is raised then."""
        failed: BaseException | None = None
        for source in [name for name, live in self._live.items() if live.owner == owner]:
            try:
                await self.drop(source)
            except PLUGIN_FAILURES as exc:
                failed = failed or exc
        if failed is not None:
            raise failed

    async def close(self) -> None:
        """Forget all."""
        for source in list(self._live):
            await self.drop(source)

    async def _close(self, live: _Live) -> None:
        if live.users:
            return
        await live.client.close()
        if live.prepared is not None:
            prepared, live.prepared = live.prepared, None
            await self._engine.release(prepared)
