"""Looking things up and tidying: runs, checkpoints and sessions, as plain JSON resources."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime
from itertools import groupby
from operator import attrgetter
from typing import Any

import attrs
from aiohttp import web

from evsys_server import reading
from evsys_server.checkpoints import SCHEME, Saved
from evsys_server.errors import RefusedError
from evsys_server.responses import document_response
from evsys_server.service import Service
from evsys_server.sessions import Session

__all__ = ["Rest"]

OWNER = "local"
"""No one else's: this server knows one user."""

MOST_LISTED = 1000
_TYPES = {"weights": "training", "sampler_weights": "sampler"}

type _Document = Mapping[str, Any]
type _Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Rest:
    """The resources.

    Args:
        service: the server's state.
        body: reads a request's body within the bounds.
    """

    def __init__(self, service: Service, document: Callable[[web.Request], Awaitable[_Document]]) -> None:
        self._service = service
        self._document = document

    def routes(self) -> list[tuple[str, str, _Handler]]:
        """Method, path and handler of each."""
        checkpoint = "training_runs/{run}/checkpoints/{kind}/{name}"
        return [
            ("GET", "training_runs", self._runs),
            ("GET", "training_runs/{run}", self._run),
            ("GET", "training_runs/{run}/checkpoints", self._run_checkpoints),
            ("DELETE", checkpoint, self._delete),
            ("PUT", f"{checkpoint}/ttl", self._set_ttl),
            ("GET", "checkpoints", self._checkpoints),
            ("POST", "weights_info", self._weights_info),
            ("GET", "sessions", self._sessions),
            ("POST", "sessions/search", self._search),
            ("GET", "sessions/{id}", self._session),
        ]

    async def _runs(self, request: web.Request) -> web.StreamResponse:
        page, cursor = _page(request, self._all_runs())
        return document_response({"training_runs": page, "cursor": cursor})

    async def _run(self, request: web.Request) -> web.StreamResponse:
        wanted = request.match_info["run"]
        for run in self._all_runs():
            if run["training_run_id"] == wanted:
                return document_response(run)
        raise RefusedError(404, f"there is no training run {wanted!r} here")

    def _all_runs(self) -> list[_Document]:
        """Runs in training or with checkpoints, the last used first."""
        by_run = self._saved_by_run()
        runs = []
        for run in {*by_run, *self._service.models}:
            model, saved = self._service.models.get(run), by_run.get(run, [])
            spec = model.spec if model is not None else saved[0].spec
            used = max([one.created for one in saved] + ([model.last_request] if model else []))
            runs.append(
                {
                    "training_run_id": run,
                    "base_model": spec.name,
                    "model_owner": OWNER,
                    "is_lora": spec.lora.rank is not None,
                    "lora_rank": spec.lora.rank,
                    "corrupted": False,
                    "last_request_time": _time(used),
                    "last_checkpoint": _last(saved, "weights"),
                    "last_sampler_checkpoint": _last(saved, "sampler_weights"),
                    "user_metadata": dict(model.user_metadata) if model is not None else None,
                }
            )
        return sorted(runs, key=lambda run: (run["last_request_time"], run["training_run_id"]), reverse=True)

    def _saved_by_run(self) -> dict[str, list[Saved]]:
        saved = sorted(self._service.store.all(), key=attrgetter("run"))
        return {run: list(of_run) for run, of_run in groupby(saved, key=attrgetter("run"))}

    async def _run_checkpoints(self, request: web.Request) -> web.StreamResponse:
        run = request.match_info["run"]
        saved = [_checkpoint(one) for one in self._service.store.all() if one.run == run]
        if not saved and run not in self._service.models:
            raise RefusedError(404, f"there is no training run {run!r} here")
        return document_response({"checkpoints": saved, "cursor": None})

    async def _checkpoints(self, request: web.Request) -> web.StreamResponse:
        page, cursor = _page(request, self._service.store.all())
        return document_response({"checkpoints": [_checkpoint(one) for one in page], "cursor": cursor})

    async def _delete(self, request: web.Request) -> web.StreamResponse:
        path = _path(request)
        self._service.store.delete(path)
        await self._service.samplers.drop(path)
        return document_response({})

    async def _set_ttl(self, request: web.Request) -> web.StreamResponse:
        body = await self._document(request)
        saved = self._service.store.set_ttl(_path(request), reading.optional_whole(body, "ttl_seconds"))
        return document_response(_checkpoint(saved))

    async def _weights_info(self, request: web.Request) -> web.StreamResponse:
        body = await self._document(request)
        lora = (saved := self._service.store.find(reading.name(body, "tinker_path"))).spec.lora
        every = "all-linear" in lora.targets
        return document_response(
            {
                "base_model": saved.spec.name,
                "is_lora": lora.rank is not None,
                "lora_rank": lora.rank,
                "train_unembed": False,
                "train_mlp": every or "up_proj" in lora.targets,
                "train_attn": every or "q_proj" in lora.targets,
            }
        )

    async def _sessions(self, request: web.Request) -> web.StreamResponse:
        page, _ = _page(request, self._service.sessions.all())
        return document_response({"sessions": [session.id for session in page]})

    async def _session(self, request: web.Request) -> web.StreamResponse:
        session = self._service.sessions.find(request.match_info["id"])
        if session is None:
            raise RefusedError(404, f"there is no session {request.match_info['id']!r} here")
        return document_response(
            {
                "training_run_ids": session.models,
                "sampler_ids": list(session.samplers),
                "user_metadata": _words(session),
                "display_name": session.fields.get("display_name"),
            }
        )

    async def _search(self, request: web.Request) -> web.StreamResponse:
        body = await self._document(request)
        limit, matches = reading.whole(body, "limit", 50, low=1), _filter(body)
        by_run = self._saved_by_run()
        summaries = (self._summary(session, by_run) for session in self._service.sessions.all())
        return document_response({"sessions": list(filter(matches, summaries))[:limit]})

    @staticmethod
    def _summary(session: Session, by_run: Mapping[str, Sequence[Saved]]) -> dict[str, Any]:
        saved = [one for run in dict.fromkeys(session.models) for one in by_run.get(run, ())]
        return {
            "session_id": session.id,
            "created_at": _time(session.created),
            "owner": OWNER,
            "project_id": session.fields.get("project_id") or "default",
            "status": session.status or {"type": "active"},
            "checkpoints_count": len(saved),
            "checkpoint_storage_bytes": sum(one.size_bytes for one in saved),
            "display_name": session.fields.get("display_name"),
            "user_metadata": _words(session),
        }


