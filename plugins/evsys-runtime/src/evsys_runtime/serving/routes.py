"""The routes of the protocol of completions, for a server of their own or for an application that has others too."""

from __future__ import annotations

import asyncio
import inspect
import json
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import attrs

from evsys.errors import EvsysError
from evsys_runtime.serving.answers import answer, chunks
from evsys_runtime.serving.bodies import BodyError, read_bytes
from evsys_runtime.serving.completing import Exchange, complete
from evsys_runtime.serving.errors import ApiError, body_of
from evsys_runtime.serving.gate import Gate
from evsys_runtime.serving.keys import KeyCheck
from evsys_runtime.serving.models import Catalogue, ServedModel
from evsys_runtime.serving.off_loop import off_loop
from evsys_runtime.serving.requests import read_body, read_request, read_text_request
from evsys_runtime.serving.texts import complete_texts

if TYPE_CHECKING:
    from aiohttp import web

    from evsys.protocols import Log

__all__ = ["Bounds", "Record", "Words", "chat_routes"]

type Record = Callable[[Exchange], Awaitable[None] | None]
"""Called with each exchange before its answer is sent, so that every received answer is on record."""

type Words = Callable[[Exception], str]
"""The message to a client about a failure of the server itself; the log has it in full."""

type _Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@attrs.frozen(kw_only=True)
class Bounds:
    """The limits of a server.

    Attributes:
        running: requests sampled at once.
        waiting: requests that wait alongside those; more are sent away with status 429.
        body_bytes: longest body; a longer one is refused with status 413.
        timeout_seconds: longest time of one request, waiting included; then status 504.
    """

    running: int = 64
    waiting: int = 1024
    body_bytes: int = 16 * 1024 * 1024
    timeout_seconds: float = 600.0


def chat_routes(
    catalogue: Catalogue,
    *,
    prefix: str = "/v1",
    key: str | KeyCheck | None = None,
    record: Record | None = None,
    bounds: Bounds | None = None,
    log: Log | None = None,
    words: Words | None = None,
    texts: bool = False,
) -> web.RouteTableDef:
    """Routes for `POST <prefix>/chat/completions`, `GET <prefix>/models` and `GET <prefix>/models/<name>`.

    Args:
        catalogue: finds the models.
        prefix: where the routes begin. Its variable parts, such as `/rollouts/{rollout}/v1`, are the `scope` that
            the catalogue and the exchanges get.
        key: what clients must send as `Authorization: Bearer <key>`; None asks for none. An application that has
            other routes with the same key passes its `KeyCheck`, so that wrong keys are counted together.
        record: called with each exchange.
        bounds: of the routes together.
        log: of the server's own failures.
        words: the messages to clients about those; None reports them in full.
        texts: `POST <prefix>/completions` as well, for plain texts and token ids; `record` isn't called for these.
    """
    from aiohttp import web

    server = _Chat(
        catalogue,
        keys=key if isinstance(key, KeyCheck) else KeyCheck(key, log=log),
        record=record,
        bounds=bounds or Bounds(),
        log=log,
        words=words or _in_full,
    )
    table = web.RouteTableDef()
    table.post(f"{prefix}/chat/completions")(server.guarded(server.chat))
    if texts:
        table.post(f"{prefix}/completions")(server.guarded(server.texts))
    table.get(f"{prefix}/models")(server.guarded(server.models))
    table.get(f"{prefix}/models/{{model:.+}}")(server.guarded(server.model))
    return table


