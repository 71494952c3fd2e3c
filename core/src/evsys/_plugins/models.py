"""Pydantic models as Configs, recognised by their shape alone: evsys never imports pydantic."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from json import dumps
from typing import Any

from evsys._plugins.plain import unstructure
from evsys._plugins.refusals import closest

__all__ = ["is_pydantic", "made_by_pydantic", "schema_of_model"]


def is_pydantic(cls: Any) -> bool:
    """True for a pydantic model."""
    return isinstance(cls, type) and hasattr(cls, "model_validate") and hasattr(cls, "model_json_schema")


def schema_of_model(cls: Any) -> dict[str, Any]:
    """Pydantic's own schema, closed for unknown keys unless one of the models in it asks for them."""
    schema: dict[str, Any] = cls.model_json_schema(ref_template="#/$defs/{model}")
    for part in [schema, *schema.get("$defs", {}).values()] if _is_closed(cls) else ():
        part |= {"additionalProperties": False} if "properties" in part else {}
    return schema


@cache
def _is_closed(cls: Any) -> bool:
    schema = cls.model_json_schema()
    parts = [schema, *schema.get("$defs", {}).values()]
    return not any(part.get("additionalProperties") is True for part in parts)


def made_by_pydantic(
    cls: Any, value: Mapping[str, Any]
) -> tuple[Any, list[tuple[tuple[Any, ...], str, str | None]]]:
    """The model made by pydantic's strict reading of JSON, or None and its (path, message, hint) for each error."""
    extra = {"extra": "forbid"} if _is_closed(cls) else {}
    try:
        text = dumps(dict(value), allow_nan=False, default=unstructure)
        return cls.model_validate_json(text, strict=True, **extra), []
    except Exception as exc:
        said = str(exc) if isinstance(exc, TypeError | ValueError) else f"{type(exc).__name__}: {exc}"
        errors: Any = exc.errors() if hasattr(exc, "errors") else [{"loc": (), "msg": said, "type": ""}]
    unknown = {error["loc"] for error in errors if error["type"] == "extra_forbidden"}
    hints = {path: closest(path[-1], cls.model_fields) for path in unknown}
    return None, [(error["loc"], error["msg"], hints.get(error["loc"])) for error in errors]
