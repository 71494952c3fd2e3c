"""Names of numbers that a callback waits for: whether there will be such numbers while a run continues."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches
from typing import Any

from evsys.optional import declared
from evsys_runtime.config.model import BenchmarkConfig
from evsys_runtime.config.reading import Reader

__all__ = ["check_monitored"]


def check_monitored(reader: Reader, callback: Any, entries: Sequence[BenchmarkConfig], place: str) -> None:
    """Check the names in a callback's attribute `monitored`, if it has one.

    Args:
        reader: reports.
        callback: built; `monitored` has names of scores, `<benchmark>.<metric>`, and of training metrics.
        entries: the benchmark entries, their metrics filled in.
        place: for problems.
    """
    for name in declared(callback, "monitored", ()):
        problem = _problem(name, entries)
        if problem is not None:
            reader.add(place, *problem)


def _problem(name: str, entries: Sequence[BenchmarkConfig]) -> tuple[str, str] | None:
    """The problem of a name, with a fix. A name unlike any other may be a training metric, which only the run
    knows.
    """
    scores = {f"{entry.label}.{metric}": entry for entry in entries for metric in entry.metric_names}
    entry = scores.get(name)
    if entry is None:
        of = next((entry for entry in entries if name.startswith(f"{entry.label}.")), None)
        near = get_close_matches(name, scores, n=1, cutoff=0.8)
        if of is not None:
            metrics = ", ".join(of.metric_names)
            hint = f"did you mean {near[0]!r}?" if near else f"add it to the metrics of {of.label!r}"
            return f"{of.label!r} has no metric {name.removeprefix(of.label)[1:]!r}, only {metrics}", hint
        return (f"nothing scored is called {name!r}", f"did you mean {near[0]!r}?") if near else None
    if entry.split == "test":
        return f"{entry.label!r} is a 'test' entry, which nothing may be chosen by", "monitor a 'val' entry"
    if entry.run_every is None:
        return (
            f"{entry.label!r} is scored when the training is over, so nothing can be stopped by it",
            f"give {entry.label!r} 'run_every', the number of steps between two scorings",
        )
    return None
