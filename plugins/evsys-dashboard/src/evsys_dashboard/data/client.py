"""Datasets and benchmarks of a team's server: sent and fetched by chunks, continued where an interruption left off."""

from __future__ import annotations

import hashlib
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import attrs

from evsys.errors import DataError, StoreError
from evsys_dashboard.data.chunks import chunk_bytes, lines_of, pack_chunk, unpack_chunk
from evsys_dashboard.data.shapes import (
    CHUNK,
    MOST_BYTES,
    BlobState,
    Catalogue,
    Kind,
    Rows,
    ShownVersion,
    Split,
    Uploaded,
    Versions,
    is_digest,
    is_id,
)
from evsys_dashboard.remote import Remote, RemoteRefusedError
from evsys_record import make_directory, write_atomic
from evsys_record.encoding import encode_record, utf8
from evsys_record.files import storing
from evsys_record.result_trees import read_as

__all__ = ["CheckedFile", "DataClient", "checked_file"]

type Tell = Callable[[int, int], None]
"""Called with the number of bytes that are there, and of all."""

WAITS = (0.5, 2.0, 5.0)
"""Seconds before each further try of a request that wasn't answered."""

CHECK_SECONDS = 600.0
"""How long the server may take to check a whole upload."""

ABANDONED_SECONDS = 7 * 24 * 3600.0
"""Chunks of an interrupted pull are removed after so long."""


@attrs.frozen(kw_only=True)
class CheckedFile:
    """Rows as they are uploaded: JSON lines in a temporary file."""

    stream: IO[bytes]
    digest: str
    size: int
    rows: int

    def chunk(self, number: int) -> bytes:
        """The bytes of a chunk."""
        self.stream.seek(number * CHUNK)
        return self.stream.read(CHUNK)


@contextmanager
def checked_file(rows: Iterable[Mapping[str, Any]], name: str) -> Iterator[CheckedFile]:
    """Rows as a file to upload, while inside.

    Raises:
        DataError: there are none, or too many bytes of them.
    """
    whole, size, count = hashlib.sha256(), 0, 0
    with tempfile.TemporaryFile(prefix="evsys-upload-") as stream:
        for row in rows:
            count += 1
            line = utf8(encode_record(row) + "\n")
            whole.update(line)
            size += len(line)
            if size > MOST_BYTES:
                hint = "divide it among several datasets"
                raise DataError(f"has more than {MOST_BYTES} bytes of rows", source=name, hint=hint)
            stream.write(line)
        if not count:
            raise DataError("holds no rows", source=name)
        stream.flush()
        yield CheckedFile(stream=stream, digest=whole.hexdigest(), size=size, rows=count)


