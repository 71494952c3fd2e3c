"""Answers shortened to a number of tokens: lists lose their last items, and long texts their ends. They still fit their schema."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import attrs

from evsys_record.text import visible
from evsys_runtime.experiment.insight.text_budget import tokens_of

__all__ = ["FEWEST_TOKENS", "cap", "compact_text"]

FEWEST_TOKENS = 300
"""The least that an answer may be limited to."""

_LEVELS = (
    (100, 4000),
    (50, 2000),
    (25, 1000),
    (12, 600),
    (8, 400),
    (5, 300),
    (3, 240),
    (2, 200),
    (1, 200),
    (0, 200),
)
"""Most items of a list or map, and characters of a text, from one attempt to the next."""


def compact_text(tree: Mapping[str, Any]) -> str:
    """JSON on one line without spaces, in which no character is left that a terminal obeys."""
    text = json.dumps(tree, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return visible(text, escape=lambda character: f"\\u{ord(character):04x}")


def cap(tree: Mapping[str, Any], schema: Mapping[str, Any], tokens: int) -> tuple[dict[str, Any], list[str]]:
    """A document of at most so many tokens (of 4 bytes), and what was cut from it.

    Args:
        tree: the whole.
        schema: of the document, which the shorter one fits as well.
        tokens: the most to keep. What a schema requires stays, even if it takes more.
    """
    found, cuts = dict(tree), list[str]()
    for items, characters in ((None, None), *_LEVELS):
        if items is not None and characters is not None:
            cutter = _Cutter(schema=schema, items=items, characters=characters)
            found, cuts = cutter.cut(tree, schema, ""), cutter.notes()
        if tokens_of(compact_text(found)) <= tokens:
            break
    return found, cuts


@attrs.define(kw_only=True, eq=False)
class _Cutter:
    """Shortens a tree along its schema, and counts what it leaves out by path."""

    schema: Mapping[str, Any]
    items: int
    characters: int
    left_out: dict[str, int] = attrs.field(factory=dict)
    texts: int = 0

    def notes(self) -> list[str]:
        lines = [f"{path or 'items'}: {count} left out" for path, count in self.left_out.items()]
        return [*lines, f"{self.texts} texts cut"] if self.texts else lines

    def cut(self, value: Any, schema: Mapping[str, Any], path: str) -> Any:
        schema = self._resolve(schema, value)
        if isinstance(value, str):
            return self._text(value, schema)
        if isinstance(value, list | tuple):
            return self._list(value, schema, path)
        if isinstance(value, Mapping):
            return self._mapping(value, schema, path)
        return value

    def _text(self, value: str, schema: Mapping[str, Any]) -> str:
        if len(value) <= self.characters or "enum" in schema or "const" in schema:
            return value
        self.texts += 1
        return f"{value[: self.characters - 3]}..."

    def _list(self, value: Any, schema: Mapping[str, Any], path: str) -> list[Any]:
        fixed = "prefixItems" in schema or schema.get("minItems")
        kept = value if fixed else value[: self.items]
        self._count(path, len(value) - len(kept))
        return [self.cut(each, schema.get("items") or {}, f"{path}[]") for each in kept]

    def _mapping(self, value: Mapping[str, Any], schema: Mapping[str, Any], path: str) -> dict[str, Any]:
        known = schema.get("properties", {})
        extra = schema.get("additionalProperties", False)
        keys = list(value) if known or extra is False else list(value)[: self.items]
        self._count(path, len(value) - len(keys))
        below = extra if isinstance(extra, Mapping) else {}
        return {
            key: self.cut(value[key], known.get(key, below), f"{path}.{key}" if path else key) for key in keys
        }

    def _count(self, path: str, count: int) -> None:
        if count:
            self.left_out[path] = self.left_out.get(path, 0) + count

    def _resolve(self, schema: Mapping[str, Any], value: Any) -> Mapping[str, Any]:
        """The part of a schema for a value: behind references, and of several the first of its type."""
        while "$ref" in schema:
            name = str(schema["$ref"]).rpartition("/")[2]
            schema = self.schema if schema["$ref"] == "#" else self.schema["$defs"][name]
        for choice in (*schema.get("anyOf", ()), *schema.get("oneOf", ())):
            found = self._resolve(choice, value)
            if _is_of(value, found.get("type")):
                return found
        return schema


def _is_of(value: Any, kind: Any) -> bool:
    kinds = kind if isinstance(kind, list) else [kind]
    if isinstance(value, str):
        return "string" in kinds
    if isinstance(value, list | tuple):
        return "array" in kinds
    return isinstance(value, Mapping) and "object" in kinds
