"""Endpoints: signing in, keys, and the audit log."""

from __future__ import annotations

import asyncio
from typing import Any, Literal

import attrs
import sqlalchemy as sa
from aiohttp import web

from evsys_dashboard.api.access import COOKIE
from evsys_dashboard.api.endpoints import Call, Endpoints, limit
from evsys_dashboard.api.errors import RefusedError
from evsys_dashboard.store.audit import AuditEntry, read_audit, write_audit
from evsys_dashboard.store.keys import SESSION_SECONDS, Key, Keys

__all__ = ["endpoints"]

endpoints = Endpoints()


@attrs.frozen(kw_only=True)
class WhoAmI:
    """The rights of the key or session. `token` belongs into the header X-CSRF-Token of each change that a page makes."""

    key: str | None
    scopes: tuple[str, ...]
    project: str | None
    token: str | None


@attrs.frozen(kw_only=True)
class SignIn:
    """A key to sign a browser in with."""

    key: str


@attrs.frozen(kw_only=True)
class SignedIn:
    """Whether a browser is signed in now."""

    signed_in: bool


@attrs.frozen(kw_only=True)
class NewKey:
    """A key to make. Without a project it is for all projects, which takes a key for all projects."""

    scopes: tuple[Literal["read", "write", "test", "admin"], ...]
    project: str | None = None
    note: str | None = None


@attrs.frozen(kw_only=True)
class MadeKey:
    """A new key; `text` is shown this once."""

    key: Key
    text: str


@attrs.frozen(kw_only=True)
class AllKeys:
    """Every key, the oldest first."""

    keys: tuple[Key, ...]


@attrs.frozen(kw_only=True)
class AuditQuestion:
    """Which lines of the audit log: the newest, or those older than line `before`."""

    before: int | None = None
    limit: int = limit(100, most=1000)


@attrs.frozen(kw_only=True)
class AuditLog:
    """Lines of the audit log, the newest first."""

    entries: tuple[AuditEntry, ...]


@endpoints.get("/whoami", scope=None)
async def whoami(call: Call) -> WhoAmI:
    """The rights of the key or session."""
    access = call.access
    return WhoAmI(
        key=access.name, scopes=tuple(sorted(access.scopes)), project=access.project, token=access.token
    )


@endpoints.post("/session", scope=None)
async def sign_in(call: Call, body: SignIn) -> web.StreamResponse:
    """Sign a browser in: the answer sets a cookie that scripts can't read."""
    service, request = call.service, call.request
    if service.keys is None:
        raise RefusedError(409, "this dashboard needs no key")
    found = await asyncio.to_thread(service.keys.begin_session, body.key)
    if found is None:
        await service.wrong_keys.hold(request)
        raise RefusedError(401, "the key isn't valid", hint="ask an administrator for a key")
    session, secret = found
    await _write(call, "session.begun", key=session.key.prefix)
    access = {"key": session.key.prefix, "scopes": list(session.key.scopes), "project": session.key.project}
    response = web.json_response({**access, "token": session.token}, headers={"Cache-Control": "no-store"})
    response.set_cookie(
        COOKIE,
        secret,
        max_age=round(SESSION_SECONDS),
        path="/",
        httponly=True,
        samesite="Strict",
        secure=request.secure or request.headers.get("X-Forwarded-Proto") == "https",
    )
    return response


@endpoints.delete("/session", scope=None)
async def sign_out(call: Call) -> web.StreamResponse:
    """Sign a browser out."""
    secret = call.request.cookies.get(COOKIE)
    if call.service.keys is not None and secret is not None:
        await asyncio.to_thread(call.service.keys.end_session, secret)
    response = web.json_response({"signed_in": False})
    response.del_cookie(COOKIE, path="/")
    return response


@endpoints.get("/keys", scope="admin")
async def all_keys(call: Call) -> AllKeys:
    """Every key that this one may manage, the oldest first."""
    found = await asyncio.to_thread(_keys(call).all)
    return AllKeys(keys=tuple(key for key in found if call.access.project in {None, key.project}))


@endpoints.post("/keys", scope="admin")
async def create_key(call: Call, body: NewKey) -> MadeKey:
    """Make a key."""
    if call.access.project not in {None, body.project}:
        raise RefusedError(403, f"the key is for project {call.access.project!r} alone")
    if not set(body.scopes) <= call.access.scopes | {"read", "write"}:
        raise RefusedError(403, "a key can't grant more than the one that makes it")
    key, text = await asyncio.to_thread(_keys(call).create, body.scopes, project=body.project, note=body.note)
    await _write(call, "key.created", project=key.project, prefix=key.prefix, scopes=list(key.scopes))
    return MadeKey(key=key, text=text)


@endpoints.delete("/keys/{prefix}", scope="admin")
async def revoke_key(call: Call) -> Key:
    """End a key, and the sessions that began with it."""
    found = await asyncio.to_thread(_keys(call).all)
    mine = {key.prefix for key in found if call.access.project in {None, key.project}}
    if call["prefix"] not in mine:
        raise RefusedError(404, f"no key begins with {call['prefix']!r}")
    key = await asyncio.to_thread(_keys(call).revoke, call["prefix"])
    await _write(call, "key.revoked", project=key.project, prefix=key.prefix)
    return key


@endpoints.get("/audit", scope="admin")
async def audit_log(call: Call, query: AuditQuestion) -> AuditLog:
    """Lines of the audit log, the newest first."""
    if call.access.project is not None:
        raise RefusedError(403, "the audit log is of all projects, and the key of one")

    def read(connection: sa.Connection) -> list[AuditEntry]:
        return read_audit(connection, before=query.before, limit=query.limit)

    return AuditLog(entries=tuple(await call.service.read(read)))


def _keys(call: Call) -> Keys:
    if call.service.keys is None:
        raise RefusedError(409, "this dashboard needs no key")
    return call.service.keys


async def _write(
    call: Call, action: str, *, key: str | None = None, project: str | None = None, **facts: Any
) -> None:
    await asyncio.to_thread(
        write_audit,
        call.service.database,
        action,
        key=key or call.access.name,
        address=call.request.remote,
        project=project,
        **facts,
    )
