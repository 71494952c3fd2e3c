"""Results as files hold them: JSON values of the classes that are written, and back.

Every field is always there; what isn't known is null. `format` is 1 until a field changes its meaning or goes.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from evsys.errors import ConfigError, StoreError
from evsys_record.encoding import as_tree
from evsys_record.files import FORMAT

__all__ = ["read_as", "read_file_as", "result_tree"]


def result_tree(result: Any) -> dict[str, Any]:
    """A result as JSON values, `format` first: what a result file holds and `--json` prints.

    Final metrics of a run are numbers: one that wasn't finite is left out, with a warning in its place.
    """
    tree: dict[str, Any] = as_tree(result)
    for arm in (tree, *tree.get("arms", ())):
        run = arm.get("run") if isinstance(arm, dict) else None
        if isinstance(run, dict):
            odd = [name for name, value in run["metrics"].items() if value is None]
            run["metrics"] = {name: value for name, value in run["metrics"].items() if value is not None}
            run["warnings"] += [f"metric {name!r} wasn't finite at the end" for name in odd]
    return {"format": FORMAT, **tree}


def read_as[T](cls: type[T], tree: Mapping[str, Any]) -> T:
    """The object written as `tree`.

    Raises:
        ConfigError: the tree isn't of this shape; every problem with its path.
    """
    from evsys._plugins.structuring import structure

    return structure(cls, _of_this_version({key: value for key, value in tree.items() if key != "format"}))


def read_file_as[T](cls: type[T], tree: Mapping[str, Any], path: Path, *, what: str | None = None) -> T:
    """`read_as` of what a file holds.

    Args:
        cls: of the object.
        tree: what the file holds.
        path: the file, or the folder that it is in.
        what: names it in the message; its path by default.

    Raises:
        StoreError: it isn't of this shape.
    """
    try:
        return read_as(cls, tree)
    except ConfigError as exc:
        raise StoreError(f"{what or path} isn't as this version writes it: {exc}", path=str(path)) from exc


def _of_this_version(tree: Any) -> Any:
    """A tree that an earlier version wrote, as this one would write it.

    Comparisons had the interval of each arm alone and, as `corrected_low` and `corrected_high`, the one that holds for all arms
    together, which is the only one now.
    """
    if isinstance(tree, Mapping):
        current = {key: _of_this_version(value) for key, value in tree.items()}
        low, high = current.pop("corrected_low", None), current.pop("corrected_high", None)
        if low is not None or high is not None:
            current |= {"low": low, "high": high}
        return current
    return [_of_this_version(value) for value in tree] if isinstance(tree, list | tuple) else tree
