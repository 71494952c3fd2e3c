"""A user's function by its dotted path."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

from evsys.errors import PLUGIN_FAILURES

__all__ = ["load_function"]


def load_function(path: str) -> Callable[..., Any]:
    """The function that `package.module.name` or `package.module:name` means.

    Raises:
        ValueError: it can't be imported, isn't there, or isn't callable; says which.
    """
    module_name, _, name = path.rpartition(":" if ":" in path else ".")
    if not module_name or not name:
        raise ValueError(f"{path!r} is not a path of a function; write package.module.name")
    try:
        module = import_module(module_name)
    except PLUGIN_FAILURES as exc:
        raise ValueError(f"{path!r} can't be imported: {type(exc).__name__}: {exc}") from exc
    function = getattr(module, name, None)
    if not callable(function):
        what = "has no function" if function is None else "has something that can't be called by the name"
        raise ValueError(f"{module_name!r} {what} {name!r}")  # noqa: TRY004 - the parameter is wrong, not a type
    return function  # type: ignore[no-any-return] # callable, and no more is known
