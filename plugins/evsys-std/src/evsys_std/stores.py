"""Data stores: `local` files, rows given `in_memory`, and `hf` datasets."""

from __future__ import annotations

import copy
import datetime as dt
import json
from collections.abc import Iterable, Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar

import attrs

from evsys import option
from evsys.errors import PluginLoadError, StoreError
from evsys_runtime import current_scope
from evsys_runtime.data.readers import FORMATS, read_rows

__all__ = ["HuggingFaceStore", "InMemoryStore", "LocalStore"]

type Row = Mapping[str, Any]

# What the conformance suite pulls.
_EXAMPLE_ROWS = [{"question": "Kde je 四?", "answer": "tady\u2028🙂"}, {"question": "zwei", "answer": "2"}]
_EXAMPLE_FILE = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in _EXAMPLE_ROWS)
_TORN_FILE = _EXAMPLE_FILE[:-9]


class LocalStore:
    """Files of rows below a folder. A reference is a path below it, with or without its suffix, or a folder in it that
    holds `rows.jsonl` or `train.jsonl`.
    """

    name: ClassVar[str] = "local"
    conformance: ClassVar[Mapping[str, Any]] = {
        "files": {"data/small.jsonl": _EXAMPLE_FILE, "data/torn.jsonl": _TORN_FILE},
        "refs": ("small",),
        "rows": _EXAMPLE_ROWS,
        "damaged": ("torn",),
    }

    @attrs.frozen(kw_only=True)
    class Config:
        """Parameters of `local`."""

        root: str = option("data", "the folder, relative to the project root")

    def __init__(self, **fields: Any) -> None:
        self.config = self.Config(**fields)

    async def pull(self, ref: str) -> Iterable[Row]:
        """Rows of a file, streamed.

        Raises:
            StoreError: no such file, or a reference that leaves the folder.
        """
        root = current_scope().resolve(self.config.root).resolve()
        path = (root / ref).resolve()
        if not path.is_relative_to(root):
            raise StoreError(f"reference {ref!r} leaves the folder {root}", reachable=True)
        found = next((candidate for candidate in _candidates(path) if candidate.is_file()), None)
        if found is None:
            raise StoreError(f"no dataset {ref!r} in {root}", hint=_listing(root), reachable=root.is_dir())
        return read_rows(found)


def _candidates(path: Path) -> Iterator[Path]:
    yield path
    for suffix in FORMATS:
        yield path.with_name(path.name + suffix)
    for stem in ("rows", "train"):
        for suffix in FORMATS:
            yield path / f"{stem}{suffix}"


def _listing(root: Path) -> str:
    if not root.is_dir():
        return "the folder does not exist"
    found = sorted(
        path.relative_to(root).as_posix() for path in root.rglob("*") if path.suffix.lower() in FORMATS
    )
    return f"it has {', '.join(found[:8])}" if found else "it has no files of rows"


class InMemoryStore:
    """Datasets given as parameters; for tests and small experiments."""

    name: ClassVar[str] = "in_memory"
    conformance: ClassVar[Mapping[str, Any]] = {
        "params": {"datasets": {"small": _EXAMPLE_ROWS}},
        "refs": ("small",),
        "rows": _EXAMPLE_ROWS,
    }

    @attrs.frozen(kw_only=True)
    class Config:
        """Parameters of `in_memory`."""

        datasets: dict[str, list[dict[str, Any]]] = option(attrs.Factory(dict), "name: list of rows")

    def __init__(self, **fields: Any) -> None:
        self.config = self.Config(**fields)

    async def pull(self, ref: str) -> Iterable[Row]:
        """Copies of the rows, so no one changes what the next one pulls.

        Raises:
            StoreError: no dataset of this name.
        """
        rows = self.config.datasets.get(ref)
        if rows is None:
            known = ", ".join(sorted(self.config.datasets)) or "none"
            raise StoreError(f"no dataset {ref!r} in memory", hint=f"known are {known}", reachable=True)
        return copy.deepcopy(rows)


