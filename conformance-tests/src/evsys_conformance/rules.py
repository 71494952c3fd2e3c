"""The refusals of a Config that no schema can predict: rules of its own, over a value or over several fields."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, get_args

from evsys.errors import Problem

__all__ = ["fields_read_more_widely", "is_own_rule"]


def is_own_rule(config: type, tree: Mapping[str, Any], problem: Problem) -> bool:
    """True when a problem can come from a rule that the Config's author wrote in Python.

    Such are rules over several fields, which are reported at the object that holds them, and validators other than
    those of attrs, which are reported at their field.
    """
    path = _keys(problem.path)
    value: Any = tree
    for key in path:
        value = value[key] if not isinstance(value, Mapping) or key in value else None
    if not path or (isinstance(value, Mapping) and not problem.message.startswith("expected")):
        return True
    return str(path[0]) in set(_validated_names(config))


def fields_read_more_widely(config: Any) -> frozenset[str]:
    """Fields of a pydantic model of which its own code sees the value before pydantic does, also inside of nested models.

    Such a validator may split a text into a list, or fill in what is missing; what the schema says holds for its result.
    """
    fields = getattr(config, "model_fields", {})
    decorators = getattr(config, "__pydantic_decorators__", None)
    names = {name: {name, info.alias or name} for name, info in fields.items()}
    every = frozenset().union(*names.values()) if names else frozenset()
    if any(rule.info.mode != "after" for rule in getattr(decorators, "model_validators", {}).values()):
        return every
    found: set[str] = set()
    for rule in getattr(decorators, "field_validators", {}).values():
        if rule.info.mode != "after":
            found |= every if "*" in rule.info.fields else {*rule.info.fields}
    for name, info in fields.items():
        own = any(type(item).__name__ in _FIRST for item in _metadata(info))
        if own or any(fields_read_more_widely(part) for part in _models(info.annotation)):
            found.add(name)
    return frozenset(other for name in found for other in names.get(name, {name}))


_FIRST = {"BeforeValidator", "WrapValidator", "PlainValidator"}


def _metadata(info: Any) -> Iterator[Any]:
    """The `Annotated` metadata of a field, and of the parts of its annotation."""
    yield from info.metadata
    parts = [info.annotation]
    while parts:
        part = parts.pop()
        yield from getattr(part, "__metadata__", ())
        parts += get_args(part)


def _models(annotation: Any) -> Iterator[Any]:
    if hasattr(annotation, "model_fields"):
        yield annotation
    for part in get_args(annotation):
        yield from _models(part)


def _keys(path: str) -> list[str | int]:
    found = re.findall(r"\.(\w+)|\[(\d+)\]|\[(['\"])(.*?)\3\]", path.removeprefix("$"))
    return [name or quoted if not index else int(index) for name, index, _, quoted in found]


def _validated_names(config: Any) -> Iterator[str]:
    """Names of the fields that validators of their own look at, also by those of a Config inside them."""
    for field in getattr(config, "__attrs_attrs__", ()):
        inside = any(True for part in _configs(field.type) if any(_validated_names(part)))
        if inside or any(
            not type(rule).__module__.startswith("attr") for rule in _validators(field.validator)
        ):
            yield from (field.name, field.alias, *field.metadata.get("aliases", ()))
    decorators = getattr(config, "__pydantic_decorators__", None)
    for rule in getattr(decorators, "field_validators", {}).values():
        yield from rule.info.fields
    for name, info in getattr(config, "model_fields", {}).items():
        if any(type(item).__name__.endswith("Validator") for item in info.metadata):
            yield from (name, info.alias or name)


def _validators(validator: Any) -> Iterator[Any]:
    if validator is None:
        return
    inner = [*getattr(validator, "_validators", ()), getattr(validator, "validator", None)]
    inner = [
        one
        for part in inner
        if part is not None
        for one in (part if isinstance(part, tuple | list) else [part])
    ]
    if inner and type(validator).__module__.startswith("attr"):
        for one in inner:
            yield from _validators(one)
    else:
        yield validator


def _configs(annotation: Any) -> Iterator[Any]:
    if hasattr(annotation, "__attrs_attrs__"):
        yield annotation
    for part in get_args(annotation):
        yield from _configs(part)
