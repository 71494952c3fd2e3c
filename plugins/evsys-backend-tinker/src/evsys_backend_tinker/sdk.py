"""The one door to the official client: its import, its sessions, its errors, and what its calls return.

The client's calls differ between versions: some block, some return a future of one kind or another, some the thing itself.
One rule covers all of them: a result that has `.result` is resolved, anything else is the result.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping
from concurrent.futures import Future
from typing import Any, Literal, Protocol, runtime_checkable

import attrs

from evsys_backend_tinker.http_json import JsonApi, UnreachableError, error_in_body

__all__ = [
    "AbandonedError",
    "Ended",
    "GoneError",
    "Session",
    "as_cause",
    "as_future",
    "error_line",
    "is_lost",
    "is_rejected",
    "resolve",
    "sampler_id",
    "status_of",
    "tinker",
]

Ended = Literal["success", "errored", "interrupted"]
"""How a session ended, in the server's words."""

GONE = (404, 410)


@runtime_checkable
class APIFuture(Protocol):
    """What a call of the client returns, by its own name for it; the client isn't imported for the check."""

    def future(self) -> Future[Any]:
        """The future of a thread that brings the result."""


def tinker() -> Any:
    """The client's package; importing it takes a third of a second, and seconds where torch is installed."""
    import tinker as package

    return package


def resolve(outcome: Any) -> Any:
    """The final result of a call of the client. Blocks, so never in an event loop."""
    return outcome.result() if hasattr(outcome, "result") else outcome


def as_future(outcome: Any) -> asyncio.Future[Any]:
    """The result of a call of the client, as a future of the running loop; cancelling it cancels the call."""
    if isinstance(outcome, APIFuture):
        return asyncio.wrap_future(outcome.future())
    if isinstance(outcome, Future):
        return asyncio.wrap_future(outcome)
    done = asyncio.get_running_loop().create_future()
    done.set_result(outcome)
    return done


def sampler_id(inner: Any) -> str:
    """The server's name of what a sampling client samples from."""
    return str(inner._sampling_session_id)  # noqa: SLF001 - no version has a public name for it


class GoneError(Exception):
    """The server has lost what a call is on, as we know without the client."""

    def __init__(self, message: str, status_code: int = 410) -> None:
        super().__init__(message)
        self.status_code = status_code


class AbandonedError(Exception):
    """An unwanted session."""


@attrs.define(kw_only=True, eq=False)
class Session:
    """One session on a server. All methods block; they are called in threads of their own.

    Args:
        base_url: the server's address.
        key: the key; None leaves it to the client, which asks its environment and its credentials.
        metadata: shown with the session by the server.
        telemetry: let the client report its use.
    """

    base_url: str
    key: str | None = attrs.field(default=None, repr=False)
    metadata: Mapping[str, str] = attrs.field(factory=dict)
    telemetry: bool = False
    _service: Any = None
    _session_id: str | None = None
    _over: bool = False
    _lock: threading.Lock = attrs.field(factory=threading.Lock)

    def open(self) -> None:
        """Connect: fetches the server's configuration and makes the session.

        Raises:
            AbandonedError: the session was closed before it was open; it is closed on the server as well.
        """
        service = tinker().ServiceClient(
            user_metadata=dict(self.metadata) or None, base_url=self.base_url, api_key=self.key
        )
        holder = service.holder
        if not self.telemetry:
            _silence(holder)
        with self._lock:
            self._service, self._session_id = service, holder.get_session_id()
            over = self._over
        if over:  # whoever wanted it has given up meanwhile, and no one would end it
            self.close("interrupted", "given up while it was opened", seconds=10.0)
            raise AbandonedError("the session was given up while it was opened")

    @property
    def id(self) -> str | None:
        """The server's name of the session."""
        return self._session_id

    def create_model(
        self, base_model: str, *, rank: int, seed: int, flags: Mapping[str, bool], metadata: Mapping[str, str]
    ) -> Any:
        """A training client of new weights."""
        return resolve(
            self._service.create_lora_training_client(
                base_model, rank=rank, seed=seed, user_metadata=dict(metadata) or None, **flags
            )
        )

    def from_state(self, path: str, *, with_optimizer: bool) -> Any:
        """A training client that continues from a state."""
        name = "create_training_client_from_state" + ("_with_optimizer" if with_optimizer else "")
        return resolve(getattr(self._service, name)(path))

    def close(self, how: Ended, detail: str | None, *, seconds: float, tell: bool = True) -> None:
        """Report to the server that the session is over, and how, unless it is known to be down; then release the
        connections.

        Raises:
            UnreachableError: the server couldn't be reached.
        """
        with self._lock:
            service, self._service = self._service, None
            self._over = True
        if service is None:
            return
        if not tell:
            service.holder.close()
            _close_connections(service.holder, seconds)
            return
        if hasattr(service, "close"):
            resolve(service.close(how, detail))
            return
        try:
            path = f"/api/v1/sessions/{self._session_id}/finish"
            answer = JsonApi(base_url=self.base_url, key=self.key).post(
                path, {"reason": {"type": how}, "detail": detail}, seconds=seconds
            )
            if not answer.ok and answer.status not in GONE:
                raise UnreachableError(f"it answers {answer.reason}")
        finally:
            service.holder.close()
            _close_connections(service.holder, seconds)