class HuggingFaceStore:
    """Datasets of the Hugging Face Hub, or of a local folder: one that `save_to_disk` wrote, or one of data files.

    Times become ISO texts. Keys inside a column with the value null are left out: these datasets give all values of
    a column the same keys, and null to those that a value never had.
    """

    name: ClassVar[str] = "hf"
    conformance: ClassVar[Mapping[str, Any]] = {
        "params": {"cache_dir": "cache"},
        "files": {"small/train.jsonl": _EXAMPLE_FILE, "torn/train.jsonl": _TORN_FILE},
        "refs": ("small",),
        "rows": _EXAMPLE_ROWS,
        "damaged": ("torn",),
    }

    @attrs.frozen(kw_only=True)
    class Config:
        """Parameters of `hf`."""

        split: str = option("train", "which split; slices such as train[:100] work")
        subset: str | None = option(None, "the configuration of a dataset that has several")
        revision: str | None = option(None, "a commit, tag or branch; a commit makes it reproducible")
        cache_dir: str | None = option(
            None,
            "where prepared data are kept, relative to the project root; by default where the library puts them",
        )

    def __init__(self, **fields: Any) -> None:
        self.config = self.Config(**fields)
        if find_spec("datasets") is None:
            raise PluginLoadError(
                "data_store 'hf' needs the package `datasets`",
                hint="pip install 'evsys-sdk[hf]'",
                kind="data_store",
            )

    async def pull(self, ref: str) -> Iterable[Row]:
        """Rows of a split.

        Raises:
            StoreError: no such dataset or split, or the hub can't be reached.
        """
        import asyncio

        dataset = await asyncio.to_thread(self._load, ref)
        features = getattr(dataset, "features", None) or {}
        return (_plain_row(row, features) for row in dataset)

    def _load(self, ref: str) -> Any:
        import datasets

        folder = current_scope().resolve(ref)
        try:
            if folder.is_dir() and _saved_to_disk(folder):
                return _split_of(datasets.load_from_disk(str(folder)), self.config.split)
            cache = self.config.cache_dir
            return datasets.load_dataset(
                str(folder) if folder.is_dir() else ref,
                self.config.subset,
                split=self.config.split,
                revision=None if folder.is_dir() else self.config.revision,
                cache_dir=None if cache is None else str(current_scope().resolve(cache)),
            )
        except Exception as exc:
            lost = isinstance(exc, ConnectionError | TimeoutError)
            what = "can't be reached" if lost else "can't be loaded"
            raise StoreError(
                f"dataset {ref!r} {what}: {type(exc).__name__}: {str(exc).strip()[:500]}",
                hint="a local folder works offline" if lost else None,
                reachable=not lost,
            ) from exc


def _saved_to_disk(folder: Path) -> bool:
    return (folder / "state.json").is_file() or (folder / "dataset_dict.json").is_file()


def _split_of(loaded: Any, split: str) -> Any:
    """A split of what `load_from_disk` gave: one dataset, which has no splits, or a mapping of them."""
    if not isinstance(loaded, Mapping):
        return loaded
    if split not in loaded:
        raise KeyError(f"no split {split!r}; it has {', '.join(loaded)}")
    return loaded[split]


def _plain_row(row: Row, features: Mapping[str, Any]) -> dict[str, Any]:
    return {column: _plain(value, features.get(column)) for column, value in row.items()}


def _plain(value: Any, feature: Any) -> Any:
    """A value as JSON has it. `feature` is its type: a mapping of the keys that all values share, or a list of one type."""
    if isinstance(value, dt.date | dt.time):
        return value.isoformat()
    if isinstance(value, list | tuple):
        of_items = feature[0] if isinstance(feature, list) and feature else getattr(feature, "feature", None)
        return [_plain(item, of_items) for item in value]
    if isinstance(value, Mapping):
        shared = feature if isinstance(feature, Mapping) else {}
        return {
            key: _plain(item, shared.get(key))
            for key, item in value.items()
            if item is not None or key not in shared
        }
    return value
