"""Single-step corrections over several arms: Bonferroni's, and Westfall & Young's where all arms share their sign flips."""

from __future__ import annotations

import math
from collections.abc import Sequence

import attrs
import numpy as np

from evsys_runtime.audit.paired_tests import Array, Estimate, Levels, PairedTest, SignFlips

__all__ = ["CorrectedPValues", "correct"]

_DEVIATIONS = 5.0


@attrs.frozen(kw_only=True)
class CorrectedPValues:
    """Corrected p-values in the order of the arms, None where nothing was tested.

    `method` is `bonferroni`, `westfall-young`, or None for a single arm. `levels` is the level of one interval at which the intervals of all arms
    hold together, or the range that it lies in.
    """

    p_values: tuple[Estimate | None, ...]
    method: str | None
    levels: Levels


def correct(
    tests: Sequence[PairedTest | None],
    p_values: Sequence[Estimate | None],
    *,
    level: float,
    at_zero: bool,
) -> CorrectedPValues:
    """Correct p-values over all planned arms.

    Args:
        tests: of the arms; None for one that couldn't be compared, which counts in the correction.
        p_values: of the tests.
        level: of all arms together.
        at_zero: the p-values are those of no difference, or 1; sign flips say nothing of other differences.
    """
    family, known = len(tests), [p for p in p_values if p is not None]
    flips = [test for test in tests if isinstance(test, SignFlips)]
    shared = len(flips) == len(known) > 1 and all(test.units == flips[0].units for test in flips[1:])
    if at_zero and shared:
        made, levels = _westfall_young(flips, known, family=family, level=level)
        method: str | None = "westfall-young"
    else:
        error = family * max((p.error for p in known), default=0.0)
        made = [Estimate(min(1.0, family * p.value), error) for p in known]
        levels, method = Levels(level / family, level / family), "bonferroni" if family > 1 else None
    corrected = iter(made)
    return CorrectedPValues(
        p_values=tuple(None if p is None else next(corrected) for p in p_values),
        method=method,
        levels=levels,
    )


def _westfall_young(
    tests: Sequence[SignFlips], p_values: Sequence[Estimate], *, family: int, level: float
) -> tuple[list[Estimate], Levels]:
    """The share of sign patterns whose smallest p-value, of all arms, is as small (Westfall & Young 1993).

    An arm that couldn't be compared adds its p-value. The tolerance for the record: the error of this share, and
    that of each other arm's quantile at the same p-value.
    """
    unmade, draws = family - len(tests), tests[0].draws
    nulls = np.stack([test.null_p_values() for test in tests])
    smallest, found = nulls.min(axis=0), []
    for p in (estimate.value for estimate in p_values):
        share = float((smallest <= p * (1.0 + 1e-9)).mean())
        made = min(1.0, family * p, max(share, p) + unmade * p)
        error = 0.0 if tests[0].exact else _error(made, p, family, draws, nulls.shape[1])
        found.append(Estimate(made, error))
    return found, _levels(smallest, unmade, family, level, 0 if tests[0].exact else draws)


def _error(share: float, p: float, family: int, draws: int, own: int) -> float:
    rare, share = max(p, 3.0 / draws), max(share, 3.0 / draws)
    spread = math.sqrt(share * max(0.0, 1.0 - share)) + (family - 1) * math.sqrt(rare * max(0.0, 1.0 - rare))
    return _DEVIATIONS * spread * math.sqrt(1.0 / draws + 1.0 / own) + family / draws


def _levels(smallest: Array, unmade: int, family: int, level: float, draws: int) -> Levels:
    """The largest p-value whose corrected one is at most the level, at least Bonferroni's and at most the level itself."""
    ordered, least = np.sort(smallest), level / family

    def largest(allowed: float) -> float:
        # Up to the smallest p-value of the next pattern the share of patterns stays the same.
        below = np.searchsorted(ordered, ordered * (1.0 - 1e-9)) / len(ordered)
        room = (allowed - below) / unmade if unmade else np.full(len(ordered), allowed)
        ends = np.minimum(ordered * (1.0 - 2e-9), np.minimum(room, allowed / (1 + unmade)))[below <= allowed]
        return min(level, max(least, float(ends.max()) if len(ends) else 0.0))

    if draws == 0:
        return Levels(largest(level), largest(level))
    error = _error(level, least, family, draws, len(ordered))
    return Levels(largest(level - error), largest(level + error))
