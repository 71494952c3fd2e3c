"""Sample requests that a client wants computed together.

The last bits of a sample may depend on what is computed alongside it, and requests come one by one, in any order.
So a client that wants the bits of a run in process says beforehand which requests make up a batch. They wait until
all of them are there, and go to the backend at once, in the order that the client named. A refused one never comes:
once the client says so, the others go without it, as they do in process, where a call that is refused was never
part of a batch.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

import attrs

from evsys.errors import PLUGIN_FAILURES
from evsys.types import SampleResult, SamplingParams
from evsys_server.errors import RefusedError
from evsys_server.samplers import Samplers
from evsys_server.sessions import SamplingSession

if TYPE_CHECKING:
    from evsys.protocols import SamplingClient

__all__ = ["Batches", "Drawing"]


@attrs.frozen(kw_only=True, eq=False)
class Drawing:
    """The samples to draw for one prompt."""

    prompt: Sequence[int]
    params: SamplingParams
    n: int

    @cached_property
    def key(self) -> str:
        """How a client names the request beforehand: requests with the same one may take each other's place in a batch."""
        named = [list(self.prompt), self.n, self.params.max_tokens, self.params.seed]
        return hashlib.sha256(json.dumps(named, separators=(",", ":")).encode()).hexdigest()


@attrs.define(kw_only=True, eq=False)
class _Batch:
    """Requests by their places; `free` are the places of each key that no request has taken, the first one last."""

    id: str
    sampling: SamplingSession
    size: int
    free: dict[str, list[int]]
    drawings: dict[int, Drawing] = attrs.field(factory=dict)
    without: Counter[str] = attrs.field(factory=Counter)
    results: asyncio.Future[Mapping[int, SampleResult | BaseException]]
    alarm: asyncio.TimerHandle | None = None

    @property
    def missing(self) -> int:
        """Requests that haven't come yet."""
        return self.size - self.without.total() - len(self.drawings)

    def take(self, drawing: Drawing) -> int:
        """Put a request waited for in its place."""
        place = self.free[drawing.key].pop()
        self.drawings[place] = drawing
        return place

    def leave_out(self, keys: Iterable[str]) -> None:
        """Wait no longer for these, which are all that won't come so far."""
        for key, count in Counter(keys).items():
            free = self.free.get(key, [])
            more = min(count - self.without[key], len(free))
            if more > 0:
                del free[:more]
                self.without[key] += more


