"""The verifier `numeric`: whether the number in an answer is the right one, within a tolerance and in any unit."""

from __future__ import annotations

import json
from collections.abc import Mapping
from fractions import Fraction
from typing import Any, ClassVar, Literal

import attrs

from evsys import option
from evsys_verifiers_std.configurable import Configured
from evsys_verifiers_std.quantities import Expected, Quantity, exact, expected_quantities, quantities_in

__all__ = ["Numeric"]


@attrs.frozen(kw_only=True)
class NumericParams:
    """Which number is looked at, and how close it has to be."""

    tolerance: float = option(0.0, "Tolerance, in the unit of the expected value.", ge=0, le=1e100)
    relative_tolerance: float = option(
        0.0, "Tolerance as a share of the expected value; the larger one applies.", ge=0, le=1
    )
    pick: Literal["last", "first", "only"] = option(
        "last", "Of several numbers the last, the first, or none.", choices=("last", "first", "only")
    )
    after: str | None = option(None, "Look only at what follows the last occurrence of this text.")
    decimal: Literal[".", ","] = option(
        ".", "The decimal mark; the other one parts groups of digits.", choices=(".", ",")
    )
    unit_optional: bool = option(False, "A number without a unit is taken to be in the expected one.")


class Numeric(Configured):
    """1.0 when the number in the answer is the expected one.

    If the expectation has a unit, the answer needs one that measures the same, and is converted. If it has none,
    units in the answer don't matter.
    """

    name: ClassVar[str] = "numeric"
    conformance: ClassVar[Mapping[str, Any]] = {"expected": "42 km"}
    Config = NumericParams

    def __call__(self, model_output: str, expected: Any, params: Mapping[str, Any]) -> float:
        """Compare the number in `model_output` with `expected`: a number, a text such as `5 km`, `{value, unit}`, or a list."""
        settings: NumericParams = self._settings(params)
        wanted = expected_quantities(expected, settings.decimal)
        said = _pick_number(model_output, settings)
        return float(said is not None and any(_right(said, one, settings) for one in wanted))

    def oracle(self, expected: Any, params: Mapping[str, Any]) -> str:
        """A right answer: the first expected number with its unit."""
        settings: NumericParams = self._settings(params)
        first = expected[0] if isinstance(expected, list | tuple) else expected
        unit = ""
        if isinstance(first, Mapping):
            first, unit = first["value"], f" {first['unit']}" if first.get("unit") else ""
        text = first if isinstance(first, str) else json.dumps(first).replace(".", settings.decimal)
        return f"{settings.after or ''} {text}{unit}".strip()

    def check(self, expected: Any) -> None:
        """Refuse an expectation without a number.

        Raises:
            ValueError: says what is wrong.
        """
        expected_quantities(expected, self.config.decimal)


def _pick_number(text: str, settings: NumericParams) -> Quantity | None:
    """The number looked at; None where there is none, or where several leave it open."""
    if settings.after is not None:
        _, found, text = text.rpartition(settings.after)
        if not found:
            return None
    numbers = list(quantities_in(text, settings.decimal))
    if not numbers or (settings.pick == "only" and len(numbers) > 1):
        return None
    return numbers[0] if settings.pick == "first" else numbers[-1]


def _right(said: Quantity, wanted: Expected, settings: NumericParams) -> bool:
    value = _in_unit_of(said, wanted, settings)
    if value is None:
        return False
    allowed = max(exact(settings.tolerance), exact(settings.relative_tolerance) * abs(wanted.value))
    return abs(value - wanted.value) <= allowed


def _in_unit_of(said: Quantity, wanted: Expected, settings: NumericParams) -> Fraction | None:
    """The answer in the expected unit; None if it measures something else."""
    if said.value is None:
        return None
    if wanted.words is not None:
        counts = _counts(said.rest, wanted.words)
        return said.value if counts or (settings.unit_optional and not said.rest.strip(" $.")) else None
    if wanted.unit is None:
        return said.value
    if said.unit is None:
        if settings.unit_optional:
            return said.value
        return None if wanted.unit.dimensions else said.value / wanted.unit.factor
    if said.unit.dimensions != wanted.unit.dimensions:
        return None
    return said.value * said.unit.factor / wanted.unit.factor


def _counts(rest: str, words: str) -> bool:
    """True when what follows a number are these words, in singular or plural."""
    said = " ".join(rest.split()[: len(words.split())]).strip(".,;:!?)$*").casefold()
    return said.removesuffix("s") == words.casefold().removesuffix("s")
