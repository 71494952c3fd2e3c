"""Numbers with units, as people and models write them."""

import math
import re
from typing import Self

import attrs

__all__ = ["Quantity"]

MEASURES = {
    "length": {"mm": 0.001, "cm": 0.01, "m": 1.0, "km": 1000.0},
    "mass": {"g": 0.001, "kg": 1.0, "t": 1000.0},
    "time": {"s": 1.0, "min": 60.0, "h": 3600.0},
}
"""What can be measured, in which units, and how many base units each of them is."""

UNITS = {
    unit: (measures, factor)
    for measures, units in MEASURES.items()
    for unit, factor in units.items()
}

WRITTEN = re.compile(
    r"(?<![\w.])(?P<number>[-+]?(?:\d{1,3}(?:,\d{3})+(?!\d)|\d+)(?:\.\d+)?(?:[eE][-+]?\d+)?)"
    r"(?:\s*(?P<unit>[A-Za-z]+))?"
)


@attrs.frozen
class Quantity:
    """A number as it is written, its value in base units, and what it measures.

    `measures` is None for a bare number.
    """

    number: float
    value: float
    measures: str | None

    @classmethod
    def last_in(cls, text: str) -> Self | None:
        """The last quantity of a text, which is where an answer ends; None where there is none.

        A word behind a number that is no unit belongs to the sentence: `3 apples` is the number 3.
        """
        found = None
        for match in WRITTEN.finditer(text):
            measures, factor = UNITS.get(match["unit"] or "", (None, 1.0))
            number = float(match["number"].replace(",", ""))
            if math.isfinite(number * factor):
                found = cls(number, number * factor, measures)
        return found
