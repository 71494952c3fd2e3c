from collections.abc import Mapping
from typing import Any

from evsys_sdk import register_verifier


@register_verifier("letters_in_place")
def letters_in_place(model_output: str, expected: Any, params: Mapping[str, Any]) -> float:
    """Share of letters in the right place; a longer or shorter answer can't reach 1."""
    answer = model_output.strip()
    right = sum(one == other for one, other in zip(answer, expected, strict=False))
    return right / max(len(answer), len(expected))
