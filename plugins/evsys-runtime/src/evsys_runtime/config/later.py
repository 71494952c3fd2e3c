"""Keys that the experiment file may have but this version doesn't act on, and those that it used to have.

Building one of the former deletes its line.

Planned plugins are in `known.json` of core, alongside those that can be installed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from evsys._plugins.refusals import NOT_YET
from evsys_runtime.config import paths, trees

__all__ = ["NOT_YET", "later_key_of_kind", "later_keys", "later_names", "older_block"]

_EXPERIMENT = ("deploy",)
_KINDS: Mapping[str, str] = {"deployer": "deploy"}
"""The key of an experiment that names plugins of a kind which nothing else names."""

_KEYS: Mapping[str, tuple[str, ...]] = {"experiment": _EXPERIMENT, "run": (), "benchmark": ()}
_HINTS: Mapping[str, str] = {}


_OLDER_BLOCKS = ("eval", "validation")


def older_block(name: str) -> tuple[str, str] | None:
    """Message and hint for a block that the file, or a run in it, had in an older format; None for any other name."""
    if name not in _OLDER_BLOCKS:
        return None
    hint = (
        "list what is scored under 'metadata.benchmark', each entry with its own 'metrics' and 'inference', and with "
        "split: val for what steers decisions"
    )
    return f"the block {name!r} is of an older format", hint


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


def later_key_of_kind(kind: str) -> str | None:
    """The key that would name plugins of this kind and that this version doesn't act on; None if experiments can use the kind."""
    key = _KINDS.get(kind)
    return key if key in _EXPERIMENT else None


def later_names(scope: str) -> tuple[str, ...]:
    """The keys of an experiment, a run or a benchmark entry that this version doesn't act on at all."""
    return _KEYS[scope]
