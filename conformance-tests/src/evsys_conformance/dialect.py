"""The dialect of JSON Schema in which Configs are described: what a schema accepts, and values drawn from it.

Both are our own: the suite depends on hypothesis alone, and the schemas of Configs use few words.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import Any

from hypothesis import strategies as st

__all__ = ["LETTERS", "accepts", "property_of", "values"]

type Schema = Mapping[str, Any]

LETTERS = st.characters(exclude_categories=["Cs"])
"""All that UTF-8 can write. By its name hypothesis would look at every letter of it first, which takes seconds."""
_ANYTHING = st.one_of(st.none(), st.booleans(), st.integers(-9, 9), st.text(LETTERS, max_size=5))
_LARGEST = 1_000_000


def property_of(schema: Schema, name: str) -> Schema:
    """The schema of a property, references followed."""
    return _resolve(schema["properties"][name], schema)


def _resolve(schema: Schema, root: Schema) -> Schema:
    while "$ref" in schema:
        found: Any = root
        for part in schema["$ref"].removeprefix("#").strip("/").split("/"):
            found = found[part] if part else found
        schema = {**found, **{key: value for key, value in schema.items() if key != "$ref"}}
        if found is root:
            return schema
    return schema


# --- what a schema accepts ------------------------------------------------------------------------------------------


def accepts(schema: Schema, value: Any, root: Schema | None = None) -> bool:
    """True when `value` is allowed by `schema`. Words that say nothing about validity are passed over."""
    root = schema if root is None else root
    schema = _resolve(schema, root)
    tests: list[Callable[[Schema, Any, Schema], bool]] = [
        _type,
        _choice,
        _bounds,
        _text,
        _array,
        _object,
        _combined,
    ]
    return all(test(schema, value, root) for test in tests)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


_TYPES: dict[str, Callable[[Any], bool]] = {
    "null": lambda value: value is None,
    "boolean": lambda value: isinstance(value, bool),
    "integer": lambda value: _is_number(value) and float(value).is_integer(),
    "number": _is_number,
    "string": lambda value: isinstance(value, str),
    "array": lambda value: isinstance(value, list),
    "object": lambda value: isinstance(value, Mapping),
}


def _type(schema: Schema, value: Any, _root: Schema) -> bool:
    wanted = schema.get("type", [])
    kinds: list[str] = wanted if isinstance(wanted, list) else [wanted]
    return not kinds or any(_TYPES[kind](value) for kind in kinds)


def _choice(schema: Schema, value: Any, _root: Schema) -> bool:
    choices = [schema["const"]] if "const" in schema else schema.get("enum")
    return choices is None or any(
        value == choice and isinstance(value, bool) == isinstance(choice, bool) for choice in choices
    )


def _bounds(schema: Schema, value: Any, _root: Schema) -> bool:
    if not _is_number(value):
        return True
    return (
        value >= schema.get("minimum", -math.inf)
        and value <= schema.get("maximum", math.inf)
        and value > schema.get("exclusiveMinimum", -math.inf)
        and value < schema.get("exclusiveMaximum", math.inf)
        and math.isclose(math.remainder(value, schema.get("multipleOf", value or 1)), 0, abs_tol=1e-9)
    )


def _text(schema: Schema, value: Any, _root: Schema) -> bool:
    if not isinstance(value, str):
        return True
    length = schema.get("minLength", 0) <= len(value) <= schema.get("maxLength", math.inf)
    return length and ("pattern" not in schema or re.search(schema["pattern"], value) is not None)


def _array(schema: Schema, value: Any, root: Schema) -> bool:
    if not isinstance(value, list):
        return True
    first = schema.get("prefixItems", [])
    rest = value[len(first) :]
    return (
        schema.get("minItems", 0) <= len(value) <= schema.get("maxItems", math.inf)
        and all(accepts(part, item, root) for part, item in zip(first, value, strict=False))
        and all(
            accepts(schema["items"], item, root) for item in (rest if _is_schema(schema, "items") else ())
        )
        and not (schema.get("items") is False and rest)
        and not (schema.get("uniqueItems") and any(item in value[:i] for i, item in enumerate(value)))
    )


def _object(schema: Schema, value: Any, root: Schema) -> bool:
    if not isinstance(value, Mapping):
        return True
    known = schema.get("properties", {})
    others = [key for key in value if key not in known]
    return (
        schema.get("minProperties", 0) <= len(value) <= schema.get("maxProperties", math.inf)
        and all(key in value for key in schema.get("required", ()))
        and all(accepts(known[key], item, root) for key, item in value.items() if key in known)
        and not (schema.get("additionalProperties") is False and others)
        and ("propertyNames" not in schema or all(accepts(schema["propertyNames"], k, root) for k in value))
        and (
            not _is_schema(schema, "additionalProperties")
            or all(accepts(schema["additionalProperties"], value[key], root) for key in others)
        )
    )


def _is_schema(schema: Schema, word: str) -> bool:
    return isinstance(schema.get(word), Mapping)


def _combined(schema: Schema, value: Any, root: Schema) -> bool:
    return (
        all(accepts(part, value, root) for part in schema.get("allOf", ()))
        and ("anyOf" not in schema or any(accepts(part, value, root) for part in schema["anyOf"]))
        and ("oneOf" not in schema or sum(accepts(part, value, root) for part in schema["oneOf"]) == 1)
        and ("not" not in schema or not accepts(schema["not"], value, root))
    )


# --- values drawn from it -------------------------------------------------------------------------------------------


def values(schema: Schema, root: Schema | None = None, depth: int = 0) -> st.SearchStrategy[Any]:
    """A strategy of values that `schema` accepts."""
    root = schema if root is None else root
    schema = _resolve(schema, root)
    drawn = _draw(schema, root, depth)
    return drawn.filter(lambda value: accepts(schema, value, root))


def _draw(schema: Schema, root: Schema, depth: int) -> st.SearchStrategy[Any]:
    if "const" in schema:
        return st.just(schema["const"])
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    for word in ("anyOf", "oneOf"):
        if word in schema and "type" not in schema:
            parts = [{**{k: v for k, v in schema.items() if k != word}, **part} for part in schema[word]]
            return st.one_of([values(part, root, depth) for part in parts])
    kinds = schema["type"] if isinstance(schema.get("type"), list) else [schema.get("type")]
    return st.one_of([_of_type(kind, schema, root, depth) for kind in kinds])


def _of_type(kind: Any, schema: Schema, root: Schema, depth: int) -> st.SearchStrategy[Any]:
    match kind:
        case "null":
            return st.none()
        case "boolean":
            return st.booleans()
        case "integer":
            return _integers(schema)
        case "number":
            return _floats(schema)
        case "string":
            if "pattern" in schema:
                return st.from_regex(schema["pattern"], alphabet=LETTERS)
            return st.text(LETTERS, min_size=schema.get("minLength", 0), max_size=schema.get("maxLength", 20))
        case "array":
            return _arrays(schema, root, depth)
        case "object":
            return _objects(schema, root, depth)
    return _ANYTHING


def _integers(schema: Schema) -> st.SearchStrategy[int]:
    low = max(
        math.ceil(schema.get("minimum", -_LARGEST)),
        math.floor(schema.get("exclusiveMinimum", -math.inf)) + 1
        if "exclusiveMinimum" in schema
        else -_LARGEST,
    )
    high = min(
        math.floor(schema.get("maximum", _LARGEST)),
        math.ceil(schema["exclusiveMaximum"]) - 1 if "exclusiveMaximum" in schema else _LARGEST,
    )
    return st.integers(low, max(low, high))


def _floats(schema: Schema) -> st.SearchStrategy[float]:
    low = schema.get("exclusiveMinimum", schema.get("minimum", -_LARGEST))
    high = schema.get("exclusiveMaximum", schema.get("maximum", max(_LARGEST, low)))
    return st.floats(
        float(low),
        float(high),
        exclude_min="exclusiveMinimum" in schema,
        exclude_max="exclusiveMaximum" in schema,
        allow_nan=False,
        allow_infinity=False,
    )


def _arrays(schema: Schema, root: Schema, depth: int) -> st.SearchStrategy[Any]:
    first = [values(part, root, depth + 1) for part in schema.get("prefixItems", ())]
    if first:
        return st.tuples(*first).map(list)
    fewest = schema.get("minItems", 0)
    most = max(fewest, min(schema.get("maxItems", 3), 3 if depth < 3 else 0))
    item = values(schema["items"], root, depth + 1) if _is_schema(schema, "items") else _ANYTHING
    return st.lists(item, min_size=fewest, max_size=most)


def _objects(schema: Schema, root: Schema, depth: int) -> st.SearchStrategy[Any]:
    if schema.get("properties"):
        required = set(schema.get("required", ()))
        fields = {
            name: values(part, root, depth + 1)
            for name, part in schema["properties"].items()
            if name in required or (depth < 3 and "x-evsys-alias-of" not in part)
        }
        optional = {name: field for name, field in fields.items() if name not in required}
        return st.fixed_dictionaries(
            {name: fields[name] for name in fields if name in required}, optional=optional
        )
    if schema.get("additionalProperties") is False:
        return st.just({})
    inside = schema.get("additionalProperties")
    names = (
        values(schema["propertyNames"], root) if "propertyNames" in schema else st.text(LETTERS, max_size=5)
    )
    item = values(inside, root, depth + 1) if isinstance(inside, Mapping) else _ANYTHING
    fewest = schema.get("minProperties", 0)
    return st.dictionaries(names, item, min_size=fewest, max_size=max(fewest, 3 if depth < 3 else 0))
