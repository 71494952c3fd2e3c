"""Objects back to plain JSON values."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from enum import Enum
from pathlib import PurePath
from typing import Any

import attrs

__all__ = ["unstructure"]


def unstructure(obj: Any) -> Any:
    """The plain tree of a value: what `structure` makes it from, and what JSON can hold.

    Attrs objects, dataclasses and pydantic models become mappings, tuples lists, sets sorted lists, enums their values,
    paths text, arrays and numbers of numpy lists and numbers.

    Raises:
        TypeError: there is something inside that JSON has no words for.
    """
    if isinstance(obj, Enum):
        return unstructure(obj.value)
    if obj is None or isinstance(obj, str | int | float):
        return obj
    if isinstance(obj, Mapping):
        return {str(unstructure(key)): unstructure(value) for key, value in obj.items()}
    if isinstance(obj, list | tuple):
        return [unstructure(item) for item in obj]
    if isinstance(obj, set | frozenset):
        return sorted(map(unstructure, obj), key=repr)
    if isinstance(obj, PurePath):
        return str(obj)
    if hasattr(obj, "model_dump"):
        return obj.model_dump(mode="json", by_alias=True)
    if hasattr(obj, "tolist"):
        return obj.tolist()
    is_dataclass = dataclasses.is_dataclass(obj)
    if not is_dataclass and not attrs.has(type(obj)):
        raise TypeError(f"{type(obj).__qualname__} can't be written as JSON")
    fields: Any = dataclasses.fields(obj) if is_dataclass else attrs.fields(type(obj))
    return {getattr(f, "alias", f.name): unstructure(getattr(obj, f.name)) for f in fields if f.init}
