"""A project's data by name or id: its own folders, and what was pulled before. Works offline."""

from __future__ import annotations

import inspect
import os
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from threading import RLock
from typing import TYPE_CHECKING, Any, Protocol

import attrs

from evsys.errors import ConfigError, DataError, StoreError, boundary
from evsys.optional import SupportsVersions
from evsys_record.hashing import file_digest
from evsys_runtime.data.cache import Accept, CachedData, DatasetCache, rows_of_store
from evsys_runtime.data.readers import ReadReport, read_rows
from evsys_runtime.data.result_store import ResultStore
from evsys_runtime.data.scope import DataScope, use_scope
from evsys_runtime.data.stored_data import (
    Kind,
    StoredData,
    cache_folders,
    find_benchmark,
    find_dataset,
    find_entry,
    own_datasets,
)

if TYPE_CHECKING:
    from evsys.types import StoredVersion

__all__ = ["Pins", "Store", "Workspace", "require_store"]


class Store(Protocol):
    """The source of datasets and benchmarks that are neither in the project nor in its cache."""

    def pull(self, ref: str, /) -> Iterable[Mapping[str, Any]] | Awaitable[Iterable[Mapping[str, Any]]]:
        """Rows of a dataset or benchmark by its id or name, in a stable order; plain or async."""


def require_store(store: object) -> None:
    """Refuse an object that rows can't be pulled from.

    Raises:
        ConfigError: it has no method `pull`.
    """
    if not callable(getattr(store, "pull", None)):
        name = getattr(store, "__name__", None) or f"{type(store).__name__} object"
        raise ConfigError(
            f"store: expected an object with a method `pull(ref)`, got {name}", hint="see EvsysStore"
        )


class Pins:
    """The versions that names mean for as long as an experiment goes on, however often it is resumed.

    Args:
        known: by `<kind>/<name>`, the `id` of the version, its `split`, and how often its rows were read, as far as the store knew.
        changed: called with all of them when one is added.
    """

    def __init__(
        self,
        known: Mapping[str, Mapping[str, Any]] | None = None,
        changed: Callable[[Mapping[str, Any]], object] = lambda _tree: None,
    ) -> None:
        self._known = dict(known or {})
        self._changed = changed

    @property
    def tree(self) -> dict[str, Mapping[str, Any]]:
        """All of them, as a record has them."""
        return dict(self._known)

    def get(self, kind: Kind, ref: str) -> Mapping[str, Any] | None:
        """The version that a reference means; None if that isn't settled yet."""
        return self._known.get(f"{kind}/{ref}")

    def id_of(self, kind: Kind, ref: str) -> str:
        """The ID that a reference means, or itself."""
        found = self.get(kind, ref)
        return ref if found is None else str(found["id"])

    def add(self, kind: Kind, ref: str, version: Mapping[str, Any]) -> None:
        """Settle the version that a reference means."""
        self._known[f"{kind}/{ref}"] = version
        self._changed(self.tree)


