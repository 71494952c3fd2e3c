"""Plain values to objects, strictly: nothing is guessed, and every problem is reported with its place.

`_examine` goes over a class field by field and finds all faults. For a class of which there are many values cattrs
compiles a function, with the same hooks, for those that are right; a file with one arm doesn't even import it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache, partial
from pathlib import PurePath
from types import NoneType
from typing import Any, NoReturn, cast

import attrs

from evsys._plugins.models import is_pydantic, made_by_pydantic
from evsys._plugins.plain import unstructure
from evsys._plugins.refusals import closest
from evsys._plugins.shape import ConfigField, Shape, fields_of, shape_of
from evsys._plugins.wording import mismatch
from evsys.errors import ConfigError, EvsysError, Problem

__all__ = ["json_path", "structure", "unstructure"]

type Hook = Callable[..., Any]
type Fault = tuple[tuple[Any, ...], str, str | None]

_COMPILE_AFTER = 10
"""How many values of a class are examined before a function is compiled for it, which takes as long as some tens of them."""

_SCALARS: dict[str, Any] = {"boolean": bool, "null": NoneType, "path": (str, PurePath), "string": str}
_PYTHON = {"boolean": bool, "integer": int, "null": NoneType, "number": float, "string": str}


class _Invalid(Exception):  # noqa: N818 - control flow: becomes a ConfigError at the edge
    """The faults inside a value: the path below it, a message and a hint for each fault."""

    def __init__(self, *faults: Fault) -> None:
        super().__init__(*faults)
        self.faults = faults


class _Mismatch(_Invalid):
    """The value as a whole is of another type."""

    def __init__(self, shape: Shape, value: Any) -> None:
        super().__init__(((), *mismatch(shape, value)))


def structure[T](cls: type[T], tree: Any, *, path: str = "$") -> T:
    """Make a `cls` from plain values as JSON or YAML gives them.

    Args:
        cls: an attrs class, a dataclass, a pydantic model, or any annotation that a field of these may have.
        tree: mappings, lists and scalars.
        path: where `tree` is in its file; problems are reported under it.

    Raises:
        ConfigError: every problem at once, each with its JSON path.
        PluginContractError: a field of `cls` has an annotation that means nothing in a file.
    """
    try:
        return cast("T", _hook(cast("Any", cls))(tree))
    except _Invalid as exc:
        problems = [
            Problem(path=json_path(path, *at), message=text, hint=hint) for at, text, hint in exc.faults
        ]
        raise ConfigError(problems) from None


def json_path(path: str, *keys: str | int) -> str:
    """`path` continued by keys and indices: `$.run`, `$.matrix.axes['run.seed'][1]`."""
    for key in keys:
        path += f".{key}" if isinstance(key, str) and key.isidentifier() else f"[{key!r}]"
    return path


@cache
def _hook(annotation: Any) -> Hook:
    """The function that structures one annotation; cattrs calls it with the annotation as a second argument."""
    shape = shape_of(annotation)
    match shape.kind:
        case "any":
            return lambda value, _=None: value
        case "integer":
            return _integer
        case "number":
            return _number
        case "choice":
            return partial(_choice, shape)
        case "union":
            return _union(shape)
        case "sequence":
            return partial(_sequence, shape.target, _hook(shape.parts[0]))
        case "tuple":
            return partial(_tuple, [_hook(part) for part in shape.parts])
        case "mapping":
            integers = shape_of(shape.parts[0]).kind == "integer"
            key_hook = _integer_key if integers else _hook(shape.parts[0])
            return partial(_mapping, key_hook, _hook(shape.parts[1]))
        case "object":
            return partial(_model, shape.target) if is_pydantic(shape.target) else _object(shape.target)
    return partial(_scalar, shape)


def _scalar(shape: Shape, value: Any, _: Any = None) -> Any:
    if isinstance(value, _SCALARS[shape.kind]):
        return shape.target(value) if shape.target else value
    raise _Mismatch(shape, value)


def _integer(value: Any, _: Any = None) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, float) and value.is_integer():
        return int(value)
    raise _Mismatch(Shape("integer"), value)


def _number(value: Any, _: Any = None) -> float:
    is_number = isinstance(value, float | int) and not isinstance(value, bool)
    if is_number and -sys.float_info.max <= value <= sys.float_info.max:
        return float(value)
    raise _Mismatch(Shape("number"), value)


def _choice(shape: Shape, value: Any, _: Any = None) -> Any:
    for choice in shape.parts:
        if value == choice and isinstance(value, bool) == isinstance(choice, bool):
            return shape.target(choice) if shape.target else choice
    if shape.target and isinstance(value, shape.target):
        return value
    raise _Mismatch(shape, value)


def _union(shape: Shape) -> Hook:
    members = [(shape_of(part), _hook(part)) for part in shape.parts]
    by_type = {_PYTHON[member.kind]: hook for member, hook in members if member.kind in _PYTHON}
    by_tag = {tag: hook for member, hook in members for tag in _tags(member)}
    for_mappings = [hook for member, hook in members if member.kind in {"any", "mapping", "object"}]

    def structure_union(value: Any, _: Any = None) -> Any:
        if hook := by_type.get(type(value)):  # 1 stays the integer that was written, whatever the order
            return hook(value)
        is_mapping = isinstance(value, Mapping)
        if is_mapping and isinstance(value.get("kind"), str) and by_tag:
            return by_tag.get(value["kind"], partial(_unknown_tag, by_tag))(value)
        refusals = []
        for hook in for_mappings if is_mapping else [hook for _member, hook in members]:
            try:
                return hook(value)
            except _Invalid as exc:
                refusals.append(exc)
        meant = [exc for exc in refusals if not isinstance(exc, _Mismatch)]
        raise min(meant, key=lambda exc: len(exc.faults)) if meant else _Mismatch(shape, value)

    return structure_union


def _tags(member: Shape) -> tuple[Any, ...]:
    """The values of `kind` that choose this class among others."""
    fields = fields_of(member.target) if member.kind == "object" and not is_pydantic(member.target) else ()
    shapes = [shape_of(field.annotation) for field in fields if field.key == "kind"]
    return shapes[0].parts if shapes and shapes[0].kind == "choice" else ()


def _unknown_tag(tags: Iterable[Any], value: Mapping[str, Any]) -> NoReturn:
    raise _Invalid((("kind",), *mismatch(Shape("choice", None, tuple(tags)), value["kind"])))


def _sequence(target: Any, hook: Hook, value: Any, _: Any = None) -> Any:
    if not isinstance(value, (list, tuple) if target in {list, tuple} else (list, tuple, set, frozenset)):
        raise _Mismatch(Shape("sequence"), value)
    return target(_whole((index, item, hook) for index, item in enumerate(value)).values())


def _tuple(hooks: list[Hook], value: Any, _: Any = None) -> Any:
    if not isinstance(value, list | tuple):
        raise _Mismatch(Shape("tuple"), value)
    if len(value) != len(hooks):
        raise _Invalid(((), f"expected {len(hooks)} items, got {len(value)}", None))
    return tuple(_whole(zip(range(len(hooks)), value, hooks, strict=True)).values())


def _mapping(key_hook: Hook, hook: Hook, value: Any, _: Any = None) -> dict[Any, Any]:
    if not isinstance(value, Mapping):
        raise _Mismatch(Shape("mapping"), value)
    keys = _whole((key, key, key_hook) for key in value)
    return {keys[key]: item for key, item in _whole((key, item, hook) for key, item in value.items()).items()}


def _integer_key(value: Any, _: Any = None) -> int:
    return int(value) if isinstance(value, str) and value.lstrip("-").isdecimal() else _integer(value)


def _parts(parts: Iterable[tuple[Any, Any, Hook]]) -> tuple[dict[Any, Any], list[Fault]]:
    """Structure each (key, value, hook): what was made by key, and all faults."""
    made, faults = {}, []
    for key, value, hook in parts:
        try:
            made[key] = hook(value)
        except _Invalid as exc:
            faults += [((key, *at), text, hint) for at, text, hint in exc.faults]
        except EvsysError:
            raise
        except Exception as exc:
            faults.append(((key,), _error_text(exc), None))
    return made, faults


def _whole(parts: Iterable[tuple[Any, Any, Hook]]) -> dict[Any, Any]:
    made, faults = _parts(parts)
    if faults:
        raise _Invalid(*faults)
    return made


def _object(cls: Any) -> Hook:
    compiled: Hook | None = None
    seen = 0

    def structure_object(value: Any, _: Any = None) -> Any:
        nonlocal compiled, seen
        if type(value) is dict or isinstance(value, Mapping):
            if compiled is None:
                if seen < _COMPILE_AFTER:
                    seen += 1
                    return _examine(cls, value)
                compiled = _compile(cls)
            try:
                return compiled(value)
            except Exception:
                return _examine(cls, value)
        if isinstance(value, cls):
            return value
        raise _Mismatch(Shape("object"), value)

    return structure_object


def _compile(cls: Any) -> Hook:
    from cattrs.gen import make_dict_structure_fn, override

    hooks = {f.name: override(rename=f.key, struct_hook=_field_hook(f)) for f in fields_of(cls)}
    return cast("Hook", make_dict_structure_fn(cls, _converter(), **cast("Any", hooks)))


@cache
def _converter() -> Any:
    from cattrs import Converter

    return Converter(detailed_validation=False, forbid_extra_keys=True)


def _field_hook(field: ConfigField) -> Hook:
    if not field.metadata.get("non_finite"):
        return _hook(field.annotation)
    return lambda value, _=None: value if isinstance(value, float) else _hook(field.annotation)(value)


def _examine(cls: Any, value: Mapping[Any, Any]) -> Any:
    """Structure a class field by field, with the other names of fields, and find every fault."""
    fields = fields_of(cls)
    names = {name: field.key for field in fields for name in (field.key, *field.aliases)}
    given, faults = _match_names(names, value)
    present = [field for field in fields if field.key in given]
    parts, wrong = _parts((given[f.key], value[given[f.key]], _field_hook(f)) for f in present)
    made = {key: parts[name] for key, name in given.items() if name in parts}
    meant = {hint for _at, _text, hint in faults}  # a required key that is misspelt is one problem, not two
    absent = [f.key for f in fields if f.required and f.key not in given]
    wrong += [((key,), "is missing", None) for key in absent if closest(key, [key]) not in meant]
    faults += wrong + [((given[key],), text, None) for key, text in _refusals(cls, fields, made)]
    if faults:
        raise _Invalid(*faults)
    try:
        return cls(**made)
    except Exception as exc:
        raise _Invalid(((), _error_text(exc), None)) from exc


def _match_names(names: Mapping[Any, str], value: Iterable[Any]) -> tuple[dict[str, Any], list[Fault]]:
    """Under which name each field is given, and the names that none has."""
    given: dict[str, Any] = {}
    faults: list[Fault] = []
    for key in value:
        if key not in names:
            known = f"known: {', '.join(names)}" if names else "it takes none"
            faults.append(((key,), f"unknown key {key!r}", closest(key, names) or known))
        elif names[key] in given:
            faults.append(((key,), f"means the same as {given[names[key]]!r}", "keep one of them"))
        else:
            given[names[key]] = key
    return given, faults


def _refusals(cls: Any, fields: Iterable[ConfigField], made: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Run each field's validators by themselves: the constructor would stop at the first that refuses."""
    probe = object.__new__(cls)
    for field in fields:
        if field.key in made or not isinstance(field.default, attrs.Factory | type(attrs.NOTHING)):
            object.__setattr__(probe, field.name, made.get(field.key, field.default))
    for field in fields:
        attribute = attrs.fields_dict(cls)[field.name] if field.validator and field.key in made else None
        try:
            if attribute and not attribute.converter:
                field.validator(probe, attribute, made[field.key])
        except AttributeError:
            continue  # it looks at another field, which isn't there or wrong itself
        except Exception as exc:
            yield field.key, _error_text(exc)


def _model(cls: Any, value: Any, _: Any = None) -> Any:
    if isinstance(value, cls):
        return value
    if not isinstance(value, Mapping):
        raise _Mismatch(Shape("object"), value)
    made, faults = made_by_pydantic(cls, value)
    if faults:
        raise _Invalid(*faults)
    return made


def _error_text(exc: Exception) -> str:
    """The message of an exception; attrs puts its sentence first and the objects concerned after it."""
    first = exc.args[0] if exc.args and isinstance(exc, TypeError | ValueError) else None
    return first if isinstance(first, str) else f"{type(exc).__name__}: {exc}"
