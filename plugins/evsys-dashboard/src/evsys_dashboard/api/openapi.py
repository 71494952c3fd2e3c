"""The OpenAPI document of the endpoints, from the same annotations that they are called by."""

from __future__ import annotations

import re
import typing
from collections.abc import Iterable
from importlib.metadata import version
from typing import Any

from evsys import schema_for_config
from evsys_dashboard.api.endpoints import Endpoint

__all__ = ["openapi"]

_BYTES = ("/batch", "/chunks/{number}")
"""The ends of paths whose bodies, or answers, are bytes."""

_BINARY = {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}
_PART = re.compile(r"\{(\w+)\}")
_REFUSALS = {
    "400": "The request is malformed",
    "401": "There is no valid key",
    "403": "The key doesn't grant this",
    "404": "There is no such thing",
    "default": "The request can't be served",
}


def openapi(endpoints: Iterable[Endpoint], prefix: str) -> dict[str, Any]:
    """OpenAPI 3.1 of endpoints below a prefix."""
    schemas: dict[str, Any] = {"Error": _ERROR}
    paths: dict[str, Any] = {}
    for endpoint in endpoints:
        paths.setdefault(prefix + endpoint.path, {})[endpoint.method.lower()] = _operation(endpoint, schemas)
    return {
        "openapi": "3.1.0",
        "info": {"title": "evsys dashboard", "version": version("evsys-dashboard")},
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": {
                "key": {"type": "http", "scheme": "bearer"},
                "session": {"type": "apiKey", "in": "cookie", "name": "evsys_session"},
            },
        },
    }


_ERROR = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["message", "hint"],
            "properties": {"message": {"type": "string"}, "hint": {"type": ["string", "null"]}},
        }
    },
}


def _operation(endpoint: Endpoint, schemas: dict[str, Any]) -> dict[str, Any]:
    answer = {"description": "Done"}
    if endpoint.answer is not None:
        answer = {"description": "The answer", **_json(_reference(endpoint.answer, schemas, answered=True))}
    elif endpoint.path.endswith("/stream"):
        answer = {"description": "Server-sent events", "content": {"text/event-stream": {}}}  # type: ignore[dict-item]  # a document
    elif endpoint.method == "GET" and endpoint.path.endswith(_BYTES):
        answer = {"description": "Bytes, compressed with zlib", "content": _BINARY}  # type: ignore[dict-item]  # a document
    refusals = {
        status: {"description": text, **_json({"$ref": "#/components/schemas/Error"})}
        for status, text in _REFUSALS.items()
    }
    operation: dict[str, Any] = {
        "operationId": endpoint.function.__name__,
        "summary": endpoint.summary,
        "parameters": [*_parts(endpoint.path), *_parameters(endpoint.query)],
        "responses": {"200": answer, **refusals},
        "security": [] if endpoint.scope is None else [{"key": [endpoint.scope]}, {"session": []}],
    }
    if endpoint.body is not None:
        operation["requestBody"] = {
            "required": True,
            **_json(_reference(endpoint.body, schemas, answered=False)),
        }
    elif endpoint.method == "POST" and endpoint.path.endswith(_BYTES):
        operation["requestBody"] = {"required": True, "content": _BINARY}
    return operation


def _json(schema: Any) -> dict[str, Any]:
    return {"content": {"application/json": {"schema": schema}}}


def _parts(path: str) -> list[dict[str, Any]]:
    return [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in _PART.findall(path)
    ]


def _parameters(query: type | None) -> list[dict[str, Any]]:
    if query is None:
        return []
    schema = schema_for_config(query)
    required = schema.get("required", ())
    return [
        {"name": name, "in": "query", "required": name in required, "schema": schema["properties"][name]}
        for name in typing.get_type_hints(query)
    ]


def _reference(cls: type, schemas: dict[str, Any], *, answered: bool) -> dict[str, Any]:
    """A reference to the schema of a class, which is added to `schemas`; an answer has every field."""
    if cls.__name__ not in schemas:
        schema = schema_for_config(cls)
        schema.pop("$schema")
        parts = {cls.__name__: schema, **schema.pop("$defs", {})}
        for name, part in parts.items():
            if answered and "properties" in part:
                part["required"] = list(part["properties"])
            schemas[name] = _move_references(part)
    return {"$ref": f"#/components/schemas/{cls.__name__}"}


def _move_references(tree: Any) -> Any:
    """A schema with its references to where the components are."""
    if isinstance(tree, dict):
        return {
            key: value.replace("#/$defs/", "#/components/schemas/")
            if key == "$ref"
            else _move_references(value)
            for key, value in tree.items()
        }
    return [_move_references(value) for value in tree] if isinstance(tree, list) else tree
