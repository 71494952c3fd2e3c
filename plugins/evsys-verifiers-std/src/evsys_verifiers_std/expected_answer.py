"""The expected answer of a task, read strictly: a verifier that can't tell right from wrong must not give a reward."""

from __future__ import annotations

import json
from typing import Any

__all__ = ["expected_texts"]


def expected_texts(expected: Any) -> list[str]:
    """The accepted texts: a text, a number or a boolean as JSON writes it, or a list of those.

    Raises:
        ValueError: nothing is expected, or something that is not a string.
    """
    values = list(expected) if isinstance(expected, list | tuple) else [expected]
    if not values:
        raise ValueError("`expected` is an empty list; give at least one text")
    return [_text(value) for value in values]


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bool | int | float):
        return json.dumps(value)
    if value is None:
        raise ValueError("`expected` is missing; give the text that counts as right")
    raise ValueError(f"`expected` holds a {type(value).__name__}, not a string, a number or a list of them")
