"""Stretched rotary positions: from the settings in a model's header to a divisor of each frequency, and back."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from evsys.errors import DataError

#: Kinds that are understood. The others (yarn, dynamic, longrope) also change the attention, or change with the length.
SUPPORTED = ("default", "linear", "llama3")

Factors = tuple[float, ...]


def _frequencies(head_dim: int, theta: float) -> list[float]:
    return [theta ** (-2 * index / head_dim) for index in range(head_dim // 2)]


def llama3_factors(
    head_dim: int, theta: float, *, factor: float, low: float, high: float, original: int
) -> Factors:
    """Divisors of Llama 3.1: none for short waves, ``factor`` for long ones, a smooth change between.

    A wave that fits more than ``high`` times into the ``original`` context keeps its frequency; one that fits fewer than
    ``low`` times is stretched in full. Source: the Llama 3.1 reference code, as in Hugging Face's `rope_type: llama3`.
    """
    found = []
    for frequency in _frequencies(head_dim, theta):
        turns = original * frequency / (2 * math.pi)
        if turns > high:
            found.append(1.0)
        elif turns < low:
            found.append(factor)
        else:
            smooth = (turns - low) / (high - low)
            found.append(1 / ((1 - smooth) / factor + smooth))
    return tuple(found)


def factors_of(settings: Mapping[str, Any], head_dim: int, theta: float, source: str) -> Factors | None:
    """Divisors for a `rope_scaling` of one of the :data:`SUPPORTED` kinds; None for `default`.

    Raises:
        DataError: a number is missing or makes no sense.
    """
    kind = rope_kind(settings)
    if kind == "default":
        return None
    names = ("factor",) if kind == "linear" else ("factor", *_LLAMA3.values())
    try:
        values = [float(settings[name]) for name in names]
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(
            f"rope_scaling of the kind {kind} needs the numbers {', '.join(names)}", source=source
        ) from error
    if not all(0 < value < math.inf for value in values) or (kind == "llama3" and values[1] >= values[2]):
        raise DataError(
            f"rope_scaling {dict(settings)} makes no sense: numbers must be above 0, low below high",
            source=source,
        )
    if kind == "linear":
        return (values[0],) * (head_dim // 2)
    factor, low, high, original = values
    return llama3_factors(head_dim, theta, factor=factor, low=low, high=high, original=int(original))


_LLAMA3 = {
    "low": "low_freq_factor",
    "high": "high_freq_factor",
    "original": "original_max_position_embeddings",
}


def rope_kind(settings: Mapping[str, Any]) -> str:
    """`rope_type` of a `rope_scaling`, by either of its names."""
    return str(settings.get("rope_type") or settings.get("type") or "default")


def settings_of(factors: Sequence[float], head_dim: int, theta: float) -> dict[str, Any] | None:
    """The `rope_scaling` that gives these divisors, as Hugging Face writes it; None when no known one does.

    Files other than `config.json` hold the divisors alone. Llama 3.1 to 3.3 differ in ``factor`` alone.
    """
    factor = max(factors)
    if math.isclose(min(factors), factor, rel_tol=1e-6):
        return {"rope_type": "linear", "factor": factor}
    settings = {"low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}
    expected = llama3_factors(head_dim, theta, factor=factor, low=1.0, high=4.0, original=8192)
    same = all(math.isclose(a, b, rel_tol=1e-4) for a, b in zip(factors, expected, strict=True))
    return {"rope_type": "llama3", "factor": factor, **settings} if same else None
