"""Tables of params, made from JSON Schemas: names, types with bounds, defaults, meanings with sources."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

__all__ = ["param_tables", "shared_params"]

type Schema = Mapping[str, Any]

_BOUNDS = {
    "minimum": "≥ {}",
    "exclusiveMinimum": "> {}",
    "maximum": "≤ {}",
    "exclusiveMaximum": "< {}",
    "minLength": "at least {} characters",
    "maxLength": "at most {} characters",
    "minItems": "at least {} items",
    "maxItems": "at most {} items",
    "minProperties": "at least {} keys",
    "maxProperties": "at most {} keys",
    "pattern": "matches `{}`",
}
_SIZES = {"minLength", "minItems", "minProperties"}
_TYPES = {
    "integer": "integer",
    "number": "number",
    "string": "text",
    "boolean": "boolean",
    "null": "null",
    "object": "mapping",
}
_HEAD = "| param | takes | default | meaning |\n| --- | --- | --- | --- |"
_MANY = 10
"""Plugins of a kind have a table of shared params if it saves at least so many rows."""


def param_tables(schema: Schema, *, left_out: Sequence[str] = ()) -> str:
    """The table of a Config, and below it one for each class that it holds.

    Args:
        schema: of the whole Config, with its `$defs`.
        left_out: rows that are printed elsewhere, as `shared_params` gives them.
    """
    if not schema.get("properties"):
        return "Takes any params." if schema.get("additionalProperties") else "Takes no params."
    rows = [row for row in _rows(schema) if row not in left_out]
    tables = ["\n".join([_HEAD, *rows])] if rows else []
    for name, inner in schema.get("$defs", {}).items():
        if inner.get("properties"):
            tables.append(f"A `{name}`:\n\n" + "\n".join([_HEAD, *_rows(inner)]))
    return "\n\n".join(tables)


def shared_params(schemas: Mapping[str, Schema]) -> dict[str, list[str]]:
    """Rows that several plugins of a kind have alike, with the names of those plugins.

    Nothing is shared where a table of its own would save only a few rows.
    """
    found: dict[str, list[str]] = {}
    for name, schema in schemas.items():
        for row in _rows(schema) if schema.get("properties") else ():
            found.setdefault(row, []).append(name)
    shared = {row: names for row, names in found.items() if len(names) > 1}
    return shared if sum(len(names) - 1 for names in shared.values()) >= _MANY else {}


def _rows(schema: Schema) -> list[str]:
    required = schema.get("required", ())
    aliases: dict[str, list[str]] = {}
    for name, prop in schema["properties"].items():
        if meant := prop.get("x-evsys-alias-of"):
            aliases.setdefault(meant, []).append(_alias(name, prop))
    return [
        _row(name, prop, aliases.get(name, []), required=name in required)
        for name, prop in schema["properties"].items()
        if "x-evsys-alias-of" not in prop
    ]


def _alias(name: str, prop: Schema) -> str:
    """An alias in backticks, and since when it is deprecated, if it is."""
    since = prop.get("description", "").partition(" (deprecated since ")[2].rstrip(")")
    return f"`{name}`" + (f", deprecated since {since}" if prop.get("deprecated") else "")


def _row(name: str, prop: Schema, aliases: list[str], *, required: bool) -> str:
    names = f"`{name}`" + (f" (also {', '.join(aliases)})" if aliases else "")
    default = (
        "" if required or "default" not in prop else f"`{json.dumps(prop['default'], ensure_ascii=False)}`"
    )
    meaning = " ".join(filter(None, [prop.get("description", ""), _sources(prop)]))
    cells = [
        names,
        ", ".join([" or ".join(dict.fromkeys(_types(prop))), *_bounds(prop)]),
        "required" if required else default,
        meaning,
    ]
    return f"| {' | '.join(cell.replace('|', '&#124;').replace(chr(10), ' ') for cell in cells)} |"


def _sources(prop: Schema) -> str:
    """Where a default or formula comes from, each address as a link."""
    parts = prop.get("x-evsys-source", "").split("; ")
    links = [
        re.sub(r"^(?:(.*), )?(https?://\S+)$", lambda m: f"[{m[1] or 'source'}]({m[2]})", part)
        for part in parts
    ]
    return f"({'; '.join(links)})" if links != [""] else ""


def _types(prop: Schema) -> Iterator[str]:
    """What a param takes, in words; an enumeration says its values."""
    if "enum" in prop:
        yield from (f"`{json.dumps(value, ensure_ascii=False)}`" for value in prop["enum"])
    elif "const" in prop:
        yield f"`{json.dumps(prop['const'], ensure_ascii=False)}`"
    elif "$ref" in prop:
        yield f"`{prop['$ref'].rpartition('/')[2]}`"
    elif "anyOf" in prop:
        for part in prop["anyOf"]:
            yield from _types(part)
    elif prop.get("type") == "array":
        items = prop.get("items") or {}
        inside = " or ".join(_types(items)) if items else "anything"
        yield f"list of {inside}" if "prefixItems" not in prop else "list"
    elif prop.get("type") == "object" and prop.get("additionalProperties"):
        yield f"mapping to {' or '.join(_types(prop['additionalProperties']))}"
    elif "type" in prop:
        yield _TYPES[prop["type"]]
    else:
        yield "anything"


def _bounds(prop: Schema) -> Iterator[str]:
    parts = [prop, *prop.get("anyOf", ())]
    for key, words in _BOUNDS.items():
        for bound in [part[key] for part in parts if key in part]:
            yield "not empty" if key in _SIZES and bound == 1 else words.format(bound)
