"""Describes measures outside the bands that algorithms declare."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from evsys.types import OutOfBand
from evsys_record.text import list_names

__all__ = ["health_lines"]

MOST_RUNS = 4


def health_lines(health: Mapping[str, Sequence[OutOfBand]]) -> Iterator[str]:
    """A line for each band left, with the runs that left it and for how long."""
    found: dict[tuple[str, float | None, float | None, str], list[tuple[str, OutOfBand]]] = {}
    for run_id, each in health.items():
        for one in each:
            found.setdefault((one.metric, one.low, one.high, one.why), []).append((run_id, one))
    for (metric, low, high, why), runs in found.items():
        told = [f"{run} ({one.share:.0%} of its steps, from step {one.first_step})" for run, one in runs]
        yield f"{metric} left {_band(low, high)} in {list_names(told, MOST_RUNS)}: {why}"


def _band(low: float | None, high: float | None) -> str:
    if low is None:
        return f"its band of at most {high:g}"
    return f"its band of at least {low:g}" if high is None else f"its band of {low:g} to {high:g}"
