"""A project's data by name or id: its own folders, and what was pulled before. Works offline."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from evsys.errors import DataError, StoreError
from evsys_runtime.record.cache import CachedData, DatasetCache, Kind
from evsys_runtime.record.hashing import file_digest
from evsys_runtime.record.jsonl import read_jsonl

__all__ = ["Workspace"]

_VERSION = re.compile(r"v(\d+)")


class Workspace:
    """A project's folder.

    A name is looked for in the project's own data first (`data/datasets/<name>/v<N>/`, `data/benchmark/<name>/`,
    `data/validation/<name>/`), then among what was pulled into the cache. What is read from the project is put into
    the cache, so a run can say by id what it used.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.state = root / ".evsys"

    @property
    def experiments(self) -> Path:
        """Where records go unless the config says otherwise."""
        return self.state / "experiments"

    def cache(self, kind: Kind = "datasets") -> DatasetCache:
        """The project's cache."""
        return DatasetCache(self.state / "cache", kind)

    def pull_dataset(self, name_or_id: str, *, split: str = "train") -> CachedData:
        """Rows of a dataset: `<id>`, `<name>` (its newest version) or `<name>/v<N>`.

        Args:
            name_or_id: what to pull.
            split: `train` or `test`, for a dataset in the project.

        Raises:
            DataError: there is no such dataset, a line isn't an object, or a version's rows have changed.
            StoreError: the cache can't be written, or is corrupt.
        """
        cache = self.cache("datasets")
        if entry := _by_id(cache, name_or_id):
            return entry
        name, _, version = name_or_id.partition("/")
        folder = self.root / "data" / "datasets" / name
        if name and folder.is_dir():
            return self._dataset_version(cache, folder, version, split)
        entry = cache.get(name_or_id) or cache.get(_newest(cache, name_or_id, split))
        if entry is None:
            raise self._unknown("dataset", name_or_id, [*self.datasets(), *cache.names()])
        return entry

    def pull_benchmark(self, name_or_id: str) -> CachedData:
        """Tasks of a benchmark: `<id>`, `<name>`, or `benchmark/<name>` and `validation/<name>` where both exist.

        Raises:
            DataError: there is no such benchmark, two have this name, or a line isn't an object.
            StoreError: the cache can't be written, or is corrupt.
        """
        cache = self.cache("benchmarks")
        if entry := _by_id(cache, name_or_id):
            return entry
        found = [path for path in self._task_files() if name_or_id in (path.parent.name, _qualified(path))]
        if len(found) > 1:
            spellings = " or ".join(_qualified(path) for path in found)
            raise DataError(f"two benchmarks are called {name_or_id!r}", hint=f"write {spellings}")
        if found:
            ref, lineage = _qualified(found[0]), self._lineage(found[0])
            return _same_file(cache, ref, lineage) or cache.put(ref, _user_rows(found[0]), lineage)
        names = (name_or_id, f"benchmark/{name_or_id}", f"validation/{name_or_id}")
        entry = next((entry for name in names if (entry := cache.get(name))), None)
        if entry is None:
            known = [_qualified(path) for path in self._task_files()]
            raise self._unknown("benchmark", name_or_id, [*known, *cache.names()])
        return entry

    def datasets(self) -> list[str]:
        """Names of the project's own datasets."""
        folder = self.root / "data" / "datasets"
        return sorted(path.name for path in folder.iterdir() if path.is_dir()) if folder.is_dir() else []

    def _task_files(self) -> list[Path]:
        return sorted(
            path
            for kind in ("benchmark", "validation")
            for path in (self.root / "data" / kind).glob("*/tasks.jsonl")
        )

    def _dataset_version(self, cache: DatasetCache, folder: Path, version: str, split: str) -> CachedData:
        versions = {
            int(match[1]): path for path in folder.iterdir() if (match := _VERSION.fullmatch(path.name))
        }
        wanted = _VERSION.fullmatch(version) if version else None
        number = int(wanted[1]) if wanted else max(versions, default=0)
        path = versions.get(number, folder / (version or "v1")) / f"{split}.jsonl"
        if (version and not wanted) or not path.is_file():
            raise DataError(f"dataset {folder.name!r} has no {path.relative_to(folder)}", source=str(folder))
        ref = f"{folder.name}/v{number}/{split}"
        lineage = self._lineage(path) | {"version": number, "split": split}
        if entry := _same_file(cache, ref, lineage):
            return entry
        known = cache.get(ref, verify=False)
        entry = cache.store(_user_rows(path), lineage, label=ref)
        if known is not None and known.content_hash != entry.content_hash:
            raise DataError(
                f"{ref} isn't what it was when it was first used ({known.id})",
                source=str(path),
                hint=f"versions never change: put the changed rows into {folder.name}/v{max(versions) + 1}/",
            )
        cache.name(ref, entry.id)
        return entry

    def _lineage(self, path: Path) -> dict[str, Any]:
        metadata = path.with_name("metadata.yaml")
        return {
            "source": "project",
            "path": path.relative_to(self.root).as_posix(),
            "file": file_digest(path),
            "metadata": file_digest(metadata) if metadata.is_file() else None,
        }

    def _unknown(self, kind: str, name: str, known: list[str]) -> DataError:
        listed = ", ".join(sorted(set(known))) or "none yet"
        return DataError(
            f"no {kind} {name!r} in {self.root / 'data'} or the cache",
            hint=f"known: {listed}; what a store serves by id must be pulled once while it can be reached",
            unknown=True,
        )


def _by_id(cache: DatasetCache, name_or_id: str) -> CachedData | None:
    """The entry of an id, not of a name: the project's own data comes before names that were pulled."""
    entry = cache.get(name_or_id, verify=False)
    if entry is None or entry.id != name_or_id:
        return None
    entry.verify()
    return entry


def _newest(cache: DatasetCache, name: str, split: str) -> str:
    """What a project's dataset was cached as: `<name>/v<N>` with its split, or the highest version of `<name>`."""
    pattern = re.compile(rf"{re.escape(name)}/v(\d+)/{re.escape(split)}")
    versions = [int(match[1]) for known in cache.names() if (match := pattern.fullmatch(known))]
    return f"{name}/v{max(versions)}/{split}" if versions else f"{name}/{split}"


def _same_file(cache: DatasetCache, ref: str, lineage: dict[str, Any]) -> CachedData | None:
    """What was read from this very file before."""
    entry = cache.get(ref, verify=False)
    if entry is None or entry.lineage.get("file") != lineage["file"]:
        return None
    entry.verify()
    return entry


def _qualified(path: Path) -> str:
    return f"{path.parents[1].name}/{path.parent.name}"


def _user_rows(path: Path) -> Iterator[dict[str, Any]]:
    if not path.is_file():
        raise StoreError(f"{path} is gone", path=str(path))
    return read_jsonl(path, error=DataError)
