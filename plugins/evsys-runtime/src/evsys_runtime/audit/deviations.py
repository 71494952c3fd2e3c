"""The run-to-run deviation that a conclusion takes from earlier runs, recomputed from the scores that it names."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import attrs
import numpy as np
from numpy.typing import NDArray

from evsys_runtime.audit.findings import Section

__all__ = ["KnownDeviation", "check_deviation", "known_deviation"]

type Array = NDArray[np.float64]

_ASSUMED_SPREAD = 0.5
_ASSUMED_WEIGHT = 10.0


@attrs.frozen(kw_only=True)
class KnownDeviation:
    """The variance of a run's score, the part of it that sampling adds, and the degrees of freedom of both."""

    variance: float
    sampling: float
    freedom: float

    def with_own(self, sides: Sequence[Array]) -> KnownDeviation:
        """Weighted with that of own runs, scores by run and task, by degrees of freedom (Smyth 2004)."""
        total, variance, sampling = self.freedom, self.freedom * self.variance, self.freedom * self.sampling
        for scores in sides:
            whole = scores[:, ~np.isnan(scores).any(axis=0)]
            runs, n = whole.shape
            if runs < 2 or n < 2:
                continue
            left = whole - whole.mean(axis=1, keepdims=True) - whole.mean(axis=0) + whole.mean()
            total += runs - 1
            variance += float(((whole.mean(axis=1) - whole.mean()) ** 2).sum())
            sampling += float((left**2).sum()) / (n - 1) / n
        return KnownDeviation(variance=variance / total, sampling=sampling / total, freedom=total)

    def errors(self, by_task: float, units: int, runs: Sequence[int]) -> tuple[float, float, float]:
        """Standard error by run and task, its degrees of freedom, and the squared error by run alone."""
        share = math.fsum(1.0 / count for count in runs)
        by_run, both = share * self.variance, share * min(self.sampling, self.variance)
        total = max(by_run, by_task, by_run + by_task - both)
        spread = by_run**2 / self.freedom + by_task**2 / max(1, units - 1)
        return math.sqrt(total), total**2 / spread if spread else math.inf, by_run


def known_deviation(recorded: Mapping[str, Any] | None) -> KnownDeviation | None:
    """The deviation by the recipes on record: pooled, with degrees of freedom that also count how much recipes differ."""
    recipes = [
        (list(r["scores"].values()), r["sampling_variance"]) for r in (recorded or {}).get("recipes") or ()
    ]
    free = [len(scores) - 1 for scores, _ in recipes]
    total = sum(free)
    if total < 3:
        return None
    squares = [float(((np.array(scores) - np.mean(scores)) ** 2).sum()) for scores, _ in recipes]
    pooled = math.fsum(squares) / total
    weight = math.fsum(d + 2.0 for d in free[1:])
    seen = 0.0
    if pooled > 0 and weight:
        ratios = [s / d / pooled - 1.0 for s, d in zip(squares, free, strict=True)]
        seen = 2.0 + math.fsum(d * ratio**2 - 2.0 for d, ratio in zip(free, ratios, strict=True))
    spread = max(0.0, (_ASSUMED_WEIGHT * _ASSUMED_SPREAD + seen) / (_ASSUMED_WEIGHT + weight))
    sampling = math.fsum(d * each for d, (_, each) in zip(free, recipes, strict=True)) / total
    return KnownDeviation(variance=pooled, sampling=sampling, freedom=2.0 / (spread + 2.0 / total))


def check_deviation(part: Section, conclusion: Mapping[str, Any]) -> None:
    """Check the deviation of earlier runs against their scores."""
    recorded = conclusion.get("run_deviation")
    if recorded is None:
        return
    found = known_deviation(recorded)
    names = ("standard_deviation", "sampling_deviation", "freedom")
    values: Sequence[float | None] = (None, None, None)
    if found is not None:
        values = (math.sqrt(found.variance), math.sqrt(found.sampling), found.freedom)
    for name, value in zip(names, values, strict=True):
        part.close(name, recorded[name], value)
    for experiment in recorded["experiments"]:
        part.unchecked("scores", f"they are in the record of {experiment}")
