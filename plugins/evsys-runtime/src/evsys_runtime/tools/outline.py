"""A JSON Schema in few words: one line a key, with its type and default, below the key that it belongs to."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

__all__ = ["outline"]

_INDENT = "  "
_LONGEST_DEFAULT = 30
_LONGEST_CHOICE = 60
_BOUNDS = {"minimum": ">=", "exclusiveMinimum": ">", "maximum": "<=", "exclusiveMaximum": "<"}


def outline(schema: Mapping[str, Any]) -> str:
    """The keys of a schema with types and defaults; `!` marks those required. A class is written out once, where it first occurs.

    Args:
        schema: of an object.
    """
    return "\n".join(_Outline(schema).lines(schema, 0))


class _Outline:
    """Walks a schema; `seen` are the classes written out."""

    def __init__(self, root: Mapping[str, Any]) -> None:
        self._root = root
        self._seen: set[str] = set()

    def lines(self, schema: Mapping[str, Any], depth: int) -> Iterator[str]:
        required = schema.get("required", ())
        for name, found in schema.get("properties", {}).items():
            if found.get("deprecated") or "x-evsys-alias-of" in found:
                continue
            below = self._below(found)
            title = None if below is None else str(below.get("title", name))
            yield f"{_INDENT * depth}{name}{'!' if name in required else ''}: {self._type(found)}{_default(found)}"
            if below is not None and title is not None and title not in self._seen:
                self._seen.add(title)
                yield from self.lines(below, depth + 1)

    def _type(self, schema: Mapping[str, Any]) -> str:
        choices = [each for each in _choices(schema) if each.get("type") != "null"]
        if choices:
            return "|".join(dict.fromkeys(map(self._type, choices)))
        if "$ref" in schema:
            found = self._resolved(schema)
            kinds = _kinds(found)
            return f"{{kind: {'|'.join(kinds)}, params}}" if kinds else str(found.get("title", "object"))
        if "enum" in schema or "const" in schema:
            values = schema.get("enum", [schema.get("const")])
            text = "|".join("null" if value is None else str(value) for value in values)
            return text if len(text) <= _LONGEST_CHOICE else f"one of {len(values)}"
        if schema.get("type") == "array":
            return f"[{self._type(schema.get('items') or {})}]"
        bounds = "".join(f" {sign}{schema[name]:g}" for name, sign in _BOUNDS.items() if name in schema)
        kind = schema.get("type", "any")
        words = "|".join(each for each in kind if each != "null") if isinstance(kind, list) else str(kind)
        return f"{words}{bounds}"

    def _below(self, schema: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """The object that a value holds, by itself, in a list or as a choice; None for one of several plugins."""
        found = self._resolved(schema)
        if _kinds(found):
            return None
        if found.get("properties"):
            return found
        for each in (*_choices(found), *([found["items"]] if "items" in found else [])):
            below = self._below(each)
            if below is not None:
                return below
        return None

    def _resolved(self, schema: Mapping[str, Any]) -> Mapping[str, Any]:
        while "$ref" in schema:
            reference = str(schema["$ref"])
            schema = self._root if reference == "#" else self._root["$defs"][reference.rpartition("/")[2]]
        return schema


def _choices(schema: Mapping[str, Any]) -> tuple[Mapping[str, Any], ...]:
    return (*schema.get("anyOf", ()), *schema.get("oneOf", ()))


def _kinds(schema: Mapping[str, Any]) -> list[str]:
    """The names of the plugins that a value may be one of, without those of their distributions."""
    kinds = [each.get("properties", {}).get("kind", {}).get("const") for each in _choices(schema)]
    return [kind for kind in kinds if kind is not None and "/" not in kind] if all(kinds) else []


def _default(schema: Mapping[str, Any]) -> str:
    if schema.get("default") in (None, [], {}):
        return ""
    text = json.dumps(schema["default"], ensure_ascii=False)
    return f" = {text}" if len(text) <= _LONGEST_DEFAULT else " = ..."
