"""The process behind `json_schema`: validates a text against a schema, one JSON request and one JSON answer a line.

A request is `{schema}` or `{schema, text, fenced}`. The answer is `{refused}` where the schema can't be used, else
`{error}`, null for a text that fits.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Mapping
from functools import lru_cache
from importlib import import_module
from typing import Any

__all__ = ["answer_to", "serve"]

_FENCE = re.compile(r"```[\w+-]*[^\S\n]*\n(.*?)\n?[^\S\n]*```", re.DOTALL)


class _RefusedError(Exception):
    """The schema can't be used."""


def serve() -> None:
    """Answer requests until standard input ends."""
    import_module("jsonschema")  # the first request shouldn't pay for it

    out = sys.stdout.buffer
    out.write(b"ready\n")
    out.flush()
    for line in sys.stdin.buffer:
        out.write(json.dumps(answer_to(json.loads(line))).encode() + b"\n")
        out.flush()


def answer_to(request: Mapping[str, Any]) -> dict[str, str | None]:
    """The answer to one request."""
    from referencing.exceptions import Unresolvable

    try:
        validator = _validator(json.dumps(request["schema"], sort_keys=True))
        if "text" not in request:
            return {"error": None}
        return {"error": _wrong(validator, request["text"], fenced=request["fenced"])}
    except (_RefusedError, re.error, Unresolvable) as exc:
        return {"refused": f"it is not a valid JSON Schema: {exc}"}


def _wrong(validator: Any, text: str, *, fenced: bool) -> str | None:
    """Why a text doesn't fit; None where it does."""
    text = text.strip()
    fence = _FENCE.fullmatch(text) if fenced else None
    try:
        value = json.loads(fence[1] if fence else text, parse_constant=_no_json)
        wrong = next(iter(validator.iter_errors(value)), None)
    except ValueError as exc:
        return f"no JSON: {exc}"
    except RecursionError:
        return "nested too deeply"
    return None if wrong is None else f"{wrong.json_path}: {wrong.message}"


def _no_json(constant: str) -> Any:
    raise ValueError(f"{constant} is not a JSON value")


@lru_cache(maxsize=256)
def _validator(schema_text: str) -> Any:
    """A validator of one schema; it fetches nothing."""
    from referencing.jsonschema import EMPTY_REGISTRY

    jsonschema = import_module("jsonschema")
    schema = json.loads(schema_text)
    cls = jsonschema.validators.validator_for(schema, default=jsonschema.Draft202012Validator)
    try:
        cls.check_schema(schema)
    except jsonschema.SchemaError as exc:
        raise _RefusedError(f"at {exc.json_path}: {exc.message}") from exc
    if not any(_values(schema, "$id")):
        _resolve_all(schema)
    return cls(schema, registry=EMPTY_REGISTRY)


_LITERALS = frozenset({"const", "default", "enum", "examples"})
"""Keywords below which there are values and no schemas."""


def _resolve_all(schema: Any) -> None:
    """See that every reference leads somewhere, before an answer comes by that needs it."""
    from referencing.jsonschema import DRAFT202012, EMPTY_REGISTRY

    resolver = EMPTY_REGISTRY.with_resource("", DRAFT202012.create_resource(schema)).resolver()
    for reference in _values(schema, "$ref"):
        resolver.lookup(reference)


def _values(schema: Any, key: str) -> Iterator[str]:
    """Every text under a key, however deep."""
    if isinstance(schema, Mapping):
        if isinstance(schema.get(key), str):
            yield schema[key]
        for name, part in schema.items():
            if name not in _LITERALS:
                yield from _values(part, key)
    elif isinstance(schema, list):
        for part in schema:
            yield from _values(part, key)


if __name__ == "__main__":
    serve()
