"""`${NAME}` in plugin params: an environment variable, put in only where a plugin is built, so that no record holds it.

Names are upper case; `${name}` in lower case is ordinary text, and `$${NAME}` is the text `${NAME}`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from typing import Any

from evsys_runtime.config import paths

__all__ = ["find", "mentions", "names_in", "redact", "resolve"]

_PLACEHOLDER = re.compile(r"(\$?)\$\{([A-Z_][A-Z0-9_]*)\}")


def names_in(text: str) -> list[str]:
    """The variables that a text asks for."""
    return [name for escaped, name in _PLACEHOLDER.findall(text) if not escaped]


def mentions(tree: Any) -> bool:
    """False where a tree surely holds no placeholder: a quick look before `find` and `resolve`."""
    if isinstance(tree, str):
        return "${" in tree
    if tree is None or isinstance(tree, int | float):
        return False
    if type(tree) is dict or isinstance(tree, Mapping):
        return any(map(mentions, tree.values()))
    return isinstance(tree, list | tuple) and any(map(mentions, tree))


def find(tree: Any, path: str = "$") -> Iterator[tuple[str, str]]:
    """The path and the variable of each placeholder in a tree."""
    if isinstance(tree, str):
        if "${" in tree:
            yield from ((path, name) for name in names_in(tree))
    elif isinstance(tree, Mapping):
        for key, value in tree.items():
            yield from find(value, paths.child(path, key))
    elif isinstance(tree, list | tuple):
        for index, value in enumerate(tree):
            yield from find(value, paths.child(path, index))


def resolve(tree: Any) -> Any:
    """The tree with the values of the variables put in. A variable that isn't set stays as it is written.

    The result may hold secrets: build plugins from it, and write it nowhere.
    """
    if isinstance(tree, str):
        return _PLACEHOLDER.sub(_value, tree) if "${" in tree else tree
    if isinstance(tree, Mapping):
        return {key: resolve(value) for key, value in tree.items()}
    if isinstance(tree, list | tuple):
        return [resolve(value) for value in tree]
    return tree


def _value(match: re.Match[str]) -> str:
    escaped, name = match.groups()
    return match[0][1:] if escaped else os.environ.get(name, match[0])


def redact(message: str, tree: Any) -> str:
    """A message about a resolved tree without the values put in."""
    values = {os.environ[name]: name for _, name in find(tree) if os.environ.get(name)}
    for value in sorted(values, key=len, reverse=True):
        message = message.replace(value, f"${{{values[value]}}}")
    return message
