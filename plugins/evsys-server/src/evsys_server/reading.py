"""Fields of JSON requests, read strictly: what is wrong is named by its place."""

from __future__ import annotations

import json
import math
import reprlib
from collections.abc import Mapping
from typing import Any

from evsys_server.errors import RefusedError

__all__ = [
    "document",
    "flag",
    "metadata",
    "name",
    "names",
    "number",
    "optional_name",
    "optional_whole",
    "prompt_tokens",
    "section",
    "sections",
    "short_text",
    "tags",
    "text",
    "token_ids",
    "whole",
]

_MISSING = object()
_MOST_WHOLE = (1 << 63) - 1
_MOST_TOKEN = (1 << 31) - 1
"""The bound of integers and token ids in the protocol's binary messages, and so in JSON."""

MOST_CHARACTERS = 4096
"""Longest name, id, or path. The server keeps these as long as a session lasts."""

MOST_METADATA = 16 << 10
"""Characters of a client's own words about a session, a model, or a checkpoint."""

_REPR = reprlib.Repr(maxstring=80, maxother=80)


def document(body: bytes) -> dict[str, Any]:
    """The JSON object of a body.

    Raises:
        RefusedError: it is none.
    """
    try:
        found = json.loads(body) if body else {}
    except (ValueError, RecursionError) as exc:
        raise RefusedError(400, f"the body isn't JSON: {exc}") from exc
    if not isinstance(found, dict):
        raise RefusedError(400, f"the body is a JSON {type(found).__name__}, expected an object")
    return found


def short_text(value: object) -> str:
    """A value as messages show it: short, for any value."""
    return _REPR.repr(value)


def name(body: Mapping[str, Any], key: str) -> str:
    """A text that has to be there, of at most 4,096 characters."""
    value = text(body, key)
    if not value:
        raise RefusedError(400, f"{key}: expected a string, got {short_text(body.get(key))}")
    return value


def names(body: Mapping[str, Any], key: str) -> list[str]:
    """A list of texts that has to be there, each of at most 4,096 characters."""
    value = body.get(key)
    if not isinstance(value, list) or not all(isinstance(entry, str) and entry for entry in value):
        raise RefusedError(400, f"{key}: expected a list of texts")
    if max(map(len, value), default=0) > MOST_CHARACTERS:
        raise RefusedError(400, f"{key}: a string has more than {MOST_CHARACTERS} characters")
    return value


def optional_name(body: Mapping[str, Any], key: str) -> str | None:
    """A text, or None where there is none."""
    return None if body.get(key) is None else name(body, key)


def text(body: Mapping[str, Any], key: str) -> str:
    """A text, empty where there is none."""
    value = body.get(key)
    if value is not None and not isinstance(value, str):
        raise RefusedError(400, f"{key}: expected a string, got {short_text(value)}")
    if value is not None and len(value) > MOST_CHARACTERS:
        raise RefusedError(400, f"{key}: at most {MOST_CHARACTERS} characters, got {len(value)}")
    return value or ""


def whole(body: Mapping[str, Any], key: str, default: Any = _MISSING, *, low: int | None = 0) -> int:
    """A whole number of 64 bits, at least `low`."""
    value = body.get(key)
    if value is None and default is not _MISSING:
        value = default
    least = -_MOST_WHOLE if low is None else low
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= _MOST_WHOLE:
        raise RefusedError(
            400, f"{key}: expected a whole number from {least} to {_MOST_WHOLE}, got {short_text(value)}"
        )
    return value


def optional_whole(body: Mapping[str, Any], key: str, *, low: int | None = 0) -> int | None:
    """A whole number, or None where there is none."""
    return None if body.get(key) is None else whole(body, key, low=low)


def number(
    body: Mapping[str, Any],
    key: str,
    default: float,
    *,
    low: float = -math.inf,
    high: float = math.inf,
    above: float = -math.inf,
    below: float = math.inf,
) -> float:
    """A finite number, from `low` to `high` and between `above` and `below`."""
    value = body.get(key)
    value = default if value is None else value
    try:
        finite = not isinstance(value, bool) and math.isfinite(value)
    except (TypeError, OverflowError):  # a text; a whole number that no floating-point one comes near
        finite = False
    if not finite:
        raise RefusedError(400, f"{key}: expected a number, got {short_text(value)}")
    for holds, bound in (
        (value >= low, f"at least {low:g}"),
        (value <= high, f"at most {high:g}"),
        (value > above, f"above {above:g}"),
        (value < below, f"below {below:g}"),
    ):
        if not holds:
            raise RefusedError(400, f"{key}: must be {bound}, got {short_text(value)}")
    return float(value)


def flag(body: Mapping[str, Any], key: str, default: bool = False) -> bool:
    """True or false."""
    value = body.get(key)
    if value is None:
        return default
    if not isinstance(value, bool):
        raise RefusedError(400, f"{key}: expected true or false, got {short_text(value)}")
    return value


def section(body: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    """An object inside; empty where there is none."""
    value = body.get(key)
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise RefusedError(400, f"{key}: expected an object, got {short_text(value)}")
    return value


def sections(body: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
    """A list of objects; empty where there is none."""
    value = body.get(key)
    if value is None:
        return []
    if not isinstance(value, list) or not all(isinstance(entry, Mapping) for entry in value):
        raise RefusedError(400, f"{key}: expected a list of objects, got {short_text(value)}")
    return value


def metadata(body: Mapping[str, Any]) -> dict[str, str]:
    """The client's own words, of at most 16,384 characters together."""
    found = {str(key): str(value) for key, value in section(body, "user_metadata").items()}
    _bound("user_metadata", sum(len(key) + len(value) for key, value in found.items()))
    return found


def tags(body: Mapping[str, Any]) -> list[str]:
    """The tags of a session, of at most 16,384 characters together."""
    value = body.get("tags") or []
    if not isinstance(value, list) or not all(isinstance(tag, str) for tag in value):
        raise RefusedError(400, f"tags: expected a list of texts, got {short_text(value)}")
    _bound("tags", sum(map(len, value)) + len(value))
    return value


def _bound(key: str, characters: int) -> None:
    if characters > MOST_METADATA:
        raise RefusedError(400, f"{key}: at most {MOST_METADATA} characters, got {characters}")


def prompt_tokens(prompt: object) -> list[int]:
    """The tokens of a prompt, which comes in chunks.

    Raises:
        RefusedError: a chunk is not a string, or has what can't be a token.
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
    return token_ids(tokens, "prompt")


def token_ids(values: list[Any], key: str) -> list[int]:
    """The values, if all of them can be token ids."""
    if not set(map(type, values)) <= {int} or (values and not 0 <= min(values) <= max(values) <= _MOST_TOKEN):
        raise RefusedError(400, f"{key}: tokens must be whole numbers from 0 to {_MOST_TOKEN}")
    return values