def _filter(body: _Document) -> Callable[[_Document], bool]:
    """Whether a search finds a session. A name and an id are alternatives, all else must hold.

    Raises:
        RefusedError: the search asks for what can't be.
    """
    wanted_id, wanted_name = (reading.text(body, key) for key in ("session_id", "display_name"))
    wanted_words = wanted_name.lower().split()
    metadata = reading.section(body, "user_metadata")
    statuses = reading.sections(body, "statuses")
    for status in statuses:
        if not isinstance(status.get("reasons") or [], list):
            raise RefusedError(
                400, f"statuses: reasons must be a list, got {reading.short_text(status['reasons'])}"
            )

    def matches(summary: _Document) -> bool:
        name = (summary["display_name"] or "").lower()
        named = bool(wanted_name) and all(word in name for word in wanted_words)
        if (wanted_id or wanted_name) and summary["session_id"] != wanted_id and not named:
            return False
        words = summary["user_metadata"] or {}
        if any(words.get(key) != value for key, value in metadata.items()):
            return False
        return not statuses or any(_has_status(summary["status"], status) for status in statuses)

    return matches


def _has_status(status: _Document, wanted: _Document) -> bool:
    if status["type"] != wanted.get("type"):
        return False
    reasons = wanted.get("reasons")
    return not reasons or status.get("reason", {}).get("type") in reasons


def _words(session: Session) -> dict[str, str] | None:
    found = reading.metadata(session.fields)
    return found or None


def _page[T](request: web.Request, items: Sequence[T]) -> tuple[Sequence[T], dict[str, int]]:
    """The part of a list that a request asks for, with what the client continues by."""
    try:
        offset = max(0, int(request.query.get("offset", "0")))
        limit = min(MOST_LISTED, max(0, int(request.query.get("limit", "20"))))
    except ValueError as exc:
        raise RefusedError(400, "offset and limit must be whole numbers") from exc
    cursor = {"offset": offset, "limit": limit, "total_count": len(items)}
    return items[offset : offset + limit], cursor


def _path(request: web.Request) -> str:
    part = request.match_info
    return f"{SCHEME}{part['run']}/{part['kind']}/{part['name']}"


def _last(saved: Sequence[Saved], kind: str) -> dict[str, Any] | None:
    found = [one for one in saved if one.kind == kind]
    return _checkpoint(max(found, key=lambda one: one.created)) if found else None


def _checkpoint(saved: Saved) -> dict[str, Any]:
    fields = attrs.asdict(saved, filter=attrs.filters.include("size_bytes", "user_metadata"))
    return {
        **fields,
        "checkpoint_id": f"{saved.kind}/{saved.name}",
        "checkpoint_type": _TYPES[saved.kind],
        "time": _time(saved.created),
        "tinker_path": saved.path,
        "public": False,
        "expires_at": None if saved.expires is None else _time(saved.expires),
    }


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat()
