"""One JSON request to a service: rate-limited, retried if that may help, ended by a deadline, its failures
reported.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import io
import json
import random
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from email.utils import parsedate_to_datetime
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit, urlunsplit

import attrs

from evsys.errors import BackendError
from evsys_runtime import proxy_of
from evsys_runtime.accounting.breaker import Breaker
from evsys_runtime.accounting.clock import Clock, SystemClock
from evsys_runtime.accounting.limiter import Limiter, Slot

if TYPE_CHECKING:
    import aiohttp

__all__ = ["Service", "public_address"]

CONNECT_SECONDS = 30.0
FIRST_WAIT_SECONDS = 0.5
LONGEST_WAIT_SECONDS = 60.0
EXCERPT = 400

LEAST_BODY_BYTES = 4 * 1024 * 1024
BODY_BYTES_PER_TOKEN = 2048
"""Bound of an answer's body: with logprobs and alternatives a token takes some hundred bytes."""

_AGAIN = frozenset({408, 409, 429})
_BUSY = frozenset({409, 429})
_NEVER_AGAIN = frozenset({"insufficient_quota", "billing_hard_limit_reached"})
"""Codes of refusals that waiting doesn't lift, though their status is that of a busy service."""
_OF_THIS_REQUEST = frozenset({400, 413, 422})
"""Refusals that say nothing of the next request."""


@attrs.frozen(kw_only=True)
class _Fault:
    """Why an attempt failed: `again` where another may succeed, after `wait` seconds if the service says so."""

    message: str
    again: bool
    wait: float | None = None
    status: int | None = None
    cause: Exception | None = None

    @property
    def busy(self) -> bool:
        """True if the service is asked too often."""
        return self.again and self.status in _BUSY

    @property
    def down(self) -> bool:
        """True if the service is down, or fails itself."""
        return self.again and not self.busy

    @property
    def refuses_all(self) -> bool:
        """True for a refusal that any request would meet, such as of the key."""
        return not self.again and self.status not in _OF_THIS_REQUEST


@attrs.define(kw_only=True)
class _Course:
    """How a call goes: the faults of its attempts so far, and since when the service is being asked, if it is."""

    faults: list[_Fault] = attrs.field(factory=list)
    began: float | None = None


