"""Where two resolved configs differ, key by key."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from evsys_runtime.experiment.identity import IGNORED_BACKEND_PARAMS, IGNORED_RUN_KEYS
from evsys_runtime.record.plans import Difference

__all__ = ["arm_leaves", "benchmark_leaves", "differences"]

_PLACE_OF_ENTRY = frozenset({"path", "id", "tags", "n_concurrent", "hash", "tasks", "name"})
"""Keys of a benchmark entry that change no score: the hash of its tasks, which is compared apart, stands for where they lie."""

type Leaves = Mapping[str, Any]


def arm_leaves(run: Mapping[str, Any]) -> dict[str, Any]:
    """The values of a run's config by dotted path, without what changes no result: what it is called, where a backend is."""
    kept = {key: value for key, value in run.items() if key not in IGNORED_RUN_KEYS}
    found = dict(_leaves("", kept))
    left_out = {f"backend.params.{name}" for name in IGNORED_BACKEND_PARAMS}
    return {path: value for path, value in found.items() if path not in left_out}


def benchmark_leaves(entries: Any) -> dict[str, Any]:
    """The same of the benchmark entries, below `benchmark.<name>`; the hash of each one's tasks is `tasks` there."""
    found: dict[str, Any] = {}
    for entry in entries:
        place = f"benchmark.{entry.get('name')}"
        found[f"{place}.tasks"] = entry.get("hash")
        kept = {key: value for key, value in entry.items() if key not in _PLACE_OF_ENTRY}
        found |= _leaves(place, kept)
    return found


def _leaves(prefix: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        for key in value:
            yield from _leaves(f"{prefix}.{key}" if prefix else str(key), value[key])
    elif isinstance(value, list | tuple):
        for place, item in enumerate(value):
            yield from _leaves(f"{prefix}[{place}]", item)
    elif value is not None:
        yield prefix, value


def differences(one: Leaves, other: Leaves) -> tuple[Difference, ...]:
    """The paths at which two configs differ, in order."""
    paths = sorted({*one, *other})
    return tuple(
        Difference(path=path, one=_text(one, path), other=_text(other, path))
        for path in paths
        if one.get(path) != other.get(path)
    )


def _text(leaves: Leaves, path: str) -> str | None:
    return json.dumps(leaves[path], ensure_ascii=False) if path in leaves else None
