"""From HTTP to the protocol and back: keys, bodies, statuses, and answers in the form that the client reads."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from aiohttp import web

from evsys_runtime.serving.bodies import BodyError, read_bytes
from evsys_runtime.serving.keys import KeyCheck
from evsys_runtime.serving.off_loop import off_loop
from evsys_server import reading
from evsys_server.errors import RefusedError, category_of, message_of, reason_of
from evsys_server.promises import PROTOBUF, Promise
from evsys_server.rendering import rendering_files
from evsys_server.responses import answer_response, document_response
from evsys_server.rest import Rest
from evsys_server.sampling_api import SamplingApi
from evsys_server.service import Service
from evsys_server.training_api import TrainingApi

__all__ = ["Handlers"]

API = "/api/v1"

type _Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
type _Document = Mapping[str, Any]


class Handlers:
    """The routes that clients of the protocol train and sample by.

    Args:
        service: the server's state.
        keys: checks what clients send as `X-API-Key`.
    """

    def __init__(self, service: Service, *, keys: KeyCheck) -> None:
        self.service = service
        self.training = TrainingApi(service)
        self.sampling = SamplingApi(service)
        self._keys = keys

    def routes(self) -> web.RouteTableDef:
        """All of them."""
        table = web.RouteTableDef()
        table.get(f"{API}/healthz")(self._healthz)  # without a key, for whoever watches over the server
        limits = self.service.limits
        for path, make in (
            ("client/config", self._client_config),
            ("client/dynamic_config", lambda _: {}),
            ("create_session", self._create_session),
            ("session_heartbeat", self._heartbeat),
            ("telemetry", lambda _: {"status": "accepted"}),
            ("create_model", self.training.create_model),
            ("get_info", self.training.get_info),
            ("optim_step", self.training.optim_step),
            ("save_weights", self.training.save_weights),
            ("save_weights_for_sampler", self.training.save_weights_for_sampler),
            ("load_weights", self.training.load_weights),
            ("unload_model", self.training.unload_model),
            ("create_sampling_session", self.sampling.create_session),
        ):
            table.post(f"{API}/{path}")(self.guarded(self._json(make, limits.document_bytes)))
        for path, make in (
            ("asample", self.sampling.sample),
            ("evsys/sample_batches", self.sampling.name_batch),
        ):
            table.post(f"{API}/{path}")(self.guarded(self._json(make, limits.sample_bytes)))
        table.post(f"{API}/forward_backward")(self.guarded(self._forward_backward))
        table.post(f"{API}/retrieve_future")(self.guarded(self._retrieve))
        table.post(f"{API}/sessions/{{id}}/finish")(self.guarded(self._finish))
        table.get(f"{API}/samplers/{{id}}")(self.guarded(self._sampler))
        table.get(f"{API}/get_server_capabilities")(self.guarded(self._capabilities))
        for method, path, handler in Rest(self.service, self.document).routes():
            table.route(method, f"{API}/{path}")(self.guarded(handler))
        table.get(f"{API}/evsys/models/{{name:.+}}/rendering")(self.guarded(self._rendering))
        return table

    def guarded(self, handler: _Handler) -> _Handler:
        """The handler behind the key, its failures as statuses."""

        async def handle(request: web.Request) -> web.StreamResponse:
            try:
                if not await self._keys.accepts(request, request.headers.get("X-API-Key", "")):
                    raise RefusedError(401, "the key is missing or wrong; send it as X-API-Key")
                return await handler(request)
            except RefusedError as exc:
                headers = {} if exc.retry_after is None else {"Retry-After": str(exc.retry_after)}
                return self._failure_response(exc.status, exc, headers)
            except Exception as exc:  # a fault of ours or of the backend: the client may come again
                self.service.log.error(
                    "request.failed", path=request.path, reason=reason_of(exc), exc_info=exc
                )
                return self._failure_response(400 if category_of(exc) == "user" else 500, exc, {})

        return handle

    def _failure_response(self, status: int, error: Exception, headers: Mapping[str, str]) -> web.Response:
        return document_response(
            {"error": message_of(error), "category": category_of(error)}, status=status, headers=headers
        )

    def _json(self, make: Callable[[_Document], _Document | Promise], most: int) -> _Handler:
        async def handle(request: web.Request) -> web.StreamResponse:
            found = make(await self.document(request, most))
            return answer_response(found.reply()) if isinstance(found, Promise) else document_response(found)

        return handle

    async def document(self, request: web.Request, most: int | None = None) -> dict[str, Any]:
        """The JSON object that is a request's body, of at most `most` bytes; by default `Limits.document_bytes`.

        Raises:
            RefusedError: the body is longer, stops coming, or isn't a JSON object.
        """
        body = await self._body(request, self.service.limits.document_bytes if most is None else most)
        return await off_loop(body, lambda: reading.document(body))

    async def _body(self, request: web.Request, most: int) -> bytes:
        try:
            return await read_bytes(request, min(most, self.service.limits.body_bytes))
        except BodyError as exc:
            raise _UnreadError(exc) from exc

    async def _forward_backward(self, request: web.Request) -> web.StreamResponse:
        try:
            body = await self._body(request, self.service.limits.body_bytes)
        except _UnreadError as exc:
            self.training.refuse_forward_backward(exc.beginning, exc)
            raise
        return answer_response(self.training.forward_backward(body).reply())

    async def _retrieve(self, request: web.Request) -> web.StreamResponse:
        request_id = reading.name(await self.document(request), "request_id")
        promise = self.service.promises.find(request_id)
        if promise is None:
            raise RefusedError(410, f"request {request_id} is unknown here, or was answered long ago")
        answer = await promise.wait(self.service.limits.poll_seconds)
        if answer is None:
            waiting = {"type": "try_again", "request_id": request_id, "queue_state": "active"}
            return document_response(waiting, status=408)
        if answer.content_type == PROTOBUF and PROTOBUF not in request.headers.get("Accept", ""):
            raise RefusedError(406, f"this answer is {PROTOBUF}, which the request doesn't accept")
        self.service.promises.fetched(promise)
        return answer_response(answer)

    async def _healthz(self, _: web.Request) -> web.StreamResponse:
        return document_response({"status": "ok"})

    def _client_config(self, _: _Document) -> _Document:
        return {
            "proto_compress_fwdbwd": False,
            "sample_max_concurrent_requests": self.service.batches.most,
        }

    def _create_session(self, body: _Document) -> _Document:
        for key in ("project_id", "display_name", "sdk_version"):
            reading.text(body, key)
        reading.metadata(body)
        reading.tags(body)
        lasting = len(self.service.sessions.lasting())
        if lasting >= self.service.limits.sessions:
            raise RefusedError(429, f"{lasting} sessions last already; finish one", retry_after=10)
        kept = ("tags", "user_metadata", "sdk_version", "project_id", "display_name")
        session = self.service.sessions.create({key: body.get(key) for key in kept})
        self.service.log.info("session.created", session=session.id, sdk_version=body.get("sdk_version"))
        return {"type": "create_session", "session_id": session.id}

    def _heartbeat(self, body: _Document) -> _Document:
        self.service.sessions.active(reading.name(body, "session_id"))
        return {"type": "session_heartbeat"}

    async def _finish(self, request: web.Request) -> web.StreamResponse:
        body = await self.document(request)
        session = self.service.sessions.find(request.match_info["id"])
        if session is None:
            raise RefusedError(404, f"there is no session {request.match_info['id']!r} here")
        reason = reading.section(body, "reason") or {"type": "success"}
        status = {"type": "client_finished", "reason": reason, "detail": body.get("detail")}
        await self.service.end(session, status)
        return document_response({})

    async def _sampler(self, request: web.Request) -> web.StreamResponse:
        sampling = self.sampling.find(request.match_info["id"])
        path = sampling.source if sampling.source != sampling.base_model else None
        return document_response(
            {"sampler_id": sampling.id, "base_model": sampling.base_model, "model_path": path}
        )

    async def _capabilities(self, _: web.Request) -> web.StreamResponse:
        models = [
            {
                "model_name": base.name,
                "max_context_length": base.context_length,
                "trainable": True,
                "sampleable": True,
            }
            for base in self.service.engine.bases.values()
        ]
        return document_response(
            {
                "supported_models": models,
                "evsys_deterministic": self.service.engine.same_bits,
                "evsys_simulated": self.service.engine.simulated,
            }
        )

    async def _rendering(self, request: web.Request) -> web.StreamResponse:
        name = request.match_info["name"]
        self.service.samplers.base_of(name)
        return document_response({"model": name, "files": rendering_files(name)})


class _UnreadError(RefusedError):
    """A body read in part."""

    def __init__(self, error: BodyError) -> None:
        hint = "; send fewer examples at a time" if error.status == 413 else ""
        super().__init__(error.status, f"{error.message}{hint}")
        self.beginning = error.beginning
