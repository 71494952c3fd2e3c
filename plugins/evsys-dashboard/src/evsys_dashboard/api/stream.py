"""Endpoint: changes as they happen, as server-sent events. A reader that falls behind gets each change once."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from functools import partial
from typing import Any

import attrs
import sqlalchemy as sa
from aiohttp import web

from evsys_dashboard.api.endpoints import Call, Endpoints
from evsys_dashboard.api.errors import RefusedError
from evsys_dashboard.api.service import Service, project_version
from evsys_dashboard.store.tables import experiment, project, run

__all__ = ["endpoints"]

endpoints = Endpoints()

LOOK_SECONDS = 2.0
"""How often the database is asked for changes that another server took in."""

ALIVE_SECONDS = 15.0
"""How often a line is sent while nothing happens, so that a dead connection is noticed."""


@attrs.frozen(kw_only=True)
class StreamQuestion:
    """Changes after a version of the project; by default, those from now on."""

    after: int | None = None


@endpoints.get("/projects/{project}/stream")
async def stream(call: Call, query: StreamQuestion) -> web.StreamResponse:
    """Changes of a project's experiments, as server-sent events.

    Each event `change` has the version of the project, which is also its id, and the experiments that changed with the runs that did.
    """
    name = call["project"]
    known = await call.service.read(lambda connection: project_version(connection, name))
    after = _begin(call.request, query.after, known)
    response = web.StreamResponse(
        headers={"Content-Type": "text/event-stream", "Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    )
    await response.prepare(call.request)
    await response.write(f"retry: 2000\nid: {after}\n\n".encode())
    quiet = 0.0
    while not call.service.closing.is_set() and await _may_go_on(call):
        found = await call.service.shared.result(
            ("changes", name, after), partial(_announced, call.service, name, after)
        )
        if found is not None:
            (after, event), quiet = found, 0.0
            await response.write(event)
            await asyncio.sleep(0.1)  # changes that come together are sent together
        elif not await call.service.changes.wait(LOOK_SECONDS):
            quiet += LOOK_SECONDS
            if quiet >= ALIVE_SECONDS:
                quiet = 0.0
                await response.write(b": alive\n\n")
    return response


async def _may_go_on(call: Call) -> bool:
    """False once the key was revoked that the stream began with."""
    keys, name = call.service.keys, call.access.name
    if keys is None or name is None:
        return True
    return await call.service.shared.result(("key", name), partial(asyncio.to_thread, keys.is_valid, name))


async def _announced(service: Service, name: str, after: int) -> tuple[int, bytes] | None:
    """The event of the changes after a version of a project, with the newest version; None without any."""
    found = await service.read(partial(_changes, name=name, after=after))
    if found is None:
        return None
    version = found["version"]
    return version, f"event: change\nid: {version}\ndata: {json.dumps(found)}\n\n".encode()


def _begin(request: web.Request, after: int | None, known: int) -> int:
    last = request.headers.get("Last-Event-ID")
    if last is None:
        return known if after is None else after
    if not last.isdecimal() or len(last) > 18:
        raise RefusedError(400, f"invalid Last-Event-ID {last!r}")
    return int(last)


def _changes(connection: sa.Connection, name: str, after: int) -> dict[str, Any] | None:
    """The changes after a version of a project; None without any."""
    of_project = experiment.join(project, project.c.id == experiment.c.project_id)
    version = project_version(connection, name)
    if version <= after:
        return None
    query = (
        sa.select(experiment.c.id, experiment.c.name, experiment.c.version)
        .select_from(of_project)
        .where(project.c.name == name, experiment.c.version > after, experiment.c.version <= version)
        .order_by(experiment.c.version)
    )
    rows = connection.execute(query).all()
    runs: dict[int, list[str]] = {}
    changed = sa.select(run.c.experiment_id, run.c.name).where(
        run.c.experiment_id.in_([row.id for row in rows]), run.c.version > after
    )
    for owner, run_name in connection.execute(changed):
        runs.setdefault(owner, []).append(run_name)
    listed: list[Mapping[str, Any]] = [
        {"id": row.name, "version": row.version, "runs": sorted(runs.get(row.id, ()))} for row in rows
    ]
    return {"version": version, "experiments": listed}
