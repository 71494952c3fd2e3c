"""Data by content: an id represents bytes that never change, a name for the id that it got last.

```
<root>/datasets/<id>/rows.jsonl  manifest.json     the rows; their hash, count and lineage, `complete` written last
<root>/datasets/names.jsonl                        appended to: {"name", "id", "time"}, the last line of a name counts
```

An entry is written in a folder that no one lists and gets its name when it is whole. Any number of processes may write
and read at once. If `<root>` can't be written, another folder takes what is new, and both are read.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

import attrs

from evsys.errors import DataError, StoreError
from evsys_record import make_directory, slug
from evsys_record.encoding import encode, encode_record, now, utf8
from evsys_record.files import (
    read_json,
    storing,
    sweep,
    sync_directory,
    sync_file,
    temporary_name,
    write_all,
    write_json,
)
from evsys_record.hashing import digest, file_digest
from evsys_record.jsonl import append_record, read_jsonl
from evsys_runtime.data.stored_data import ENTRY_MANIFEST as MANIFEST
from evsys_runtime.data.stored_data import ENTRY_ROWS as ROWS
from evsys_runtime.data.stored_data import Kind, find_entry, names_in

__all__ = ["Accept", "CachedData", "DatasetCache", "KnownRows", "rows_of_store"]

type Accept = Callable[[Path, str], None]
"""Looks at the file and the hash of rows written, and raises if they must not be kept."""

_READ_ONLY = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})
_ID = re.compile(r"\w[\w.-]*", re.ASCII)
_BUFFER = 1 << 20
_ABANDONED_SECONDS = 86400.0


@attrs.frozen(kw_only=True)
class CachedData:
    """A complete entry. `lineage` says where the rows came from, `ingredients` all that decided what they are; `key`
    is the hash of the ingredients.
    """

    id: str
    directory: Path
    label: str
    row_count: int
    content_hash: str
    size: int
    created: str
    lineage: Mapping[str, Any]
    ingredients: Mapping[str, Any]
    key: str | None

    @property
    def path(self) -> Path:
        """The file of rows."""
        return self.directory / ROWS

    def rows(self) -> Iterator[dict[str, Any]]:
        """The rows, one at a time."""
        return read_jsonl(self.path)

    def verify(self) -> None:
        """Compare the rows with their hash.

        Raises:
            StoreError: they changed, or are gone.
        """
        found = self.path.stat().st_size if self.path.is_file() else None
        if found == self.size and file_digest(self.path) == self.content_hash:
            return
        problem = "is missing" if found is None else f"isn't what was stored ({self.content_hash})"
        raise StoreError(
            f"cache entry {self.id} is corrupt: {self.path} {problem}",
            hint=f"remove {self.directory} and pull the data again",
            path=str(self.path),
        )


class KnownRows(Protocol):
    """Rows whose hash is known before they are written, such as a `MaterializedDataset`."""

    @property
    def fingerprint(self) -> str:
        """`sha256:...` of the file that `save` writes."""

    def __len__(self) -> int: ...

    def save(self, path: Path) -> None:
        """Write one JSON object a line, or link a file that holds them."""


def rows_of_store(rows: Iterable[Any], reference: str) -> Iterator[Any]:
    """The rows of a store, checked before they are cached for good: the store is never asked again.

    Raises:
        DataError: there are no rows, or one is not an object that JSON can hold.
    """
    index = -1
    for index, row in enumerate(rows):
        if isinstance(row, Mapping):
            try:
                encode(dict(row))
            except ValueError:
                pass  # numbers that aren't finite become null when the row is written
            except TypeError as exc:
                raise DataError(
                    f"row {index} that the store has for {reference!r} isn't JSON: {exc}"
                ) from exc
        yield row
    if index < 0:
        raise DataError(
            f"the store has no rows for {reference!r}", hint="nothing was kept; check the reference"
        )


class DatasetCache:
    """Entries of one kind below `root`, which is `.evsys/cache` of a project.

    Args:
        root: the folder of all kinds.
        kind: `datasets` or `benchmarks`.
        instead: the folder of this kind that takes new entries if `root` is read-only.
        tell: called once if `instead` is used.
    """

    def __init__(
        self,
        root: Path,
        kind: Kind = "datasets",
        *,
        instead: Path | None = None,
        tell: Callable[[str], None] = lambda _message: None,
    ) -> None:
        self.directory = root / kind
        self._folders = (self.directory,) if instead is None else (self.directory, instead)
        self._tell = tell

    def put(
        self,
        ref: str,
        rows: Iterable[Any],
        lineage: Mapping[str, Any] | None = None,
        *,
        id: str | None = None,
        ingredients: Mapping[str, Any] | None = None,
        accept: Accept | None = None,
    ) -> CachedData:
        """`store` rows, and let the name `ref` represent them from now on."""
        entry = self.store(rows, lineage, label=ref, id=id, ingredients=ingredients, accept=accept)
        self.name(ref, entry.id)
        return entry

    def store(
        self,
        rows: Iterable[Any],
        lineage: Mapping[str, Any] | None = None,
        *,
        label: str = "rows",
        id: str | None = None,
        ingredients: Mapping[str, Any] | None = None,
        accept: Accept | None = None,
    ) -> CachedData:
        """Store rows, streaming; the same rows under the same label are stored once.

        Args:
            rows: mappings, or attrs objects such as `ChatMessagesRow`. Numbers that aren't finite become null.
            lineage: where they came from.
            label: what the id begins with; the hash of the rows follows.
            id: the id that a store gave them, instead.
            ingredients: all that decided what the rows are (source hash, transforms, tokenizer, ...), so that a miss
                can be explained; `find` looks for them.
            accept: receives the file and the hash of the rows before anything is kept; if it raises, nothing is.

        Raises:
            StoreError: this id has other bytes, or the cache can't be written.
            DataError: a row isn't a JSON object.
        """
        if id is not None and not _ID.fullmatch(id):
            raise StoreError(f"{id!r} can't be an id", hint="ids hold letters, digits, '.', '_' and '-'")
        temporary = self._new_folder()
        try:
            with storing(self.directory):
                facts = _write_rows(temporary / ROWS, rows)
            if accept is not None:
                accept(temporary / ROWS, facts["content_hash"])
            facts["id"] = id or _id_of(label, facts["content_hash"])
            return self._publish(temporary, label, facts, lineage, ingredients)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)  # gone already when it was published

    def keep(
        self,
        rows: KnownRows,
        lineage: Mapping[str, Any] | None = None,
        *,
        label: str = "rows",
        ingredients: Mapping[str, Any] | None = None,
    ) -> CachedData:
        """Store rows whose hash is known, as they are: what is here already isn't written again, and keeps its manifest.

        Raises:
            StoreError: the cache can't be written, or the entry is corrupt.
        """
        entry = self._entry(_id_of(label, rows.fingerprint))
        if entry is not None and entry.content_hash == rows.fingerprint:
            entry.verify()
            return entry
        temporary = self._new_folder()
        try:
            with storing(self.directory):
                path = temporary / ROWS
                rows.save(path)
                path.chmod(0o444)
                sync_file(path)
                size = path.stat().st_size
            facts = {"content_hash": rows.fingerprint, "row_count": len(rows), "size": size}
            facts["id"] = _id_of(label, rows.fingerprint)
            return self._publish(temporary, label, facts, lineage, ingredients)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)

    def _new_folder(self) -> Path:
        """A folder for a new entry, in the first of the cache's own folders that can be written."""
        for folder in self._folders:
            try:
                make_directory(folder)
                sweep(folder, older_than=_ABANDONED_SECONDS)
                temporary = temporary_name(folder / "entry")
                with storing(folder):
                    temporary.mkdir()
            except StoreError as exc:
                if folder is self._folders[-1] or exc.facts.get("number") not in _READ_ONLY:
                    raise
                continue
            if folder != self.directory:
                self._tell(
                    f"{self.directory.parent} can't be written; data is kept in {folder.parent} instead"
                )
                self.directory = folder
            return temporary
        raise AssertionError  # the last folder gave one, or raised

    def name(self, ref: str, entry_id: str) -> None:
        """Let a name represent an id from now on."""
        if self.names().get(ref) != entry_id:
            append_record(self.directory / "names.jsonl", {"name": ref, "id": entry_id, "time": now()})

    def get(self, ref: str, *, verify: bool = True) -> CachedData | None:
        """The entry of an id, or else the newest one of a name; None when there is none.

        Raises:
            StoreError: the entry is corrupt.
        """
        entry = self._entry(ref)
        if entry is None:
            named = self.names().get(ref)
            entry = self._entry(named) if named else None
        if entry is not None and verify:
            entry.verify()
        return entry

    def find(self, ingredients: Mapping[str, Any]) -> CachedData | None:
        """The entry made from exactly these ingredients."""
        key = digest(ingredients)
        return next((entry for entry in self.entries() if entry.key == key), None)

    def entries(self) -> Iterator[CachedData]:
        """All complete entries, by id."""
        found = {path.name for folder in self._folders if folder.is_dir() for path in folder.iterdir()}
        for entry_id in sorted(found):
            if entry := self._entry(entry_id):
                yield entry

    def names(self) -> dict[str, str]:
        """Each name with its id.

        Raises:
            StoreError: a line can't be read.
        """
        try:
            return names_in(self._folders)
        except DataError as exc:
            raise StoreError(str(exc), line=exc.line) from exc

    def _entry(self, entry_id: str) -> CachedData | None:
        directory = find_entry(self._folders, entry_id)
        manifest = read_json(directory / MANIFEST) if directory is not None else {}
        if directory is None or manifest.get("complete") is not True:
            return None
        fields = [field.name for field in attrs.fields(CachedData) if field.name != "directory"]
        try:
            return CachedData(directory=directory, **{name: manifest[name] for name in fields})
        except KeyError as exc:
            raise StoreError(
                f"cache entry {entry_id} is corrupt: its manifest lacks {exc}",
                hint=f"remove {directory} and pull the data again",
            ) from exc

    def _publish(
        self,
        temporary: Path,
        label: str,
        facts: Mapping[str, Any],
        lineage: Mapping[str, Any] | None,
        ingredients: Mapping[str, Any] | None,
    ) -> CachedData:
        """Give a whole entry its manifest and its name; where another process was first, theirs stays if it is the same."""
        entry_id, content_hash = facts["id"], facts["content_hash"]
        manifest = {
            "label": label,
            "created": now(),
            "lineage": dict(lineage or {}),
            "ingredients": dict(ingredients or {}),
            "key": digest(ingredients) if ingredients else None,
            **facts,
            "complete": True,
        }
        write_json(temporary / MANIFEST, manifest)
        final = find_entry(self._folders, entry_id) or self.directory / entry_id
        with storing(final):
            if not final.exists():
                try:
                    temporary.rename(final)
                    sync_directory(self.directory)
                except OSError:
                    if not final.is_dir():
                        raise
        entry = self._entry(entry_id)
        if entry is None:
            raise StoreError(
                f"cache entry {entry_id} is incomplete", hint=f"remove {final} and pull the data again"
            )
        if entry.content_hash != content_hash:
            raise StoreError(
                f"{entry_id} already names other rows ({entry.content_hash}, now {content_hash})",
                hint="an id never changes its bytes; give the changed rows a new version",
            )
        return entry


def _id_of(label: str, content_hash: str) -> str:
    return f"{slug(label, max_length=48)}-{content_hash[7:19]}"


def _write_rows(path: Path, rows: Iterable[Any]) -> dict[str, Any]:
    """Write, count and hash rows as they come."""
    content, size, count = hashlib.sha256(), 0, 0
    buffer = bytearray()
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o444)
    try:
        for count, row in enumerate(rows, start=1):
            text = encode_record(row)
            if not text.startswith("{"):
                raise DataError(f"row {count} is a {type(row).__name__}, expected a mapping")
            buffer += utf8(text + "\n")
            if len(buffer) >= _BUFFER:
                content.update(buffer)
                size += len(buffer)
                write_all(descriptor, bytes(buffer))
                buffer.clear()
        content.update(buffer)
        size += len(buffer)
        write_all(descriptor, bytes(buffer))
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    return {"content_hash": f"sha256:{content.hexdigest()}", "row_count": count, "size": size}