def _silence(holder: Any) -> None:
    """End the telemetry of one session; others of the process keep theirs.

    The client only knows an environment variable for it, which would be the whole process's. Its reporter is an object of the
    session: it is stopped before its first report, which it sends after ten seconds, and forgotten, so that nothing is queued.
    """
    reporter = holder.get_telemetry()
    if reporter is not None:
        reporter.stop()
        holder._telemetry = None  # noqa: SLF001 - there is no public way to turn one session's off


def _close_connections(holder: Any, seconds: float) -> None:
    """Close what the older clients leave to the garbage collector."""
    clients = [
        client
        for pool in getattr(holder, "_client_pools", {}).values()
        for client in getattr(pool, "_clients", ())
    ]

    async def close() -> None:
        for client in clients:
            await client.close()

    holder.run_coroutine_threadsafe(close()).result(seconds)


# --- errors -------------------------------------------------------------------------------------------------------


def status_of(error: BaseException) -> int | None:
    """The HTTP status behind an error, also where the client has wrapped it."""
    seen: set[int] = set()
    cause: BaseException | None = error
    while cause is not None and id(cause) not in seen:
        status = getattr(cause, "status_code", None)
        if isinstance(status, int):
            return status
        seen.add(id(cause))
        cause = cause.__cause__ or cause.__context__
    return None


def is_lost(error: BaseException) -> bool:
    """True where the server doesn't know the model or the session any more, or the client refuses all further calls.

    What was trained since the last state is gone then, and nothing but making the model again helps.
    """
    if status_of(error) in GONE:
        return True
    if isinstance(error, RuntimeError) and ("poisoned" in str(error) or "is closed" in str(error)):
        return True
    return type(error).__name__ == "RetryableException"


def is_rejected(error: BaseException) -> bool:
    """True where the server refused a call for what is in it."""
    if status_of(error) in {400, 413, 422}:
        return True
    category = getattr(error, "category", None)
    return getattr(category, "name", "").lower() == "user"


def as_cause(error: Exception) -> Exception:
    """An error of the client as the cause of ours. Its traceback inside the client is dropped, since it doesn't
    help a user.
    """
    cause: BaseException | None = error
    while cause is not None:
        cause.__traceback__, cause = None, cause.__cause__
    return error


def error_line(error: BaseException) -> str:
    """The message of an error, in one line, without the client's own names for things."""
    wrong = error_in_body(getattr(error, "body", None))
    if wrong is not None:
        return wrong
    text = " ".join(str(error).split())
    text = text.removeprefix("Request failed: ").partition(" for self.request_id=")[0]
    return text or type(error).__name__
