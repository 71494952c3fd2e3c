"""Paths into a tree: `$.run.data.path` as problems print them, `algorithm.params.learning_rate` as users write them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable

__all__ = ["Segment", "ancestors", "child", "join", "parse"]

type Segment = str | int

_STEP = re.compile(
    r"""\.(?P<name>[^.\[\]'"]+)|\[(?P<index>\d+)\]|\[(?P<quoted>'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")\]""",
    re.DOTALL,
)


def child(path: str, key: Segment) -> str:
    """The path of an item inside `path`: `.name` for plain names, `['odd-name']` and `[0]` otherwise.

    The spelling is that of the problems which structuring reports.
    """
    plain = isinstance(key, str) and key.isidentifier()
    return f"{path}.{key}" if plain else f"{path}[{key!r}]"


def join(segments: Iterable[Segment], root: str = "$") -> str:
    """The path of nested items under `root`."""
    for segment in segments:
        root = child(root, segment)
    return root


def parse(path: str) -> tuple[Segment, ...]:
    """Split a path, with or without its leading `$`, into keys and list indices.

    `transforms[0]` gives an index; in `transforms.0` the number may be an index or a key, which the tree that it is
    used on decides, and comes back as text.

    Raises:
        ValueError: the text isn't a path.
    """
    rest = path[1:] if path.startswith("$") else path if path.startswith("[") else f".{path}"
    segments: list[Segment] = []
    position = 0
    while position < len(rest):
        match = _STEP.match(rest, position)
        if match is None:
            break
        name, index, quoted = match.groups()
        segments.append(name or (int(index) if index else ast.literal_eval(quoted)))
        position = match.end()
    if not segments or position < len(rest):
        raise ValueError(f"{path!r} is not a path; write it like run.algorithm.params.learning_rate")
    return tuple(segments)


def ancestors(path: str) -> Iterable[str]:
    """`path` itself, then each path around it, the root `$` last."""
    segments = parse(path) if path not in {"$", ""} else ()
    for length in range(len(segments), -1, -1):
        yield join(segments[:length])
