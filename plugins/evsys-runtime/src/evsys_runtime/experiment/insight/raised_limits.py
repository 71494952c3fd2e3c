"""The command that resumes an experiment so that something is trained: with a higher limit where the budget stopped it."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from evsys.errors import StoreError
from evsys_record import PastExperiment, PastRun
from evsys_record.files import read_json

__all__ = ["resume_command"]

_NAMED = re.compile(r"\bbudget\.(usd|tokens|wall_seconds|steps|arms)\b")
_LEAST_RAISE = 1.5
"""A limit that stopped a run is raised at least by this factor, regardless of the runs so far suggest."""

_MARGIN = {"usd": 1.2, "tokens": 1.2, "wall_seconds": 1.2}
"""Amounts not known exactly in advance get this factor of the amount so far; steps and arms are known."""


def resume_command(directory: Path, past: PastExperiment, runs: Sequence[PastRun]) -> str:
    """`evsys resume ID`, with `--set budget.NAME=AMOUNT` for each limit that doesn't pay for the runs left.

    Args:
        directory: the experiment's folder.
        past: the experiment.
        runs: its runs.
    """
    raised = "".join(
        f" --set budget.{name}={amount}" for name, amount in _raise_limits(directory, past, runs).items()
    )
    return f"evsys resume {past.experiment_id}{raised}"


def _raise_limits(directory: Path, past: PastExperiment, runs: Sequence[PastRun]) -> dict[str, str]:
    """The limits to set. Without a stop by the budget, those alone that what is left is known to exceed."""
    try:
        budget: Mapping[str, Any] = read_json(directory / "experiment.json").get("budget") or {}
    except StoreError:
        return {}
    limits = {name: float(limit) for name, limit in (budget.get("limits") or {}).items() if limit is not None}
    stopped = {name for run in runs for name in _NAMED.findall(run.failure or "")} & limits.keys()
    if past.status == "budget_stopped" and not stopped:
        stopped = set(limits)
    steps = _planned_steps(directory) if "steps" in limits else None
    found = {}
    for name, limit in limits.items():
        needed = _required_limit(name, budget, runs, steps)
        if name in stopped:
            least = _LEAST_RAISE * max(limit, float(budget.get("spent", {}).get(name) or 0.0))
            found[name] = _amount(name, max(needed or 0.0, least))
        elif needed is not None and needed > limit:
            found[name] = _amount(name, needed)
    return found


def _required_limit(
    name: str, budget: Mapping[str, Any], runs: Sequence[PastRun], steps: int | None
) -> float | None:
    """The limit that pays for the runs left, by what others took; None where that isn't known."""
    if name == "arms":
        return float(len(runs))
    used = budget.get("runs") or {}
    left = sum(run.status != "completed" for run in runs)
    amounts = list(_used_amounts(name, used, [run for run in runs if run.status == "completed"]))
    begun = list(_used_amounts(name, used, [run for run in runs if run.folder is not None]))
    if not amounts and begun:  # no one knows how far the largest of them came: half of the way, say
        amounts = [2.0 * max(begun)]
    if name == "steps" and steps is not None:
        each: float | None = float(steps)
    else:
        each = sum(amounts) / len(amounts) if amounts else None
    if each is None:
        return None
    return float(budget["spent"][name]) + left * each * _MARGIN.get(name, 1.0)


def _used_amounts(name: str, used: Mapping[str, Any], completed: Sequence[PastRun]) -> Iterator[float]:
    for run in completed:
        amount = run.seconds if name == "wall_seconds" else used.get(run.run_id, {}).get(name)
        if amount is not None:
            yield float(amount)


def _planned_steps(directory: Path) -> int | None:
    """The most steps of an arm, if the file says how many."""
    try:
        arms = read_json(directory / "resolved.json").get("arms") or ()
    except StoreError:
        return None
    params = [((arm.get("run") or {}).get("algorithm") or {}).get("params") or {} for arm in arms]
    steps = [each.get("steps") for each in params]
    known = [count for count in steps if isinstance(count, int)]
    return max(known) if known and len(known) == len(steps) else None


def _amount(name: str, value: float) -> str:
    return f"{math.ceil(value * 100) / 100:.2f}" if name == "usd" else str(math.ceil(value - 1e-9))
