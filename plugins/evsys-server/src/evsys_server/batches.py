"""Sample requests that a client wants computed together.

The last bits of a sample may depend on what is computed beside it, and requests come one by one, in any order. So a client that wants the
bits of a run in process says beforehand which requests make up a batch. They wait until all of them are there, and go to the
backend at once, in the order that the client named.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Sequence
from functools import cached_property

import attrs

from evsys.types import SampleResult, SamplingParams
from evsys_server.errors import RefusedError
from evsys_server.samplers import Samplers
from evsys_server.sessions import SamplingSession

__all__ = ["Batches", "Drawing"]


@attrs.frozen(kw_only=True, eq=False)
class Drawing:
    """What is to be drawn of one prompt."""

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
    id: str
    sampling: SamplingSession
    keys: tuple[str, ...]
    drawings: dict[int, Drawing] = attrs.field(factory=dict)
    results: asyncio.Future[Sequence[SampleResult | BaseException]]
    alarm: asyncio.TimerHandle | None = None

    @property
    def missing(self) -> int:
        """Requests that haven't come yet."""
        return len(self.keys) - len(self.drawings)

    def place_of(self, key: str) -> int | None:
        """The first place that waits for a request of this key."""
        return next(
            (place for place, own in enumerate(self.keys) if own == key and place not in self.drawings), None
        )


class Batches:
    """Batches that were named and aren't complete.

    Args:
        samplers: what is sampled from.
        most: requests that are waited for, of all batches together.
        patience: seconds that a batch waits for the last of its requests.
    """

    def __init__(self, samplers: Samplers, *, most: int, patience: float) -> None:
        self._samplers = samplers
        self._most = most
        self._patience = patience
        self._open: dict[str, _Batch] = {}

    def name(self, id: str, sampling: SamplingSession, keys: Sequence[str]) -> None:
        """Take note of a batch, once, however often the client says it.

        Raises:
            RefusedError: it has more requests than are waited for, or must wait until others are complete.
        """
        if id in self._open:
            return
        if not 0 < len(keys) <= self._most:
            raise RefusedError(400, f"requests: from 1 to {self._most} make up a batch, got {len(keys)}")
        missing = sum(batch.missing for batch in self._open.values())
        if missing + len(keys) > self._most:
            raise RefusedError(
                429, f"batches wait for {missing} requests; no batch of {len(keys)} before", retry_after=1
            )
        loop = asyncio.get_running_loop()
        batch = self._open[id] = _Batch(
            id=id, sampling=sampling, keys=tuple(keys), results=loop.create_future()
        )
        batch.alarm = loop.call_later(self._patience, self._give_up, batch)

    def wants(self, sampling: SamplingSession, drawing: Drawing) -> bool:
        """True where a batch waits for such a request."""
        return self._waiting_for(sampling, drawing) is not None

    async def draw(self, sampling: SamplingSession, drawing: Drawing) -> SampleResult:
        """The samples of a request: with its batch, or alone where none waits for it."""
        found = self._waiting_for(sampling, drawing)
        if found is None:
            async with self._samplers.lend(sampling.source) as client:
                return await client.sample(drawing.prompt, drawing.params, drawing.n)
        batch, place = found
        batch.drawings[place] = drawing
        if not batch.missing:
            self._close(batch)
            await self._compute(batch)
        result = (await asyncio.shield(batch.results))[place]
        if isinstance(result, BaseException):
            raise result
        return result

    def _waiting_for(self, sampling: SamplingSession, drawing: Drawing) -> tuple[_Batch, int] | None:
        """The batch that a request belongs to, and its place there. The latest one: who named an earlier one and comes again has given that up."""
        if not self._open:  # as it is where nobody names batches
            return None
        key = drawing.key
        for batch in reversed(self._open.values()):
            if batch.sampling.id == sampling.id and (place := batch.place_of(key)) is not None:
                return batch, place
        return None

    async def _compute(self, batch: _Batch) -> None:
        """Draw all of a complete batch; its calls are made in one turn of the event loop, so the backend has them together."""
        try:
            async with self._samplers.lend(batch.sampling.source) as client:
                drawings = [batch.drawings[place] for place in range(len(batch.keys))]
                found = await asyncio.gather(
                    *(client.sample(one.prompt, one.params, one.n) for one in drawings),
                    return_exceptions=True,
                )
        except Exception as error:
            found = [error] * len(batch.keys)
        except BaseException:
            batch.results.cancel()
            raise
        batch.results.set_result(found)

    def _give_up(self, batch: _Batch) -> None:
        error = RefusedError(
            408, f"{batch.missing} of the {len(batch.keys)} requests of this batch never came"
        )
        self._close(batch)
        batch.results.set_result([error] * len(batch.keys))

    def _close(self, batch: _Batch) -> None:
        del self._open[batch.id]
        if batch.alarm is not None:
            batch.alarm.cancel()

    def end_session(self, session_id: str) -> None:
        """Wait no longer for the requests of a session that is over."""
        for batch in [one for one in self._open.values() if one.sampling.session_id == session_id]:
            self._close(batch)
            batch.results.cancel()
