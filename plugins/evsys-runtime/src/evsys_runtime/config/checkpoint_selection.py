"""`select`: which checkpoint of each run counts, and what keeps that choice out of the verdict's numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import attrs

from evsys._plugins.refusals import closest
from evsys.errors import PluginError
from evsys.types import Proof
from evsys_runtime.config.building import Plugins
from evsys_runtime.config.judging import Judging
from evsys_runtime.config.metrics import needs_rollouts
from evsys_runtime.config.model import BenchmarkConfig, SelectConfig
from evsys_runtime.config.plan import MIN_TASKS, CheckpointSelection
from evsys_runtime.config.reading import Reader

__all__ = ["check_select"]

_PLACE = "$.select"
_BY = f"{_PLACE}.by"

LEAST_TASKS = 2 * MIN_TASKS
"""Tasks, or clusters of them, of which one half can select and the other decide."""

_RUN_EVERY = "give the entry 'run_every', the number of steps between two scorings"


@attrs.frozen(kw_only=True)
class _Selects:
    """An entry and its metric."""

    entry: BenchmarkConfig
    metric: str


def check_select(
    select: SelectConfig | None,
    judging: Judging,
    reader: Reader,
    plugins: Plugins,
    *,
    backends: Sequence[tuple[str, Any]],
    steps: Sequence[int | None],
    continual: bool = False,
) -> CheckpointSelection:
    """Report what is wrong with `select`, and say which checkpoint of each run counts.

    Args:
        select: the block; None if the file has none.
        judging: the benchmark entries and what is decided by them.
        reader: takes problems and warnings.
        plugins: builds metrics.
        backends: kind and object of each backend that trains.
        steps: the optimiser steps of each run, None if they aren't known.
        continual: the runs learn dataset after dataset.
    """
    select = SelectConfig() if select is None else select
    if select.checkpoint == "last":
        if select.by is not None:
            reader.report.warn("select: 'by' has no effect with 'checkpoint: last'")
        return CheckpointSelection()
    asked = select.checkpoint == "best" or select.by is not None
    place = _BY if select.by is not None else f"{_PLACE}.checkpoint"
    broken = bool(reader.report.problems)
    if broken and not judging.benchmarks:  # an entry can't be read, so no one knows which there are
        return CheckpointSelection()
    chosen = _find_metric(select.by, judging, reader) if select.by is not None else _default(judging)
    if broken:
        return CheckpointSelection()
    if chosen is None:
        if asked and select.by is None:
            reader.add(place, "no 'val' entry is scored during training", _RUN_EVERY)
        return CheckpointSelection()
    if continual and not asked:
        return CheckpointSelection(reason="stages of 'continual' end with their last checkpoint by default")
    problem = _unable(chosen, judging, plugins, backends)
    if problem is not None:
        if asked:
            reader.add(place, *problem)
        return CheckpointSelection(reason=problem[0])
    if asked:
        _warn_of_one_checkpoint(chosen, steps, reader)
    return _selection(chosen, judging)


def _warn_of_one_checkpoint(chosen: _Selects, steps: Sequence[int | None], reader: Reader) -> None:
    every = chosen.entry.run_every or 0
    if steps and all(known is not None and known <= every for known in steps):
        reader.report.warn(
            f"select: {chosen.entry.label!r} is scored every {every} steps and no run has more, so there is only one "
            "checkpoint to select"
        )


def _selection(chosen: _Selects, judging: Judging) -> CheckpointSelection:
    success = judging.success
    own = success is not None and (success.benchmark, success.metric) == (chosen.entry.label, chosen.metric)
    return CheckpointSelection(
        checkpoint="best",
        benchmark=chosen.entry.label,
        metric=chosen.metric,
        direction=success.direction if own and success is not None else None,
        proof=_proof(chosen, judging),
        proven=None if success is None else success.benchmark,
    )


def _proof(chosen: _Selects, judging: Judging) -> Proof | None:
    """The entry that keeps the selection out of the verdict's numbers; None if nothing is decided."""
    if judging.success is None:
        return None
    deciding = next(entry for entry in judging.benchmarks if entry.label == judging.success.benchmark)
    if not _same_tasks(deciding, chosen.entry):
        return "other_entry"
    return "held_out_tasks" if deciding.repeats_answers else "fresh_samples"