class DataClient:
    """The datasets and benchmarks of a project on a team's server. Not for threads at once.

    Args:
        remote: the server.
        wait: waits so many seconds.
    """

    def __init__(self, remote: Remote, *, wait: Callable[[float], object] = time.sleep) -> None:
        self._remote = remote
        self._wait = wait

    @property
    def shown(self) -> str:
        """The address of the server, without what is secret."""
        return self._remote.shown

    def close(self) -> None:
        """Close the connection."""
        self._remote.close()

    # --- upload ---

    def upload(
        self,
        file: CheckedFile,
        kind: Kind,
        name: str,
        *,
        split: Split | None = None,
        made_from: Iterable[str] = (),
        note: str | None = None,
        source: str | None = None,
        tell: Tell = lambda _done, _all: None,
    ) -> Uploaded:
        """Send a version: the chunks that the server lacks.

        Args:
            file: its rows.
            kind: what it is.
            name: what it is called.
            split: `test` seals it.
            made_from: IDs of the versions that it was made from.
            note: what to know about it.
            source: the name of the file that the rows came from.
            tell: gets the progress.

        Raises:
            ConfigError: the server refuses it.
            StoreError: the server can't be reached; what was sent is kept there.
        """
        blobs = self._remote.of_project("blobs")
        state = self._begin(blobs, file)
        there = set(state.received)
        last = (file.size - 1) // CHUNK
        for number in range(last + 1) if not state.complete else ():
            if number not in there:
                self._ask("POST", f"{blobs}/{file.digest}/chunks/{number}", pack_chunk(file.chunk(number)))
            tell(min((number + 1) * CHUNK, file.size), file.size)
        body = {
            "digest": file.digest,
            "split": split,
            "made_from": list(made_from),
            "note": note,
            "file": source,
        }
        path = self._remote.of_project("data", kind, name, "versions")
        return read_as(Uploaded, self._ask("POST", path, json_body=body, seconds=CHECK_SECONDS))

    def _begin(self, blobs: str, file: CheckedFile) -> BlobState:
        body = {"digest": file.digest, "size": file.size}
        state = read_as(BlobState, self._ask("POST", blobs, json_body=body))
        if state.chunk_bytes != CHUNK:
            raise StoreError(
                f"{self.shown} takes chunks of {state.chunk_bytes} bytes, and this version sends {CHUNK}",
                hint="install the same version of evsys-dashboard on both sides",
            )
        return state

    # --- questions ---

    def catalogue(self, kind: Kind, *, text: str = "", limit: int = 1000, offset: int = 0) -> Catalogue:
        """The names of a kind."""
        query = {"text": text, "limit": limit, "offset": offset}
        return read_as(Catalogue, self._ask("GET", self._remote.of_project("data", kind), query=query))

    def versions(self, kind: Kind, name: str) -> Versions:
        """The versions of a name."""
        path = self._remote.of_project("data", kind, name, "versions")
        return read_as(Versions, self._find(kind, name, path))

    def show(self, kind: Kind, ref: str) -> ShownVersion:
        """The version of an ID, or the latest one of a name.

        Raises:
            StoreError: there is none; `reachable`, since the server answered.
        """
        found = read_as(ShownVersion, self._find(kind, ref, self._remote.of_project("data", kind, ref)))
        version = found.version
        if (
            (is_id(ref) and version.id != ref)
            or not is_id(version.id)
            or not is_digest(version.content_hash[7:])
        ):
            raise StoreError(f"{self.shown} answers with another version than {ref!r}", reachable=True)
        return found

    def rows(self, kind: Kind, ref: str, *, limit: int, offset: int = 0) -> Rows:
        """A page of rows."""
        path = self._remote.of_project("data", kind, ref, "rows")
        return read_as(Rows, self._find(kind, ref, path, query={"limit": limit, "offset": offset}))

    # --- pull ---

    def pull(
        self, shown: ShownVersion, directory: Path, *, tell: Tell = lambda _done, _all: None
    ) -> Iterator[bytes]:
        """The lines of a version.

        Chunks are kept in a folder until the last line is read, so that an interrupted pull continues with the first missing one.

        Args:
            shown: the version.
            directory: of all interrupted pulls.
            tell: gets the progress.

        Raises:
            StoreError: the server can't be reached, refuses it, or gives other bytes than the version has.
        """
        version = shown.version
        digest = version.content_hash[7:]
        folder = make_directory(directory / digest)
        _sweep(directory)
        whole = hashlib.sha256()

        def parts() -> Iterator[bytes]:
            done = 0
            for number, expected in enumerate(shown.chunks):
                data = self._chunk(shown, folder, number, expected)
                whole.update(data)
                done += len(data)
                tell(done, version.size)
                yield data
            if whole.hexdigest() != digest:
                shutil.rmtree(folder, ignore_errors=True)
                raise StoreError(
                    f"{self.shown} gives other bytes of {version.id} than it has",
                    hint="ask its administrator; nothing was kept",
                    reachable=True,
                )

        yield from lines_of(parts())
        shutil.rmtree(folder, ignore_errors=True)

    def _chunk(self, shown: ShownVersion, folder: Path, number: int, expected: str) -> bytes:
        """A chunk that is there from an earlier try, or else from the server."""
        path = folder / f"{number:06d}"
        with storing(path, "read"):
            data = path.read_bytes() if path.is_file() else b""
        if data and hashlib.sha256(data).hexdigest() == expected:
            return data
        version = shown.version
        place = self._remote.of_project("data", version.kind, version.id, "chunks", str(number))
        packed = self._find(version.kind, version.id, place, as_bytes=True)
        try:
            data = unpack_chunk(packed, chunk_bytes(version.size, number))
        except ValueError as exc:
            raise self._corrupted(version.id, number) from exc
        if hashlib.sha256(data).hexdigest() != expected:
            raise self._corrupted(version.id, number)
        write_atomic(path, data)
        return data

    def _corrupted(self, version: str, number: int) -> StoreError:
        return StoreError(
            f"chunk {number} of {version} arrived corrupted from {self.shown}",
            hint="try again: chunks that arrived well are kept",
            reachable=True,
        )

    # --- requests ---

    def _find(self, kind: Kind, ref: str, path: str, *, as_bytes: bool = False, **options: Any) -> Any:
        """The answer about one version; refusals are errors of the store, since it was reached."""
        try:
            return self._ask("GET", path, as_bytes=as_bytes, **options)
        except RemoteRefusedError as exc:
            raise StoreError(exc.message, reachable=True, status=exc.status) from exc

    def _ask(
        self, method: str, path: str, body: bytes | None = None, *, as_bytes: bool = False, **options: Any
    ) -> Any:
        """The answer to a request, tried again where the server doesn't answer: each one may come twice."""
        ask = self._remote.fetch if as_bytes else self._remote.ask
        for seconds in WAITS:
            try:
                return ask(method, path, body, **options)
            except StoreError:
                self._wait(seconds)
        try:
            return ask(method, path, body, **options)
        except StoreError as exc:
            hint = exc.hint or "repeat the command to continue: what arrived is kept"
            raise StoreError(exc.message, hint=hint, reachable=False) from exc


def _sweep(directory: Path) -> None:
    """Remove what is left of pulls that were interrupted long ago."""
    horizon = time.time() - ABANDONED_SECONDS
    for folder in directory.iterdir():
        if is_digest(folder.name) and folder.stat().st_mtime < horizon:
            shutil.rmtree(folder, ignore_errors=True)
