"""The meaning of an annotation as plain data, and the fields of a Config, shared by the converter and the schema."""

from __future__ import annotations

import dataclasses
import sys
from collections import abc
from collections.abc import Iterator, Mapping
from enum import Enum
from functools import cache
from pathlib import PurePath
from types import NoneType, UnionType
from typing import Any, Literal, NamedTuple, TypeAliasType, Union, get_args, get_origin, get_type_hints

import attrs

from evsys._plugins.models import is_pydantic
from evsys.errors import PluginContractError

__all__ = ["ConfigField", "Shape", "fields_of", "is_config", "shape_of"]

_SCALARS = {int: "integer", float: "number", str: "string", bool: "boolean", NoneType: "null", None: "null"}
_SEQUENCES: dict[Any, type] = {
    **dict.fromkeys((list, abc.MutableSequence), list),
    **dict.fromkeys((tuple, abc.Sequence, abc.Collection, abc.Iterable), tuple),
    **dict.fromkeys((set, abc.MutableSet), set),
    **dict.fromkeys((frozenset, abc.Set), frozenset),
}
_PLAIN = (str, int, float, NoneType)
_MAPPINGS = {dict, abc.Mapping, abc.MutableMapping}


class Shape(NamedTuple):
    """An annotation, understood.

    `kind` is a JSON type (integer, number, string, boolean, null) or any, path, choice, union, sequence, tuple, mapping,
    object; `target` the class to make, `parts` the annotations inside or the choices.
    """

    kind: str
    target: Any = None
    parts: tuple[Any, ...] = ()


def is_config(cls: Any) -> bool:
    """True for a class whose fields are declared: attrs, dataclass or pydantic."""
    declared = isinstance(cls, type) and (attrs.has(cls) or dataclasses.is_dataclass(cls))
    return declared or is_pydantic(cls)


@cache
def shape_of(annotation: Any) -> Shape:
    """Understand an annotation and those inside it.

    Raises:
        TypeError: it has no meaning as plain data.
    """
    origin, args = get_origin(annotation), get_args(annotation)
    if isinstance(annotation, TypeAliasType):
        return shape_of(annotation.__value__)
    if hasattr(annotation, "__supertype__"):  # of `NewType`
        return shape_of(annotation.__supertype__)
    shape = _shape(annotation, origin, args)
    for part in shape.parts if shape.kind != "choice" else ():
        shape_of(part)
    return shape


def _shape(annotation: Any, origin: Any, args: tuple[Any, ...]) -> Shape:  # noqa: C901 - a case for each form that an annotation takes
    base = origin or annotation
    if annotation in (Any, object):
        return Shape("any")
    if annotation in _SCALARS:
        return Shape(_SCALARS[annotation])
    if origin is Literal and all(isinstance(arg, _PLAIN) for arg in args):
        return Shape("choice", None, args)
    if origin in (Union, UnionType):
        return Shape("union", None, args)
    if base is tuple and args and args[-1] is not Ellipsis:
        return Shape("tuple", tuple, args)
    if base in _SEQUENCES:
        return Shape("sequence", _SEQUENCES[base], args[:1] or (Any,))
    if base in _MAPPINGS:
        return Shape("mapping", dict, args or (str, Any))
    if isinstance(base, type) and issubclass(base, Enum):
        values = tuple(member.value for member in base)
        if all(isinstance(value, _PLAIN) for value in values):
            return Shape("choice", base, values)
    if isinstance(base, type) and issubclass(base, PurePath):
        return Shape("path", base)
    if is_config(base):
        return Shape("object", base)
    raise TypeError(f"{annotation!r} has no meaning in an experiment file")


class ConfigField(NamedTuple):
    """A field of a Config. `key` is its name in a file, `aliases` are other accepted names."""

    name: str
    key: str
    annotation: Any
    default: Any
    validator: Any
    metadata: Mapping[Any, Any]

    @property
    def aliases(self) -> tuple[str, ...]:
        return tuple(self.metadata.get("aliases", ()))

    @property
    def deprecations(self) -> dict[str, str]:
        """The deprecated names of the field, each with the version since which it is."""
        aliases, whole = self.metadata.get("aliases", ()), self.metadata.get("deprecated")
        versions = aliases if isinstance(aliases, Mapping) else {}
        since = {name: whole or versions.get(name) for name in (self.key, *self.aliases)}
        return {name: version for name, version in since.items() if version}

    @property
    def required(self) -> bool:
        return self.default is attrs.NOTHING


@cache
def fields_of(cls: type) -> tuple[ConfigField, ...]:
    """The fields of an attrs class or dataclass that its constructor takes, annotations resolved.

    Raises:
        PluginContractError: an annotation can't be resolved or has no meaning; names class and field.
    """
    fields = tuple(_config_fields(cls, _resolve_hints(cls)))
    for field in fields:
        try:
            shape_of(field.annotation)
        except (TypeError, RecursionError) as exc:  # an alias may name itself without end
            raise PluginContractError(f"{_place(cls, field.name)}: its annotation {exc}") from exc
    return fields


def _config_fields(cls: type, hints: Mapping[str, Any]) -> Iterator[ConfigField]:
    if attrs.has(cls):
        for a in attrs.fields(cls):
            if a.init:
                annotation = hints.get(a.name, a.type or Any)
                yield ConfigField(a.name, a.alias or a.name, annotation, a.default, a.validator, a.metadata)
        return
    for f in dataclasses.fields(cls):
        if f.init:
            default = attrs.NOTHING if f.default is dataclasses.MISSING else f.default
            factory = None if f.default_factory is dataclasses.MISSING else attrs.Factory(f.default_factory)
            yield ConfigField(f.name, f.name, hints[f.name], factory or default, None, f.metadata)


def _resolve_hints(cls: type) -> dict[str, Any]:
    """Postponed annotations evaluated, where `get_type_hints` alone fails too: a class named inside its own plugin."""
    outer: Any = sys.modules.get(cls.__module__)
    scope = {cls.__name__: cls}
    for part in cls.__qualname__.split(".")[:-1]:
        outer = getattr(outer, part, None)
        scope |= {name: value for name, value in vars(outer or object).items() if isinstance(value, type)}
    try:
        hints = get_type_hints(cls, localns=scope)
    except NameError as exc:
        names = [field for field, text in cls.__annotations__.items() if str(exc.name) in str(text)]
        message = f"{_place(cls, names[0] if names else '')}: {exc.name!r} in its annotation isn't defined"
        hint = f"define or import it at the top of {cls.__module__}"
        raise PluginContractError(message, hint=hint) from exc
    if attrs.has(cls):
        attrs.resolve_types(cls, localns=scope)
    else:
        for field in dataclasses.fields(cls):
            field.type = hints[field.name]
    return hints


def _place(cls: type, field: str) -> str:
    return f"{cls.__module__}.{cls.__qualname__}.{field}"