class Batches:
    """Named batches that aren't complete.

    Args:
        samplers: what is sampled from.
        most: requests that are waited for, of all batches together. A client may have to have so many under way at
            once.
        patience: seconds that a batch waits for the next of its requests.
    """

    def __init__(self, samplers: Samplers, *, most: int, patience: float) -> None:
        self.most = most
        self._samplers = samplers
        self._patience = patience
        self._open: dict[str, _Batch] = {}
        self._computing: dict[asyncio.Task[None], _Batch] = {}

    def name(self, id: str, sampling: SamplingSession, keys: Sequence[str]) -> None:
        """Take note of a batch, once, however often the client says it.

        Raises:
            RefusedError: it has more requests than are waited for, or must wait until others are complete.
        """
        if id in self._open:
            return
        if not 0 < len(keys) <= self.most:
            raise RefusedError(
                400, f"requests: a batch is of 1 to {self.most} requests, and this one of {len(keys)}"
            )
        missing = sum(batch.missing for batch in self._open.values())
        if missing + len(keys) > self.most:
            raise RefusedError(
                429, f"batches wait for {missing} requests; no batch of {len(keys)} before", retry_after=1
            )
        loop = asyncio.get_running_loop()
        free: dict[str, list[int]] = {}
        for place in reversed(range(len(keys))):
            free.setdefault(keys[place], []).append(place)
        batch = self._open[id] = _Batch(
            id=id, sampling=sampling, size=len(keys), free=free, results=loop.create_future()
        )
        self._await_next(batch)

    def _await_next(self, batch: _Batch) -> None:
        """Give up a batch of which nothing comes any more; one that is large, or of a slow client, may take longer as a whole."""
        if batch.alarm is not None:
            batch.alarm.cancel()
        batch.alarm = asyncio.get_running_loop().call_later(self._patience, self._give_up, batch)

    def leave_out(self, id: str, keys: Sequence[str]) -> None:
        """Take note of requests of a batch that won't come: all of them so far, however often the client says it.

        A complete or finished batch isn't changed by it.
        """
        batch = self._open.get(id)
        if batch is not None:
            batch.leave_out(keys)
            self._begin_where_complete(batch)

    def wants(self, sampling: SamplingSession, drawing: Drawing) -> bool:
        """True where a batch waits for such a request."""
        return self._waiting_for(sampling, drawing) is not None

    async def draw(self, sampling: SamplingSession, drawing: Drawing) -> SampleResult:
        """The samples of a request: with its batch, or alone where none waits for it."""
        batch = self._waiting_for(sampling, drawing)
        if batch is None:
            async with self._samplers.lend(sampling.source) as client:
                return await client.sample(drawing.prompt, drawing.params, drawing.n)
        place = batch.take(drawing)
        self._await_next(batch)
        self._begin_where_complete(batch)
        result = (await asyncio.shield(batch.results))[place]
        if isinstance(result, BaseException):
            raise result
        return result

    def _waiting_for(self, sampling: SamplingSession, drawing: Drawing) -> _Batch | None:
        """The batch that a request belongs to. The latest one: who named an earlier one and comes again has given that up."""
        if not self._open:  # as it is where no one names batches
            return None
        key = drawing.key
        return next(
            (
                batch
                for batch in reversed(self._open.values())
                if batch.sampling.id == sampling.id and batch.free.get(key)
            ),
            None,
        )

    def _begin_where_complete(self, batch: _Batch) -> None:
        if batch.missing:
            return
        self._close(batch)
        if not batch.drawings:  # none of them came
            return
        task = asyncio.get_running_loop().create_task(self._compute(batch))
        self._computing[task] = batch
        task.add_done_callback(self._computing.pop)

    async def _compute(self, batch: _Batch) -> None:
        """Draw all of a complete batch; its calls are made in one turn of the event loop, so the backend has them together."""
        places = sorted(batch.drawings)
        drawings = [batch.drawings[place] for place in places]
        try:
            async with self._samplers.lend(batch.sampling.source) as client:
                found = await asyncio.gather(
                    *(_draw_samples(client, one) for one in drawings), return_exceptions=True
                )
        except Exception as error:
            found = [error] * len(places)
        except BaseException:
            batch.results.cancel()
            raise
        batch.results.set_result(dict(zip(places, found, strict=True)))

    def _give_up(self, batch: _Batch) -> None:
        error = RefusedError(408, f"{batch.missing} of the {batch.size} requests of this batch never came")
        self._close(batch)
        batch.results.set_result(dict.fromkeys(batch.drawings, error))

    def _close(self, batch: _Batch) -> None:
        del self._open[batch.id]
        if batch.alarm is not None:
            batch.alarm.cancel()

    async def end_session(self, session_id: str) -> None:
        """Wait no longer for the requests of a finished session, and draw none of them."""
        for batch in [one for one in self._open.values() if one.sampling.session_id == session_id]:
            self._close(batch)
            batch.results.cancel()
        tasks = [task for task, one in self._computing.items() if one.sampling.session_id == session_id]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)


async def _draw_samples(client: SamplingClient, one: Drawing) -> SampleResult | BaseException:
    """The samples of one request, or why there are none: a backend that calls `sys.exit()` ends no server."""
    try:
        return await client.sample(one.prompt, one.params, one.n)
    except PLUGIN_FAILURES as error:
        return error
