"""Endpoints: records as they come in."""

from __future__ import annotations

import asyncio

from evsys_dashboard.api.endpoints import Call, Endpoints
from evsys_dashboard.api.errors import RefusedError
from evsys_dashboard.api.shapes import Files, FileState, TakenAnswer
from evsys_dashboard.ingest.ingest import Taken
from evsys_dashboard.ingest.pieces import Held, unpack
from evsys_runtime.serving.bodies import BodyError, read_bytes

__all__ = ["endpoints"]

endpoints = Endpoints()

MOST_BODY = 24 << 20
"""Bytes of a batch as it travels."""


@endpoints.get("/projects/{project}/experiments/{experiment}/files", scope="write")
async def files(call: Call) -> Files:
    """How much is held of each file of an experiment; nothing of one that never came."""
    held = await asyncio.to_thread(call.service.ingest.held, call["project"], call["experiment"])
    return Files(files=tuple(map(_state, held)))


@endpoints.post("/projects/{project}/experiments/{experiment}/batch", scope="write")
async def batch(call: Call) -> TakenAnswer:
    """Take in pieces of an experiment's files: zlib data of a JSON list in a line, then the bytes of the pieces."""
    if call.service.local is not None:
        raise RefusedError(
            409, "this dashboard shows the records of its own project", hint="send to `evsys dashboard serve`"
        )
    try:
        body = await read_bytes(call.request, MOST_BODY)
    except BodyError as exc:
        raise RefusedError(exc.status, exc.message) from exc
    taken = await asyncio.to_thread(_take, call, body)
    if taken.changed:
        call.service.changes.tell()
    return TakenAnswer(version=taken.version, files=tuple(map(_state, taken.held)))


def _take(call: Call, body: bytes) -> Taken:
    service, project = call.service, call["project"]
    taken = service.ingest.take(project, call["experiment"], unpack(body))
    if taken.changed:
        service.summaries.refresh(project)
    return taken


def _state(held: Held) -> FileState:
    return FileState(file=held.file, size=held.size, digest=held.digest)
