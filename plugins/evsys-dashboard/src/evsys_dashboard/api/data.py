"""Endpoints: datasets and benchmarks by ID."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from typing import Any, Literal

import attrs
from aiohttp import web

from evsys.errors import DataError
from evsys_dashboard.api.endpoints import Call, Endpoints, limit
from evsys_dashboard.api.errors import RefusedError
from evsys_dashboard.data.catalogue import DataStore, Found
from evsys_dashboard.data.checks import check_version
from evsys_dashboard.data.chunks import pack_chunk
from evsys_dashboard.data.shapes import (
    CHUNK,
    KINDS,
    ROWS_LISTED,
    BlobState,
    Catalogue,
    Checks,
    Kind,
    Rows,
    ShownVersion,
    Uploaded,
    Versions,
)
from evsys_dashboard.store.audit import write_audit
from evsys_runtime.serving.bodies import BodyError, read_bytes

__all__ = ["endpoints"]

endpoints = Endpoints()

_MOST_BODY = len(pack_chunk(b"")) + CHUNK + (CHUNK >> 10) + 1024
"""Bytes of a chunk as it travels: zlib adds a little to bytes that it can't make smaller."""

_NUMBER = re.compile(r"[0-9]{1,6}")


@attrs.frozen(kw_only=True)
class CatalogueQuestion:
    """A page of the names that contain `text`."""

    text: str = ""
    offset: int = limit(0, least=0, most=1_000_000)
    limit: int = limit(200, most=1000)


@attrs.frozen(kw_only=True)
class RowsQuestion:
    """A page of rows, from number `offset` on."""

    offset: int = limit(0, least=0, most=2**53)
    limit: int = limit(50, most=ROWS_LISTED)


@attrs.frozen(kw_only=True)
class NewBlob:
    """Bytes to be sent: their SHA-256 in hexadecimal digits, and how many there are."""

    digest: str
    size: int


@attrs.frozen(kw_only=True)
class NewVersion:
    """A version to make of bytes that were sent. `split: test` seals them: only keys with the scope `test` read their rows."""

    digest: str
    split: Literal["val", "test"] | None = None
    made_from: tuple[str, ...] = ()
    note: str | None = None
    file: str | None = None


@endpoints.post("/projects/{project}/blobs", scope="write")
async def begin_upload(call: Call, body: NewBlob) -> BlobState:
    """Begin to send the bytes of a version, or continue: which chunks are there."""
    return await _ask(call, lambda store: store.begin(call["project"], body.digest, body.size), writing=True)


@endpoints.post("/projects/{project}/blobs/{digest}/chunks/{number}", scope="write")
async def take_chunk(call: Call) -> BlobState:
    """Take in a chunk, compressed with zlib. Sending it again changes nothing."""
    _refuse_local(call)
    try:
        packed = await read_bytes(call.request, _MOST_BODY)
    except BodyError as exc:
        raise RefusedError(exc.status, exc.message) from exc
    number = _number(call)
    return await _ask(call, lambda store: store.take(call["project"], call["digest"], number, packed))


@endpoints.post("/projects/{project}/data/{kind}/{name}/versions", scope="write")
async def add_version(call: Call, body: NewVersion) -> Uploaded:
    """Make a version of bytes that were sent; with bytes that the name has, the version that there is."""
    kind, name = _kind(call), call["name"]
    if kind == "datasets" and body.split == "val":
        raise RefusedError(400, "a dataset has no split `val`", hint="`test` seals its rows")

    def add(store: DataStore) -> Uploaded:
        return store.add(call["project"], kind, name, key=call.access.name, **attrs.asdict(body))

    made = await _ask(call, add, writing=True)
    if not made.existed:
        await _audit(call, "data.uploaded", kind=kind, version=made.version.id)
    return made


@endpoints.get("/projects/{project}/data/{kind}")
async def catalogue(call: Call, query: CatalogueQuestion) -> Catalogue:
    """The datasets or benchmarks of a project; `kind` is `datasets` or `benchmarks`."""
    kind = _kind(call)
    return await _ask(call, lambda store: store.catalogue(call["project"], kind, **attrs.asdict(query)))


@endpoints.get("/projects/{project}/data/{kind}/{ref}")
async def show_version(call: Call) -> ShownVersion:
    """The version of an ID, or the latest one of a name, with its lineage."""
    found = await _find(call)
    return await _ask(call, lambda store: store.show(call["project"], found, readable=_may_read(call, found)))