class Workspace:
    """A project's folder.

    A name is looked for in the project's own data first (`data/datasets/<name>/v<N>/`, `data/benchmark/<name>/`,
    `data/validation/<name>/`), then among those pulled into the cache, then in the store. Data read from the
    project or pulled is put into the cache, so a run can record the id of its data. A store of versions is asked for the
    latest version of a name even if an earlier one was pulled.
    """

    def __init__(
        self,
        root: str | Path,
        *,
        store: Store | None = None,
        tell: Callable[[str], None] = lambda _message: None,
        pins: Pins | None = None,
    ) -> None:
        """Describe the workspace.

        Args:
            root: the project's folder.
            store: serves what is neither in the project nor in the cache.
            tell: gets the place of data if the project can't be written, and which version is used if the store can't be reached.
            pins: the versions that names mean.

        Raises:
            ConfigError: the store has no method `pull`.
        """
        if store is not None:
            require_store(store)
        self.root = Path(root).absolute()
        self.state = self.root / ".evsys"
        self._store = store
        self._tell = tell
        self.pins = pins or Pins()
        self._pulling = RLock()
        self._caches: dict[Kind, DatasetCache] = {}

    @property
    def experiments(self) -> Path:
        """The default folder of records."""
        return self.state / "experiments"

    def cache(self, kind: Kind = "datasets") -> DatasetCache:
        """The project's cache; a folder of this user takes its place where the project is read-only."""
        if kind not in self._caches:
            own, instead = cache_folders(self.root, kind)
            self._caches[kind] = DatasetCache(own.parent, kind, instead=instead, tell=self._tell)
        return self._caches[kind]

    def results(self) -> ResultStore:
        """The scored rollouts kept for later; a folder of this user takes its place where the project is read-only."""
        own, instead = cache_folders(self.root, "results")
        there = next(folder for folder in (own, *own.parents) if folder.exists())
        return ResultStore(own if os.access(there, os.W_OK) else instead)

    def find_dataset(self, name_or_id: str, *, split: str = "train") -> Path:
        """The file that `pull_dataset` takes rows from; nothing is written.

        Raises:
            DataError: there is no such dataset.
            StoreError: what the cache holds is corrupt.
        """
        found = find_dataset(self.root, name_or_id, split=split)
        return _entry(self.cache("datasets"), found).path if found.in_cache else found.path

    def pull_dataset(self, name_or_id: str, *, split: str = "train") -> CachedData:
        """Rows of a dataset: `<id>`, `<name>` (its newest version) or `<name>/v<N>`.

        Args:
            name_or_id: what to pull.
            split: `train` or `test`, for a dataset in the project.

        Raises:
            DataError: there is no such dataset, a line can't be read, or a version's rows have changed.
            StoreError: the cache can't be written or is corrupt, or the store failed.
        """
        if (version := self._pull_version(name_or_id, "datasets")) is not None:
            return version
        name_or_id = self.pins.id_of("datasets", name_or_id)
        try:
            found = find_dataset(self.root, name_or_id, split=split)
        except DataError as error:
            return self._pull(name_or_id, "datasets", error)
        cache = self.cache("datasets")
        if found.in_cache:
            return _entry(cache, found)
        lineage = self._lineage(found.path) | {"version": found.version, "split": split}
        if entry := _same_file(cache, found.ref, lineage):
            return entry
        known = cache.get(found.ref, verify=False)

        def refuse_changes(_path: Path, content_hash: str) -> None:
            if known is not None and known.content_hash != content_hash:
                following = f"{found.ref.partition('/')[0]}/v{found.newest + 1}/"
                raise DataError(
                    f"{found.ref} isn't what it was when it was first used ({known.id})",
                    source=str(found.path),
                    hint=f"versions never change: put the changed rows into {following}",
                )

        decided = {name: lineage[name] for name in ("file", "version", "split")}
        entry = cache.store(
            self._rows(found.path),
            lineage,
            label=found.ref,
            ingredients=decided,
            accept=refuse_changes,
        )
        cache.name(found.ref, entry.id)
        return entry

    def pull_benchmark(self, name_or_id: str, *, raw: bool = False) -> CachedData:
        """Tasks of a benchmark: `<id>`, `<name>`, or `benchmark/<name>` and `validation/<name>` where both exist.

        Args:
            name_or_id: what to pull.
            raw: the transforms of an entry make tasks of what the store gives; otherwise only tasks are kept.

        Raises:
            DataError: there is no such benchmark, two have this name, a line can't be read, or the store gave no tasks.
            StoreError: the cache can't be written or is corrupt, or the store failed.
        """
        accept = None if raw else _require_tasks
        if (version := self._pull_version(name_or_id, "benchmarks", accept=accept)) is not None:
            return version
        name_or_id = self.pins.id_of("benchmarks", name_or_id)
        try:
            found = find_benchmark(self.root, name_or_id)
        except DataError as error:
            return self._pull(name_or_id, "benchmarks", error, accept=accept)
        cache = self.cache("benchmarks")
        if found.in_cache:
            return _entry(cache, found)
        lineage = self._lineage(found.path)
        return _same_file(cache, found.ref, lineage) or cache.put(
            found.ref, self._rows(found.path), lineage, ingredients={"file": lineage["file"]}
        )

    def find_benchmark(self, name_or_id: str) -> StoredData:
        """The place of a benchmark's tasks, which a store of versions is asked for.

        Raises:
            DataError: there is no such benchmark.
            StoreError: the store has none, or can't be reached.
        """
        version = self._pull_version(name_or_id, "benchmarks")
        if version is not None:
            return StoredData(path=version.path, ref=version.id, in_cache=True)
        return find_benchmark(self.root, self.pins.id_of("benchmarks", name_or_id))

    def datasets(self) -> list[str]:
        """Names of the project's own datasets."""
        return own_datasets(self.root)

    def _pull_version(self, ref: str, kind: Kind, *, accept: Accept | None = None) -> CachedData | None:
        """The version that a reference means; None if the store has no versions, or the project has data of this name.

        An ID whose rows are here needs no store.

        Raises:
            StoreError: the store has no such version, or can't be reached and no version was pulled before.
        """
        store: object = self._store
        if not isinstance(store, SupportsVersions) or self._is_own(ref, kind):
            return None
        with self._pulling:
            wanted, cache = self.pins.id_of(kind, ref), self.cache(kind)
            if find_entry(cache_folders(self.root, kind), wanted) is not None:
                return cache.get(wanted)
            try:
                version = self._ask(partial(store.resolve, wanted, kind))
            except StoreError as error:
                entry = cache.get(ref) if wanted == ref and error.facts.get("reachable") is False else None
                if entry is None:
                    raise
                self._tell(f"{error.message}; {kind.removesuffix('s')} {ref!r} is {entry.id}, pulled before")
                self.pins.add(kind, ref, _pin_of(entry.id, entry.lineage))
                return entry
            entry = cache.get(version.id)
            if entry is None:
                entry = self._keep_version(store, version, accept)
                version = attrs.evolve(version, reads=None if version.reads is None else version.reads + 1)
            cache.name(version.name, entry.id)
            self.pins.add(kind, ref, _pin_of(entry.id, attrs.asdict(version)))
            return entry

    def _keep_version(
        self, store: SupportsVersions, version: StoredVersion, accept: Accept | None
    ) -> CachedData:
        """Pull a version into the cache.

        Raises:
            StoreError: its rows aren't those that its hash is of.
            DataError: they can't be accepted.
        """

        def check(path: Path, content_hash: str) -> None:
            if content_hash != version.content_hash:
                raise StoreError(
                    f"the rows that came for {version.id} have another hash than it",
                    hint="nothing was kept; pull them again",
                    reachable=True,
                )
            if accept is not None:
                accept(path, content_hash)

        with boundary("store", type(store).__name__):
            rows = rows_of_store(self._ask(partial(store.pull_version, version)), version.id)
            reads = None if version.reads is None else version.reads + 1
            lineage = {"source": "store", "ref": version.id, "split": version.split, "reads": reads}
            return self.cache(version.kind).store(
                rows, lineage, label=version.name, id=version.id, accept=check
            )

    def _ask[T](self, question: Callable[[], Awaitable[T]]) -> T:
        """The answer of a store, in a thread of its own: this one may have an event loop."""
        import asyncio
        from concurrent.futures import ThreadPoolExecutor

        async def ask() -> T:
            return await question()

        def answer() -> T:
            with use_scope(DataScope(project_root=self.root)):
                return asyncio.run(ask())

        with ThreadPoolExecutor(1) as thread, boundary("store", type(self._store).__name__):
            return thread.submit(answer).result()

    def _is_own(self, ref: str, kind: Kind) -> bool:
        """True for data in the project's own folders."""
        try:
            found = find_dataset(self.root, ref) if kind == "datasets" else find_benchmark(self.root, ref)
        except DataError as error:
            return not error.facts.get("unknown")
        return not found.in_cache

    def _pull(self, ref: str, kind: Kind, error: DataError, *, accept: Accept | None = None) -> CachedData:
        """Pull this id or name from the store; `error` says that it isn't here."""
        if self._store is None or not error.facts.get("unknown"):
            raise error
        with boundary("store", type(self._store).__name__):
            rows = self._store.pull(ref)
            if inspect.isawaitable(rows):
                import asyncio
                from concurrent.futures import ThreadPoolExecutor

                with ThreadPoolExecutor(1) as thread:  # this one may have an event loop
                    rows = thread.submit(asyncio.run, _iterate_rows(rows)).result()
            lineage = {"source": "store", "ref": ref}
            return self.cache(kind).put(ref, rows_of_store(rows, ref), lineage, accept=accept)

    def _rows(self, path: Path) -> Iterator[dict[str, Any]]:
        return read_rows(path, report=ReadReport(source=path.relative_to(self.root).as_posix()))

    def _lineage(self, path: Path) -> dict[str, Any]:
        metadata = path.with_name("metadata.yaml")
        return {
            "source": "project",
            "path": path.relative_to(self.root).as_posix(),
            "file": file_digest(path),
            "metadata": file_digest(metadata) if metadata.is_file() else None,
        }


def _pin_of(version: str, facts: Mapping[str, Any]) -> dict[str, Any]:
    return {"id": version, "split": facts.get("split"), "reads": facts.get("reads")}


def _require_tasks(path: Path, _content_hash: str) -> None:
    from evsys_runtime.data.benchmark import load_tasks

    load_tasks(path, name="the store's rows")


async def _iterate_rows(rows: Awaitable[Iterable[Mapping[str, Any]]]) -> Iterable[Mapping[str, Any]]:
    return await rows


def _entry(cache: DatasetCache, found: StoredData) -> CachedData:
    entry = cache.get(found.ref)
    if entry is None:
        raise StoreError(
            f"cache entry {found.path.parent.name} is incomplete or was removed",
            hint=f"remove {found.path.parent} and pull the data again",
            path=str(found.path),
        )
    return entry


def _same_file(cache: DatasetCache, ref: str, lineage: dict[str, Any]) -> CachedData | None:
    """The entry read from this very file before."""
    entry = cache.get(ref, verify=False)
    if entry is None or entry.lineage.get("file") != lineage["file"]:
        return None
    entry.verify()
    return entry
