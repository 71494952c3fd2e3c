"""The verifier `quantity`: is an answer the expected quantity, in whatever unit it is written?"""

import math
from collections.abc import Mapping
from typing import Any, ClassVar

import attrs
from evsys import option
from evsys.types import Score

from evsys_quantities.units import Quantity

__all__ = ["QuantityVerifier"]


class QuantityVerifier:
    """1.0 for the expected quantity, written in any unit of its kind; 3200 m is 3.2 km.

    A task may set `Config`'s fields in its `params`; they are checked before anything is run.
    """

    name: ClassVar[str] = "quantity"
    reward_range: ClassVar[tuple[float, float]] = (0.0, 1.0)
    conformance: ClassVar[Mapping[str, Any]] = {"expected": "3.2 km"}

    @attrs.frozen(kw_only=True)
    class Config:
        """How an answer is judged."""

        tolerance: float = option(0.01, "Largest relative error of a right value.", ge=0)
        without_unit: float = option(
            0.5, "Reward of the expected number without its unit.", ge=0, le=1
        )

    def __init__(self, **fields: Any) -> None:
        self.config = self.Config(**fields)

    def __call__(self, model_output: str, expected: Any, params: Mapping[str, Any]) -> Score:
        """Judge an answer by its last quantity. The components are logged with each rollout."""
        said, wanted = Quantity.last_in(model_output), _wanted(expected)
        if said is None:
            return Score(value=0.0, components={"value": 0.0, "unit": 0.0})
        unit = said.measures == wanted.measures
        if unit:
            right = self._is_close(said.value, wanted.value)
        else:
            right = said.measures is None and self._is_close(said.number, wanted.number)
        reward = float(right) * (1.0 if unit else self.config.without_unit)
        return Score(value=reward, components={"value": float(right), "unit": float(unit)})

    def check(self, expected: Any) -> None:
        """Refuse a task that expects no quantity, before a model is asked."""
        _wanted(expected)

    def _is_close(self, said: float, wanted: float) -> bool:
        return math.isclose(said, wanted, rel_tol=self.config.tolerance)


def _wanted(expected: Any) -> Quantity:
    found = Quantity.last_in(str(expected))
    if found is None or isinstance(expected, bool):
        raise ValueError(f"expected a quantity such as '3.2 km', got {expected!r}")
    return found