@endpoints.get("/projects/{project}/data/{kind}/{ref}/versions")
async def list_versions(call: Call) -> Versions:
    """Every version of a name."""
    kind = _kind(call)
    return await _ask(call, lambda store: store.versions(call["project"], kind, call["ref"]))


@endpoints.get("/projects/{project}/data/{kind}/{ref}/rows")
async def list_rows(call: Call, query: RowsQuestion) -> Rows:
    """A page of rows. Those of a test set need the scope `test`, and each request is counted."""
    found = await _find(call)
    await _begin_reading(call, found, "rows")

    def read(store: DataStore) -> Rows:
        rows, after = store.blobs.page(found.blob_id, found.version.rows, query.offset, query.limit)
        return Rows(id=found.version.id, total=found.version.rows, rows=tuple(rows), next=after)

    return await _ask(call, read)


@endpoints.get("/projects/{project}/data/{kind}/{ref}/chunks/{number}")
async def read_chunk(call: Call) -> web.StreamResponse:
    """A chunk of a version, compressed with zlib. Those of a test set need the scope `test`, and each pull is counted."""
    found, number = await _find(call), _number(call)
    await _begin_reading(call, found, "pull" if number == 0 else "chunk")
    packed = await _ask(call, lambda store: store.blobs.packed(found.blob_id, number))
    if packed is None:
        raise RefusedError(404, f"{found.version.id} has no chunk {number}")
    return web.Response(
        body=packed, content_type="application/octet-stream", headers={"Cache-Control": "no-store"}
    )


@endpoints.get("/projects/{project}/data/{kind}/{ref}/checks")
async def list_checks(call: Call) -> Checks:
    """Benchmark tasks among training rows: a dataset version against the latest version of each benchmark, or the other way round."""
    found = await _find(call)
    service = call.service
    async with service.checking:  # one at a time: each may take a processor for some seconds
        return await _ask(
            call,
            lambda store: check_version(
                service.database,
                store,
                call["project"],
                found,
                may_read_tests=call.access.may("test", call["project"]),
            ),
        )


def _kind(call: Call) -> Kind:
    kind = call["kind"]
    if kind not in KINDS:
        raise RefusedError(404, f"there are no {kind!r}", hint=f"kinds: {', '.join(KINDS)}")
    return kind


def _number(call: Call) -> int:
    if not _NUMBER.fullmatch(call["number"]):
        raise RefusedError(404, f"there is no chunk {call['number']!r}")
    return int(call["number"])


def _refuse_local(call: Call) -> None:
    if call.service.local is not None:
        raise RefusedError(
            409, "this dashboard shows the data of its own project", hint="send to `evsys dashboard serve`"
        )


async def _ask[T](call: Call, question: Callable[[DataStore], T], *, writing: bool = False) -> T:
    """The answer of a function of the store, in a thread."""
    if writing:
        _refuse_local(call)
    try:
        return await asyncio.to_thread(question, call.service.data)
    except DataError as exc:
        raise RefusedError(404, exc.message, hint=exc.hint) from exc


async def _find(call: Call) -> Found:
    kind = _kind(call)
    return await _ask(call, lambda store: store.find(call["project"], kind, call["ref"]))


def _may_read(call: Call, found: Found) -> bool:
    return found.version.split != "test" or call.access.may("test", call["project"])


async def _begin_reading(call: Call, found: Found, how: str) -> None:
    """Count the read of a test set, which the audit log has as well.

    Raises:
        RefusedError: the key may not read it.
    """
    if found.version.split != "test":
        return
    if not _may_read(call, found):
        raise RefusedError(
            403,
            f"{found.version.id} is a test set, and the key lacks the scope 'test'",
            hint="ask an administrator for a key with the scope `test`",
        )
    counted = await _ask(call, lambda store: store.count_read(found, key=call.access.name, how=how))
    if counted is not None:
        await _audit(call, "test.read", version=found.version.id, how=how)


async def _audit(call: Call, action: str, **facts: Any) -> None:
    await asyncio.to_thread(
        write_audit,
        call.service.database,
        action,
        key=call.access.name,
        address=call.request.remote,
        project=call["project"],
        **facts,
    )