class Service:
    """A place that takes JSON requests.

    Args:
        name: who calls, for messages.
        url: where requests go.
        key: sent as a bearer token; it appears in no message.
        limiter: what bounds the calls.
        breaker: keeps calls from an unreachable service.
        max_retries: attempts after the first.
        timeout_seconds: longest time of a call, with all its attempts and waits.
    """

    def __init__(
        self,
        *,
        name: str,
        url: str,
        key: str | None,
        limiter: Limiter,
        breaker: Breaker,
        max_retries: int,
        timeout_seconds: float,
    ) -> None:
        self.clock: Clock = SystemClock()
        self.random = random.Random()
        self._name = name
        self._url = url
        self._key = key
        self._limiter = limiter
        self._breaker = breaker
        self._max_retries = max_retries
        self._timeout_seconds = timeout_seconds
        self._sessions: dict[asyncio.AbstractEventLoop, _Shared] = {}

    async def post(self, body: Mapping[str, Any], *, tokens: int) -> tuple[Mapping[str, Any], Slot]:
        """The JSON object that the service answers, and the slot of the limiter, to say what was really used.

        Args:
            body: the request.
            tokens: how many it may use.

        Raises:
            BackendError: no attempt succeeded. Its cause is an `OSError` where a later call may.
            ServiceDownError: the service is down and wasn't asked.
        """
        self._breaker.check()
        raw = json.dumps(body, allow_nan=False).encode()
        course = _Course()
        try:
            async with asyncio.timeout(self._timeout_seconds) as deadline, self._session() as session:
                return await self._attempts(session, raw, tokens, course)
        except asyncio.CancelledError:
            # The deadline of whoever called: a service that is silent for so long must not cost every call that long.
            self._count_silence("no answer until the caller gave up", raw, course)
            raise
        except TimeoutError as exc:
            if not deadline.expired():
                raise
            message = f"no answer within {self._timeout_seconds:g} seconds"
            self._count_silence(message, raw, course)
            faults = course.faults
            if faults:
                message += f"; attempt {len(faults)}: {faults[-1].message}"
            raise self._error(message, len(faults) + 1) from exc

    async def _attempts(
        self, session: aiohttp.ClientSession, raw: bytes, tokens: int, course: _Course
    ) -> tuple[Mapping[str, Any], Slot]:
        until = self.clock.now() + self._timeout_seconds
        while True:
            async with self._limiter.slot(tokens) as slot:
                with self._breaker.attempt():
                    course.began = self._breaker.clock.now()
                    found = await self._attempt(
                        session, raw, LEAST_BODY_BYTES + BODY_BYTES_PER_TOKEN * tokens
                    )
                    self._count(found, raw, course.began)
                    course.began = None
            if not isinstance(found, _Fault):
                return found, slot
            course.faults.append(found)
            made = len(course.faults)
            wait = self._wait(found, made)
            if not found.again or made > self._max_retries or self.clock.now() + wait > until:
                if found.busy:  # through all retries
                    self._breaker.failed(found.message, partial(self._probe, raw))
                raise self._service_error(found, made)
            await self.clock.sleep(wait)

    def _count(self, found: Mapping[str, Any] | _Fault, raw: bytes, began: float) -> None:
        """Report to the breaker how an attempt went. A busy service counts if it is so through all retries."""
        if not isinstance(found, _Fault):
            self._breaker.succeeded()
        elif found.down:
            self._breaker.failed(found.message, partial(self._probe, raw), began=began)
        elif found.refuses_all:
            self._breaker.refused(found.message, partial(self._probe, raw))
        elif not found.busy:
            self._breaker.succeeded()

    def _count_silence(self, reason: str, raw: bytes, course: _Course) -> None:
        if course.began is not None:  # a call that only waited for its turn says nothing of the service
            self._breaker.failed(reason, partial(self._probe, raw), began=course.began)

    async def _probe(self, raw: bytes) -> str | None:
        """Repeat a request. Returns why there is still no answer, or None if there is one."""
        async with self._session() as session:
            found = await self._attempt(session, raw, LEAST_BODY_BYTES)
        refused = isinstance(found, _Fault) and (found.again or found.refuses_all)
        return found.message if isinstance(found, _Fault) and refused else None

    def _service_error(self, fault: _Fault, attempts: int) -> BackendError:
        message = fault.message
        if fault.wait is not None and fault.again and attempts <= self._max_retries:
            message += f"; it asks to wait {fault.wait:g} seconds, longer than this call may take"
        error = self._error(message, attempts, fault.status)
        error.__cause__ = fault.cause or (ConnectionError(f"HTTP {fault.status}") if fault.again else None)
        return error

    def _wait(self, fault: _Fault, attempts: int) -> float:
        """The wait that the service asks for, else half of a time that doubles and a random part of the other half,
        so that callers don't come back at once, and a call with six retries lasts until the breaker knows that the
        service is down.
        """
        if fault.wait is not None:
            return fault.wait + self.random.uniform(0.0, FIRST_WAIT_SECONDS)
        longest = min(LONGEST_WAIT_SECONDS, FIRST_WAIT_SECONDS * 2**attempts)
        return self.random.uniform(longest / 2, longest)

    async def _attempt(
        self, session: aiohttp.ClientSession, raw: bytes, most: int
    ) -> Mapping[str, Any] | _Fault:
        import aiohttp

        proxy, credentials = proxy_of(self._url)
        try:
            # A stream, since aiohttp warns of long bodies that are bytes.
            async with session.post(
                self._url,
                data=io.BytesIO(raw),
                allow_redirects=False,
                proxy=proxy,
                proxy_headers=None if credentials is None else {"Authorization": credentials},
            ) as response:
                body = await _bounded(response, most)
                if body is None:
                    message = f"its answer is longer than {most / 2**20:.0f} MiB"
                    return _Fault(message=message, again=False, status=response.status)
                return self._read(response.status, response.headers, body.decode("utf-8", errors="replace"))
        except (aiohttp.ClientError, OSError) as exc:
            detail = str(exc) or "no message"
            return _Fault(
                message=self._clean(f"{type(exc).__name__}: {detail}"), again=True, cause=_as_os(exc)
            )

    def _read(self, status: int, headers: Mapping[str, str], text: str) -> Mapping[str, Any] | _Fault:
        try:
            body = json.loads(text)
        except (ValueError, RecursionError):
            body = None
        told = body.get("error") if isinstance(body, dict) else None
        if status == 200 and isinstance(body, dict) and not told:
            return body
        code = told.get("code") if isinstance(told, dict) else None
        if status == 200 and isinstance(code, int):
            status = code  # some gateways answer 200 and put the failure inside
        again = (status in _AGAIN or status >= 500) and code not in _NEVER_AGAIN
        what = (
            "it answered 200, and no JSON object" if status == 200 and not told else f"it answered {status}"
        )
        return _Fault(
            message=f"{what}: {self._excerpt(text)}",
            again=again,
            wait=_retry_after(headers.get("Retry-After")) if again else None,
            status=status,
        )

    def _excerpt(self, text: str) -> str:
        text = self._clean(" ".join(text.split())) or "an empty body"
        return text if len(text) <= EXCERPT else text[:EXCERPT] + "..."

    def _clean(self, text: str) -> str:
        return text.replace(self._key, "[key]") if self._key else text

    def _error(self, message: str, attempts: int, status: int | None = None) -> BackendError:
        tries = "" if attempts == 1 else f" (after {attempts} attempts)"
        return BackendError(
            f"{self._name}: POST {public_address(self._url)}{tries}: {message}",
            hint=_HINTS.get(status or 0),
            plugin=self._name,
            status=status,
            attempts=attempts,
        )

    @asynccontextmanager
    async def _session(self) -> AsyncIterator[aiohttp.ClientSession]:
        """The connections of this event loop, shared by the calls under way and closed after the last of them."""
        loop = asyncio.get_running_loop()
        shared = self._sessions.get(loop)
        if shared is None:
            shared = self._sessions[loop] = _Shared(session=self._new_session())
        shared.users += 1
        try:
            yield shared.session
        finally:
            shared.users -= 1
            if not shared.users:
                del self._sessions[loop]
                await shared.session.close()

    def _new_session(self) -> aiohttp.ClientSession:
        import aiohttp

        headers = {"Content-Type": "application/json"}
        if self._key:
            headers["Authorization"] = f"Bearer {self._key}"
        return aiohttp.ClientSession(
            headers=headers,
            connector=aiohttp.TCPConnector(limit=0),  # the limiter and the engine bound the calls
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS),
            cookie_jar=aiohttp.DummyCookieJar(),
        )


