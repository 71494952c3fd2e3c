"""Sampling calls that a run makes together, and the word that tells a server of ours which those are.

In process, calls that come together are computed as one batch, on which their last bits depend. The protocol sends each by itself, and a
server can't know what belongs together. One of ours is told before: by the digests of the calls, in their order.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import secrets
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import attrs

from evsys.errors import BackendError
from evsys_backend_tinker.http_json import UnreachableError, told
from evsys_backend_tinker.sdk import GONE, GoneError

if TYPE_CHECKING:
    from evsys.types import SamplingParams
    from evsys_backend_tinker.http_json import Answer
    from evsys_backend_tinker.waiting import Waiting

__all__ = ["Asked", "key_of", "name_batch"]

PATH = "/api/v1/evsys/sample_batches"

_SECONDS = 10.0
_LONGEST_PAUSE = 10.0  # seconds between two tries
_PASSING = (408, 429)


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


async def name_batch(waiting: Waiting, sampler_id: str, keys: Sequence[str]) -> None:
    """Tell the server which calls it is to compute together. What is sent twice is told once, by its id.

    Raises:
        BackendError: the server refuses it, or doesn't answer any more.
    """
    body = {"id": secrets.token_hex(16), "sampling_session_id": sampler_id, "requests": list(keys)}
    pause = 0.5
    while not await waiting.in_thread(lambda: _told(waiting, body), "sample"):
        await waiting.clock.sleep(pause)
        await waiting.look()
        pause = min(2 * pause, _LONGEST_PAUSE)


def _told(waiting: Waiting, body: dict[str, Any]) -> bool:
    """Tell it once; False where that may be done again. Blocks."""
    try:
        answer = waiting.api.post(PATH, body, seconds=_SECONDS)
    except UnreachableError:
        return False
    if answer.ok:
        return True
    if answer.status in _PASSING or answer.status >= 500:
        return False
    raise _refusal(answer)


def _refusal(answer: Answer) -> GoneError | BackendError:
    wrong = told(answer.json())
    if answer.status in GONE and wrong is not None:
        return GoneError(wrong, answer.status)
    return BackendError(
        f"the server takes no batches of sample calls ({answer.reason})",
        hint="a run is deterministic over the wire with a server of this version of evsys",
    )
