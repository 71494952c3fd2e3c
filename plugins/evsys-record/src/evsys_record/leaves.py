"""The config of an arm as values by dotted path: what configs are compared by, and what the index has of them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

__all__ = [
    "IGNORED_BACKEND_PARAMS",
    "IGNORED_CLIENT_PARAMS",
    "IGNORED_RUN_KEYS",
    "arm_leaves",
    "benchmark_leaves",
    "short_leaves",
]

IGNORED_RUN_KEYS = frozenset({"name", "tags"})
"""The name of a run changes nothing."""

IGNORED_BACKEND_PARAMS = frozenset(
    {"base_url", "api_key_env", "api_key", "n_workers", "num_workers", "project_id"}
)
"""The address of a backend and how it is reached change nothing."""

IGNORED_CLIENT_PARAMS = IGNORED_BACKEND_PARAMS | {
    *("timeout_seconds", "max_retries", "requests_per_minute", "tokens_per_minute", "max_concurrent", "price")
}
"""Nor does it of the service that a teacher is asked at, or what that costs."""

_IGNORED_LEAVES = frozenset(
    {
        f"{place}.params.{name}"
        for place in ("backend", "teacher.backend", "reference.backend")
        for name in IGNORED_BACKEND_PARAMS
    }
    | {
        f"{role}.inference.params.{name}"
        for role in ("teacher", "reference")
        for name in IGNORED_CLIENT_PARAMS
    }
)

_IGNORED_PLACES = tuple(sorted({leaf.partition(".")[0] for leaf in _IGNORED_LEAVES}))

_PLACE_OF_ENTRY = frozenset({"path", "id", "tags", "n_concurrent", "hash", "tasks", "name"})
"""Keys of a benchmark entry that change no score: the hash of its tasks, which is compared apart, represents where they lie."""

_LONGEST = 200
"""Characters of a value's JSON text, beyond which its hash represents it."""


def arm_leaves(run: Mapping[str, Any]) -> dict[str, Any]:
    """The values of a run's config by dotted path, without what changes no result: what it is called, where a backend is."""
    kept = {key: value for key, value in run.items() if key not in IGNORED_RUN_KEYS}
    return {path: value for path, value in _leaves("", kept) if not _is_ignored(path)}


def _is_ignored(path: str) -> bool:
    """Whether a leaf is one of those, or inside of one, such as a price's."""
    if not path.startswith(_IGNORED_PLACES):
        return False
    parts = path.split(".")
    return any(".".join(parts[:count]) in _IGNORED_LEAVES for count in (3, 4))


def benchmark_leaves(entries: Any) -> dict[str, Any]:
    """The same of the benchmark entries, below `benchmark.<name>`; the hash of each one's tasks is `tasks` there."""
    found: dict[str, Any] = {}
    for entry in entries:
        place = f"benchmark.{entry.get('name')}"
        found[f"{place}.tasks"] = entry.get("hash")
        kept = {key: value for key, value in entry.items() if key not in _PLACE_OF_ENTRY}
        found |= _leaves(place, kept)
    return found


def short_leaves(run: Mapping[str, Any]) -> dict[str, str]:
    """The values of a run as JSON texts; rows in the file itself, and long values, by their hash."""
    data = run.get("data")
    if isinstance(data, Mapping) and data.get("rows"):
        run = {**run, "data": {**data, "rows": _short(data["rows"])}}
    return {path: _short(value) for path, value in arm_leaves(run).items()}


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    if len(text) <= _LONGEST:
        return text
    from evsys_record.hashing import digest_bytes

    return digest_bytes(text.encode("utf-8", "surrogatepass"))


def _leaves(prefix: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        for key in value:
            yield from _leaves(f"{prefix}.{key}" if prefix else str(key), value[key])
    elif isinstance(value, list | tuple):
        for place, item in enumerate(value):
            yield from _leaves(f"{prefix}[{place}]", item)
    elif value is not None:
        yield prefix, value
