"""Promises and their outcomes: clients get an id at once and fetch the answer by it."""

from __future__ import annotations

import asyncio
import json
from collections import OrderedDict
from collections.abc import Awaitable
from typing import TYPE_CHECKING, Any

import attrs

from evsys.errors import PLUGIN_FAILURES, BackendError
from evsys_runtime.cancelling import own_task_cancelled
from evsys_server.errors import Category, category_of, message_of, reason_of

if TYPE_CHECKING:
    from evsys.protocols import Log

__all__ = ["JSON", "PROTOBUF", "Answer", "Promise", "Promises", "failure", "json_answer", "proto_answer"]

_TOLD = "_evsys_server_told"
JSON = "application/json"
PROTOBUF = "application/x-protobuf"


@attrs.frozen
class Answer:
    """A body as it is sent."""

    body: bytes
    content_type: str = JSON
    failed: bool = False


def json_answer(document: dict[str, Any]) -> Answer:
    """A JSON document."""
    return Answer(json.dumps(document, allow_nan=False).encode())


def proto_answer(message: bytes) -> Answer:
    """A binary message."""
    return Answer(message, PROTOBUF)


def failure(message: str, category: Category) -> Answer:
    """The failure of a promise."""
    return attrs.evolve(json_answer({"error": message, "category": category}), failed=True)


@attrs.define(eq=False)
class Promise:
    """One request on its way. `more` are further fields of the reply that names it; `log` gets the server's own
    failures, in full.
    """

    id: str
    session_id: str
    more: dict[str, Any] = attrs.field(factory=dict)
    answer: Answer | None = None
    log: Log | None = None
    _waiting: asyncio.Future[None] | None = None

    def reply(self) -> Answer:
        """The immediate reply to the client, each time that it sends the request."""
        return json_answer({"request_id": self.id, **self.more})

    def settle(self, answer: Answer) -> None:
        """End it; only the first end counts."""
        if self.answer is None:
            self.answer = answer
            if self._waiting is not None and not self._waiting.done():
                self._waiting.set_result(None)

    async def fulfil(self, work: Awaitable[Answer]) -> None:
        """Wait for the work and end as it ends. Only a cancellation asked for passes: no one would settle it otherwise."""
        try:
            self.settle(await work)
        except PLUGIN_FAILURES as exc:  # what a backend raises is the client's answer
            self._fail(exc, category_of(exc))
        except asyncio.CancelledError as exc:
            if own_task_cancelled():
                raise
            error = BackendError("the backend cancelled its own work unexpectedly")
            error.__cause__ = exc
            self._fail(error, "server")

    def _fail(self, error: BaseException, category: Category) -> None:
        # Requests computed together fail with one error, which is one thing to tell.
        if category == "server" and self.log is not None and not vars(error).get(_TOLD):
            vars(error)[_TOLD] = True
            self.log.error("request.failed", request=self.id, reason=reason_of(error), exc_info=error)
        self.settle(failure(message_of(error), category))

    async def wait(self, seconds: float) -> Answer | None:
        """The answer, or None if there is none in time."""
        if self.answer is None:
            if self._waiting is None:
                self._waiting = asyncio.get_running_loop().create_future()
            await asyncio.wait((self._waiting,), timeout=seconds)
        return self.answer


class Promises:
    """Promises by id. Those whose answer was fetched are kept a while: a reply may be lost, and is fetched again.

    Args:
        keep: most fetched answers kept.
        keep_bytes: most bytes of fetched answers kept.
        log: of the server's own failures.
    """

    def __init__(self, *, keep: int = 4096, keep_bytes: int = 256 << 20, log: Log | None = None) -> None:
        self._promises: dict[str, Promise] = {}
        self._fetched: OrderedDict[str, int] = OrderedDict()
        self._fetched_bytes = 0
        self._keep = keep
        self._keep_bytes = keep_bytes
        self._log = log

    @property
    def outstanding(self) -> int:
        """Promises whose answer no one has fetched yet."""
        return len(self._promises) - len(self._fetched)

    def find(self, id: str) -> Promise | None:
        """The promise of this id, None where there is none any more."""
        return self._promises.get(id)

    def open(self, id: str, session_id: str, **more: Any) -> Promise:
        """Promise something."""
        promise = self._promises[id] = Promise(id, session_id, more, log=self._log)
        return promise

    def fetched(self, promise: Promise) -> None:
        """Note that the answer goes out; the oldest of these are forgotten."""
        if promise.id not in self._promises or promise.answer is None:
            return
        if promise.id not in self._fetched:
            size = len(promise.answer.body)
            self._fetched[promise.id] = size
            self._fetched_bytes += size
        while len(self._fetched) > self._keep or (
            self._fetched_bytes > self._keep_bytes and len(self._fetched) > 1
        ):
            oldest = next(iter(self._fetched))
            self._forget(oldest)

    def end_session(self, session_id: str, why: str) -> None:
        """End what a session still waits for. Its answers are kept a while, fetched or not, and no longer count."""
        for promise in [p for p in self._promises.values() if p.session_id == session_id]:
            promise.settle(failure(why, "user"))
            self.fetched(promise)

    def _forget(self, id: str) -> None:
        self._promises.pop(id, None)
        self._fetched_bytes -= self._fetched.pop(id, 0)
