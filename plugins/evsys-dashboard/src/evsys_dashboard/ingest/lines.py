"""Lines of a record as rows: points of series, and where each rollout is.

A line that isn't as evsys writes it stays among the bytes, where `evsys_record` reports it to its readers; it has no rows.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any, NamedTuple, TypeGuard

from evsys_dashboard.store.database import clean
from evsys_record.files import TORN

__all__ = ["Point", "RunFile", "points_of", "rollout_row", "run_file_of", "whole_lines"]

_OF_RUN = re.compile(r"runs/([^/]+)/(training|validation|test)/(metrics|rollouts)\.jsonl")
_SHOWN = 200

_name = lru_cache(maxsize=4096)(clean)


class RunFile(NamedTuple):
    """Which run and phase a file is of, and whether it holds `metrics` or `rollouts`."""

    run: str
    phase: str
    holds: str


class Point(NamedTuple):
    """A value of a series; NaN for one that wasn't finite."""

    name: str
    attempt: int
    step: int
    value: float


def run_file_of(path: str) -> RunFile | None:
    """The contents of a file whose lines become rows; None for any other."""
    found = _OF_RUN.fullmatch(path)
    return None if found is None else RunFile(*found.groups())


def whole_lines(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Each complete line with the place of its first byte; torn ones are left out."""
    start = 0
    while (end := data.find(b"\n", start) + 1) > 0:
        line = data[start:end]
        if not line.endswith(TORN + b"\n"):
            yield start, line
        start = end


def points_of(line: bytes) -> Iterator[Point]:
    """The points of a line of metrics.jsonl."""
    tree = _tree(line)
    attempt, step, values = tree.get("attempt", 1), tree.get("step"), tree.get("values")
    if not (_whole(attempt, 2**31) and _whole(step) and isinstance(values, dict)):
        return
    for name, value in values.items():
        if value is None or (isinstance(value, int | float) and not isinstance(value, bool)):
            yield Point(_name(name), attempt, step, float("nan") if value is None else _float(value))


def rollout_row(line: bytes) -> dict[str, Any] | None:
    """The row of a line of rollouts.jsonl, without its place."""
    tree = _tree(line)
    rollout, facts, attempt, step = (tree.get(key) for key in ("rollout", "facts", "attempt", "step"))
    if not (
        isinstance(rollout, dict) and isinstance(facts, dict) and _whole(attempt, 2**31) and _whole(step)
    ):
        return None
    score = rollout.get("score")
    score = score if isinstance(score, dict) else {}
    value, sample = score.get("value"), rollout.get("sample_index")
    benchmark = facts.get("benchmark")
    return {
        "length": len(line),
        "attempt": attempt,
        "step": step,
        "benchmark": None if benchmark is None else clean(str(benchmark)),
        "task": clean(str(rollout.get("task_id"))),
        "sample": sample if _whole(sample, 2**31) else 0,
        "score": _float(value) if isinstance(value, int | float) else None,
        "facts": json.dumps(_display_columns(rollout, score)),
    }


def _display_columns(rollout: Mapping[str, Any], score: Mapping[str, Any]) -> dict[str, Any]:
    """The columns of a rollout that only tables need."""
    texts = {"output": rollout.get("output"), "error": rollout.get("error"), "reason": score.get("reason")}
    return {
        **{name: text[:_SHOWN] if isinstance(text, str) else None for name, text in texts.items()},
        "truncated": rollout.get("truncated") is True,
        "timed_out": rollout.get("timed_out") is True,
    }


def _tree(line: bytes) -> Mapping[str, Any]:
    try:
        tree = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return tree if isinstance(tree, dict) else {}


def _whole(value: object, limit: int = 2**63) -> TypeGuard[int]:
    """Whether this is a whole number that a column takes."""
    return isinstance(value, int) and not isinstance(value, bool) and -limit <= value < limit


def _float(value: float) -> float:
    try:
        return float(value)
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")