class _Chat:
    def __init__(
        self,
        catalogue: Catalogue,
        *,
        keys: KeyCheck,
        record: Record | None,
        bounds: Bounds,
        log: Log | None,
        words: Words,
    ) -> None:
        self._catalogue = catalogue
        self._keys = keys
        self._record = record
        self._bounds = bounds
        self._log = log
        self._words = words
        self._gate = Gate(bounds.running, bounds.waiting)

    def guarded(self, handler: _Handler) -> _Handler:
        """The handler behind the key, its failures as answers."""

        async def handle(request: web.Request) -> web.StreamResponse:
            try:
                await self._require_key(request)
                return await handler(request)
            except ApiError as exc:
                return _json(body_of(exc), exc.status, exc.retry_after)
            except Exception as exc:  # of a sampler, a catalogue, a recorder or a renderer
                return self._failure_response(exc)

        return handle

    def _failure_response(self, exc: Exception) -> web.Response:
        if self._log is not None:
            self._log.error("request.failed", reason=_in_full(exc), exc_info=exc)
        return _json(body_of(ApiError(500, self._words(exc), code="internal_error")), 500)

    async def _require_key(self, request: web.Request) -> None:
        scheme, _, given = request.headers.get("Authorization", "").partition(" ")
        if not await self._keys.accepts(request, given.strip() if scheme.lower() == "bearer" else ""):
            raise ApiError(401, "the key is missing or wrong", code="invalid_api_key")

    async def models(self, request: web.Request) -> web.StreamResponse:
        """`GET models`."""
        names = await self._catalogue.names(dict(request.match_info))
        return _json({"object": "list", "data": [_about(name) for name in names]})

    async def model(self, request: web.Request) -> web.StreamResponse:
        """`GET models/NAME`."""
        scope = dict(request.match_info)
        name = scope.pop("model")
        if name not in await self._catalogue.names(scope):
            raise await self._unknown(name, scope)
        return _json(_about(name))

    async def chat(self, request: web.Request) -> web.StreamResponse:
        """`POST chat/completions`."""
        body = await self._body(request)
        wanted = await off_loop(body, lambda: read_request(read_body(body)))
        scope = dict(request.match_info)
        async with self._inside():
            model = await self._find(wanted.model, scope)
            exchange = await complete(
                model,
                wanted,
                size=len(body),
                scope=scope,
                headers={
                    name.lower(): value
                    for name, value in request.headers.items()
                    if name.lower() != "authorization"
                },
                id=f"chatcmpl-{secrets.token_hex(16)}",
            )
            await self._record_exchange(exchange)
        if wanted.stream:
            return await _stream(request, exchange)
        return await off_loop(exchange.answered_tokens, lambda: _json(answer(exchange)))

    async def texts(self, request: web.Request) -> web.StreamResponse:
        """`POST completions`."""
        body = await self._body(request)
        wanted = await off_loop(body, lambda: read_text_request(read_body(body)))
        async with self._inside():
            model = await self._find(wanted.model, dict(request.match_info))
            found = await complete_texts(model, wanted, id=f"cmpl-{secrets.token_hex(16)}")
        told = found["usage"]["total_tokens"] * (1 + (wanted.logprobs or 0))
        return await off_loop(told, lambda: _json(found))

    @asynccontextmanager
    async def _inside(self) -> AsyncIterator[None]:
        """A place among the answered requests, for no longer than a request may take."""
        try:
            async with asyncio.timeout(self._bounds.timeout_seconds) as deadline, self._gate.enter():
                yield
        except TimeoutError as exc:
            if not deadline.expired():
                raise
            message = f"no answer within {self._bounds.timeout_seconds:g} seconds"
            raise ApiError(504, message, code="timeout") from exc

    async def _record_exchange(self, exchange: Exchange) -> None:
        if self._record is not None:
            waiting = self._record(exchange)
            if inspect.isawaitable(waiting):
                await waiting

    async def _find(self, name: str, scope: Mapping[str, str]) -> ServedModel:
        model = await self._catalogue.find(name, scope)
        if model is None:
            raise await self._unknown(name, scope)
        return model

    async def _unknown(self, name: str, scope: Mapping[str, str]) -> ApiError:
        served = ", ".join(await self._catalogue.names(scope)) or "no model"
        return ApiError(
            404, f"there is no model {name!r} here; served: {served}", code="model_not_found", param="model"
        )

    async def _body(self, request: web.Request) -> bytes:
        try:
            return await read_bytes(request, self._bounds.body_bytes)
        except BodyError as exc:
            code = {408: "timeout", 413: "body_too_large"}.get(exc.status, "invalid_json")
            raise ApiError(exc.status, exc.message, code=code) from exc


def _in_full(exc: Exception) -> str:
    return exc.message if isinstance(exc, EvsysError) else f"{type(exc).__name__}: {exc}"


def _about(name: str) -> dict[str, Any]:
    return {"id": name, "object": "model", "created": 0, "owned_by": "evsys"}


def _json(body: Mapping[str, Any], status: int = 200, retry_after: int | None = None) -> web.Response:
    from aiohttp import web

    headers = {} if retry_after is None else {"Retry-After": str(retry_after)}
    return web.Response(
        text=_dumps(body), status=status, headers=headers, content_type="application/json", charset="utf-8"
    )


async def _stream(request: web.Request, exchange: Exchange) -> web.StreamResponse:
    """The exchange as server-sent events, an object each, and a mark at the end."""
    from aiohttp import web

    response = web.StreamResponse(
        headers={"Content-Type": "text/event-stream; charset=utf-8", "Cache-Control": "no-cache"}
    )
    await response.prepare(request)
    for chunk in chunks(exchange):
        await response.write(f"data: {_dumps(chunk)}\n\n".encode())
    await response.write(b"data: [DONE]\n\n")
    await response.write_eof()
    return response


def _dumps(value: Mapping[str, Any]) -> str:
    # A lone surrogate, which a model may well sample, has no UTF-8; escaped it has JSON.
    return json.dumps(value, ensure_ascii=True, allow_nan=False)