@attrs.define(kw_only=True)
class _Shared:
    session: aiohttp.ClientSession
    users: int = 0


_HINTS = {
    401: "check the key in the environment variable that `api_key_env` names",
    403: "check what the key may do",
    404: "check `base_url`, which ends before /chat/completions, and the model's name",
}


def public_address(url: str) -> str:
    """An address without a name and password in it."""
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment=""))


async def _bounded(response: aiohttp.ClientResponse, most: int) -> bytes | None:
    """The body of a response, or None if it is longer than `most` bytes."""
    parts: list[bytes] = []
    size = 0
    async for part in response.content.iter_any():
        size += len(part)
        if size > most:
            return None
        parts.append(part)
    return b"".join(parts)


def _as_os(exc: Exception) -> OSError:
    """The failure as one of the connection, which may pass; not all of aiohttp's are an `OSError`."""
    if isinstance(exc, OSError):
        return exc
    error = ConnectionError(str(exc))
    error.__cause__ = exc
    return error


def _retry_after(value: str | None) -> float | None:
    """Seconds that a `Retry-After` asks for, a number or a date; None where it is neither."""
    if value is None:
        return None
    try:
        seconds = float(value)
    except ValueError:
        try:
            at = parsedate_to_datetime(value)
        except ValueError:
            return None
        at = at if at.tzinfo else at.replace(tzinfo=dt.UTC)
        seconds = (at - dt.datetime.now(dt.UTC)).total_seconds()
    return max(0.0, seconds) if seconds < float("inf") else None
