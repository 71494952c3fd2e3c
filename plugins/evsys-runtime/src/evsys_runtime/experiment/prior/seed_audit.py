"""Repeats are there to differ: two that take the same rows in the same order are one, counted twice."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from evsys.types import ArmResult
from evsys_record.files import read_json

__all__ = ["same_orders"]

CHANCE = 1e-6
"""An order that a fair shuffle repeats more often than this says nothing."""


def same_orders(arms: Sequence[ArmResult]) -> list[str]:
    """A line for each arm with repeats that trained on the same rows in the same order.

    Raises:
        StoreError: a run's record can't be read.
    """
    trained = [arm for arm in arms if arm.run_dir and arm.run is not None and arm.run.steps]
    lines = []
    for name, repeats in groupby(sorted(trained, key=lambda arm: arm.arm), key=lambda arm: arm.arm):
        runs = list(repeats)
        found: dict[Any, list[int]] = {}
        for arm in runs if len(runs) > 1 else ():
            order = read_json(Path(str(arm.run_dir)) / "run.json").get("order")
            if order is not None and _says_something(order):
                found.setdefault(order["digest"], []).append(arm.repeat)
        lines += [_line(name, same) for same in found.values() if len(same) > 1]
    return lines


def _line(name: str, repeats: Sequence[int]) -> str:
    said = f"{', '.join(map(str, repeats[:-1]))} and {repeats[-1]}"
    return (
        f"repeats {said} of {name!r} took the same rows in the same order, so their seeds don't reach the data; "
        "an algorithm of your own gets one from ctx.seeds('data_order', epoch)"
    )


def _says_something(order: dict[str, Any]) -> bool:
    """True where so many rows of so many hardly come in one order twice."""
    rows, taken = order["of"], min(order["rows"], order["of"])
    orders = math.lgamma(rows + 1) - math.lgamma(rows - taken + 1)
    return bool(orders >= -math.log(CHANCE))