def _same_tasks(one: BenchmarkConfig, other: BenchmarkConfig) -> bool:
    def source(entry: BenchmarkConfig) -> tuple[str | None, str | None]:
        return entry.path, None if entry.path else entry.id or entry.name

    return source(one) == source(other)


def _default(judging: Judging) -> _Selects | None:
    """The success metric if its entry can select, else the first metric of the first entry that can."""
    usable = [one for one in judging.benchmarks if _scored_on_the_way(one) and one.inference is None]
    success = judging.success
    for entry in usable:
        if success is not None and entry.label == success.benchmark:
            return _Selects(entry=entry, metric=success.metric)
    return next((_Selects(entry=one, metric=one.metric_names[0]) for one in usable), None)


def _scored_on_the_way(entry: BenchmarkConfig) -> bool:
    return entry.split == "val" and entry.run_every is not None


def _find_metric(by: str, judging: Judging, reader: Reader) -> _Selects | None:
    """The entry and the metric that `by` names; a problem is reported."""
    known = dict(_choices(judging.benchmarks))
    found = known.get(by)
    if found is None:
        usable = [name for name, each in known.items() if _scored_on_the_way(each.entry)]
        hint = closest(by, known) or (f"choose one of {', '.join(usable)}" if usable else _RUN_EVERY)
        reader.add(_BY, f"no entry and metric are called {by!r}", hint)
        return None
    label = found.entry.label
    if found.entry.split == "test":
        reader.add(
            _BY, f"{label!r} is a 'test' entry, which nothing may be selected by", "name a 'val' entry"
        )
    elif found.entry.run_every is None:
        reader.add(
            _BY, f"{label!r} is only scored after training, so it can't select a checkpoint", _RUN_EVERY
        )
    elif found.entry.inference is not None:
        hint = "name an entry that scores the trained model"
        reader.add(_BY, f"{label!r} scores its own 'inference' client, not the trained model", hint)
    else:
        return found
    return None


def _choices(entries: Sequence[BenchmarkConfig]) -> Iterator[tuple[str, _Selects]]:
    for entry in entries:
        for metric in entry.metric_names:
            yield f"{entry.label}.{metric}", _Selects(entry=entry, metric=metric)


def _unable(
    chosen: _Selects, judging: Judging, plugins: Plugins, backends: Sequence[tuple[str, Any]]
) -> tuple[str, str] | None:
    """The reason why checkpoints can't be selected, with a fix; None if they can."""
    for kind, backend in backends:
        if backend is not None and "resume" not in getattr(backend, "capabilities", ()):
            return (
                f"backend {kind!r} can't load a checkpoint again",
                "use another backend, or checkpoint: last",
            )
    if _proof(chosen, judging) != "held_out_tasks":
        return None
    label = judging.success.benchmark if judging.success is not None else ""
    temperature = next(one.temperature or 0.0 for one in judging.benchmarks if one.label == label)
    size = judging.sizes.get(label)
    if size is not None and size.clusters < LEAST_TASKS:
        what = "clusters of tasks" if size.clusters < size.scored else "tasks"
        few = f"its {size.clusters} {what} are too few for one half to select and the other to decide"
        return (
            f"{label!r} selects and decides at temperature {temperature:g}, and {few}; {LEAST_TASKS} are enough",
            "add tasks, give the entry a temperature, select by another 'val' entry, or set checkpoint: last",
        )
    if _needs_rollouts(chosen, plugins.registry.get):
        return (
            f"{chosen.metric!r} is a metric of whole rollouts, which can't be computed on one half of the tasks",
            "select by another metric or entry, or set checkpoint: last",
        )
    return None


def _needs_rollouts(chosen: _Selects, get: Callable[[str, str], Any]) -> bool:
    spec = dict(zip(chosen.entry.metric_names, chosen.entry.metric_specs, strict=True))[chosen.metric]
    try:
        return needs_rollouts(get("metric", spec.kind))
    except PluginError:  # reported with the entry
        return False
