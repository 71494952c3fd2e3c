"""Reading and amending plain trees by path. Trees are never changed in place: what is not touched is shared."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from evsys_runtime.config.paths import Segment
from evsys_runtime.config.scalars import describe

__all__ = ["MISSING", "canonical", "get", "put", "remove_keys"]

MISSING: Final = object()


def get(tree: Any, segments: Sequence[Segment]) -> Any:
    """The value at a path, or `MISSING`."""
    for segment in segments:
        if isinstance(tree, Mapping):
            tree = tree.get(segment, MISSING)
        elif isinstance(tree, list | tuple):
            index = _index(segment)
            tree = tree[index] if index is not None and index < len(tree) else MISSING
        else:
            return MISSING
    return tree


def put(tree: Any, segments: Sequence[Segment], value: Any) -> Any:
    """A tree like `tree` with `value` at a path; mappings missing on the way are made.

    Raises:
        ValueError: the path leads through a value that holds nothing, or beyond the end of a list.
    """
    if not segments:
        return value
    root = node = _copy(tree, segments, 0)
    last = len(segments) - 1
    for depth, segment in enumerate(segments):
        key = segment if type(node) is dict else _index(segment)
        if depth == last:
            node[key] = value
        else:
            below = node.get(key) if type(node) is dict else node[key]
            node[key] = node = _copy(below, segments, depth + 1)
    return root


def remove_keys(tree: Any, places: Iterable[Sequence[Segment]]) -> Any:
    """A tree like `tree` whose mappings lack the keys at these paths; `tree` itself where it has none of them."""
    for segments in places:
        above = get(tree, segments[:-1]) if segments else MISSING
        if isinstance(above, Mapping) and segments[-1] in above:
            kept = {key: value for key, value in above.items() if key != segments[-1]}
            tree = put(tree, segments[:-1], kept)
    return tree


def _copy(node: Any, segments: Sequence[Segment], depth: int) -> Any:
    """A shallow copy of the value at `segments[:depth]`, in which `segments[depth]` can be set."""
    segment = segments[depth]
    if node is None or node is MISSING:
        node = {}
    if (type(node) is dict or isinstance(node, Mapping)) and isinstance(segment, str):
        return dict(node)
    here = ".".join(map(str, segments[:depth])) or "the value"
    if not isinstance(node, list | tuple):
        raise ValueError(f"{here} is {describe(node)}, so {segment!r} can't be set in it")  # noqa: TRY004 - the path is wrong
    index = _index(segment)
    if index is None or index >= len(node):
        raise ValueError(f"{here} is a list of {len(node)}; {segment!r} is none of its positions (from 0)")
    return list(node)


def _index(segment: Segment) -> int | None:
    if isinstance(segment, int):
        return segment
    return int(segment) if segment.isdecimal() else None


_INTEGRAL = re.compile(r"[0-9]\.0(?![0-9])|[0-9]e\+")
"""A float without a fraction, as JSON spells it; now and then a text that looks like one."""

_encode = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode


def canonical(value: Any) -> str:
    """One text for all trees that mean the same: keys sorted, 1.0 written as 1."""
    text = _encode(value)
    return _encode(_plain(value)) if _INTEGRAL.search(text) else text


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value
