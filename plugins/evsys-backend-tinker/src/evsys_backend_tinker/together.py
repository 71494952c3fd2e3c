"""Sampling calls that a run makes together, and the announcement of them to a server of ours.

In process, calls that come together are computed as one batch, on which their last bits depend. The protocol sends
each by itself, and a server can't know what belongs together. One of ours gets the digests of the calls beforehand,
in their order. A call that fails is never part of a batch in process, so its failure is reported as well, and the
server doesn't wait for it.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import secrets
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import attrs

from evsys.errors import BackendError
from evsys_backend_tinker.http_json import UnreachableError, error_in_body
from evsys_backend_tinker.sdk import GONE, GoneError

if TYPE_CHECKING:
    from evsys.types import SamplingParams
    from evsys_backend_tinker.http_json import Answer
    from evsys_backend_tinker.waiting import Waiting

__all__ = ["Asked", "NamedBatch", "key_of"]

PATH = "/api/v1/evsys/sample_batches"

_SECONDS = 10.0
_LONGEST_PAUSE = 10.0  # seconds between two tries
_PASSING = (408, 429)
_CONTENT = (400, 413, 422)  # what is in the request, such as too many calls


@attrs.frozen(kw_only=True, eq=False)
class Asked:
    """A sampling call.

    Attributes:
        make: calls the client's sampling client.
        tokens: how many it may take.
        key: its digest.
        outcome: what it ends with.
    """

    make: Callable[[Any], Any]
    tokens: int
    key: str
    outcome: asyncio.Future[Any]


def key_of(prompt: Sequence[int], params: SamplingParams, n: int) -> str:
    """The digest by which the server knows a call when it comes."""
    seed = None if params.seed is None else params.seed % 2**63  # as the server has it
    named = [list(prompt), n, params.max_tokens, seed]
    return hashlib.sha256(json.dumps(named, separators=(",", ":")).encode()).hexdigest()


@attrs.frozen(kw_only=True, eq=False)
class NamedBatch:
    """The announcement to the server of calls to compute together. Repeats count once, by the batch's id.

    Args:
        waiting: waits for the server.
        sampler_id: of the sampled model.
        keys: the digests of the calls, in their order.
    """

    waiting: Waiting
    sampler_id: str
    keys: Sequence[str]
    _id: str = attrs.field(factory=lambda: secrets.token_hex(16))

    async def name(self) -> None:
        """Say which calls they are, before they are made.

        Raises:
            BackendError: the server refuses it, or doesn't answer any more.
            GoneError: the server has lost what is sampled from.
        """
        await self._say({"requests": list(self.keys)})

    async def leave_out(self, keys: Sequence[str]) -> None:
        """Say which of them won't come, all of them so far: the others are computed without them.

        Raises:
            BackendError: the server refuses it, or doesn't answer any more.
            GoneError: the server has lost what is sampled from.
        """
        await self._say({"without": list(keys)})

    async def _say(self, what: Mapping[str, Any]) -> None:
        body = {"id": self._id, "sampling_session_id": self.sampler_id, **what}
        clock, pause = self.waiting.clock, 0.5
        until = clock.now() + self.waiting.deadlines.sample
        while not await self.waiting.in_thread(lambda: self._send_body(body), "sample"):
            if clock.now() >= until:
                raise self.waiting.too_long("sample")
            await clock.sleep(pause)
            await self.waiting.look()
            pause = min(2 * pause, _LONGEST_PAUSE)

    def _send_body(self, body: Mapping[str, Any]) -> bool:
        """Say it once; False where that may be done again. Blocks."""
        try:
            answer = self.waiting.api.post(PATH, body, seconds=_SECONDS)
        except UnreachableError:
            return False
        if answer.ok:
            return True
        if answer.status in _PASSING or answer.status >= 500:
            return False
        raise self._refusal(answer)

    def _refusal(self, answer: Answer) -> GoneError | BackendError:
        wrong = error_in_body(answer.json())
        if answer.status in GONE and wrong is not None:
            return GoneError(wrong, answer.status)
        if answer.status in _CONTENT:
            return BackendError(
                f"the server refused {len(self.keys)} sample calls that are made together ({answer.reason})",
                hint="let fewer rollouts run at once: lower n_concurrent of algorithm.params and of the benchmarks, "
                "or set deterministic: false",
            )
        return BackendError(
            f"the server takes no batches of sample calls ({answer.reason})",
            hint="a run is deterministic over the wire with a server of this version of evsys",
        )
