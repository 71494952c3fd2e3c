"""Fields of JSON requests, read strictly: what is wrong is named by its place."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from evsys_server.errors import RefusedError

__all__ = [
    "document",
    "flag",
    "metadata",
    "name",
    "number",
    "optional_name",
    "optional_whole",
    "prompt_tokens",
    "section",
    "whole",
]

_MISSING = object()


def document(body: bytes) -> dict[str, Any]:
    """The JSON object of a body.

    Raises:
        RefusedError: it is none.
    """
    try:
        found = json.loads(body) if body else {}
    except (ValueError, RecursionError) as exc:
        raise RefusedError(400, f"the body is no JSON: {exc}") from exc
    if not isinstance(found, dict):
        raise RefusedError(400, f"the body is a JSON {type(found).__name__}, expected an object")
    return found


def name(body: Mapping[str, Any], key: str) -> str:
    """A text that has to be there."""
    value = body.get(key)
    if not isinstance(value, str) or not value:
        raise RefusedError(400, f"{key}: expected a text, got {value!r}")
    return value


def optional_name(body: Mapping[str, Any], key: str) -> str | None:
    """A text, or None where there is none."""
    return None if body.get(key) is None else name(body, key)


def whole(body: Mapping[str, Any], key: str, default: Any = _MISSING, *, low: int | None = 0) -> int:
    """A whole number, at least `low`."""
    value = body.get(key)
    if value is None and default is not _MISSING:
        value = default
    if not isinstance(value, int) or isinstance(value, bool) or (low is not None and value < low):
        bound = "" if low is None else f" from {low}"
        raise RefusedError(400, f"{key}: expected a whole number{bound}, got {value!r}")
    return value


def optional_whole(body: Mapping[str, Any], key: str, *, low: int | None = 0) -> int | None:
    """A whole number, or None where there is none."""
    return None if body.get(key) is None else whole(body, key, low=low)


def number(body: Mapping[str, Any], key: str, default: float) -> float:
    """A finite number."""
    value = body.get(key)
    value = default if value is None else value
    if not isinstance(value, int | float) or isinstance(value, bool) or not math.isfinite(value):
        raise RefusedError(400, f"{key}: expected a number, got {value!r}")
    return float(value)


def flag(body: Mapping[str, Any], key: str, default: bool = False) -> bool:
    """True or false."""
    value = body.get(key)
    if value is None:
        return default
    if not isinstance(value, bool):
        raise RefusedError(400, f"{key}: expected true or false, got {value!r}")
    return value


def section(body: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    """An object inside; empty where there is none."""
    value = body.get(key)
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise RefusedError(400, f"{key}: expected an object, got {value!r}")
    return value


def metadata(body: Mapping[str, Any]) -> dict[str, str]:
    """The client's own words."""
    return {str(key): str(value) for key, value in section(body, "user_metadata").items()}


def prompt_tokens(prompt: object) -> list[int]:
    """The tokens of a prompt, which comes in chunks.

    Raises:
        RefusedError: a chunk is no text.
    """
    chunks = prompt.get("chunks") if isinstance(prompt, Mapping) else None
    if not isinstance(chunks, list):
        raise RefusedError(400, "prompt: expected an object with chunks")
    tokens: list[int] = []
    for index, chunk in enumerate(chunks):
        found = chunk.get("tokens") if isinstance(chunk, Mapping) else None
        if not isinstance(found, list) or chunk.get("type", "encoded_text") != "encoded_text":
            raise RefusedError(400, f"prompt.chunks[{index}]: only encoded_text is served here")
        tokens += found
    if not set(map(type, tokens)) <= {int}:
        raise RefusedError(400, "prompt: tokens must be whole numbers")
    return tokens
