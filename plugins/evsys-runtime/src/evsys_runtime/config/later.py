"""Keys that the experiment file may have but this version doesn't act on. Whoever builds one of these deletes its line.

Plugins that are planned are in `known.json` of core, beside those that can be installed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from evsys._plugins.refusals import NOT_YET
from evsys_runtime.config import paths, trees

__all__ = ["NOT_YET", "later_keys", "later_names"]

_EXPERIMENT = (
    "log_store",
    "deploy",
    "launcher",
)
_KEYS: Mapping[str, tuple[str, ...]] = {"experiment": _EXPERIMENT, "run": (), "benchmark": ()}
_HINTS = {
    "log_store": "the record in output_dir is always written",
}


def later_keys(scope: str, tree: Mapping[str, Any], root: str = "$") -> Iterator[tuple[str, str | None]]:
    """The path of each key in use that this version doesn't act on, with a hint.

    Args:
        scope: what `tree` is: `experiment`, `run` or `benchmark`.
        tree: its plain values.
        root: its path.
    """
    for name in _KEYS[scope]:
        segments = paths.parse(name)
        if trees.get(tree, segments) not in (None, trees.MISSING):
            yield paths.join(segments, root), _HINTS.get(name)


def later_names(scope: str) -> tuple[str, ...]:
    """The keys of an experiment, a run or a benchmark entry that this version doesn't act on at all."""
    return _KEYS[scope]
