"""`metadata`: the benchmark entries and what is decided by them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from evsys import structure
from evsys.errors import ConfigError, DataError
from evsys_runtime.config import paths, trees
from evsys_runtime.config.benchmarks import Benchmarks, Size, fill_samples, with_clients
from evsys_runtime.config.building import Plugins
from evsys_runtime.config.model import BenchmarkConfig, ContrastConfig, MetadataConfig
from evsys_runtime.config.plan import ALPHA, MIN_TASKS, ScoredTasks, SuccessMetric
from evsys_runtime.config.reading import Reader
from evsys_runtime.config.report import Report
from evsys_runtime.config.selection import Selection
from evsys_runtime.config.settings import missing_preregistration
from evsys_runtime.data.workspace import Workspace

__all__ = ["Judging", "check_metadata"]

_PLACE = "$.metadata.benchmark"


@attrs.frozen(kw_only=True)
class Judging:
    """How arms are scored and compared. `data_errors` are those of task files, `sizes` the numbers of tasks by entry, `tasks` the scored ones."""

    benchmarks: tuple[BenchmarkConfig, ...] = ()
    success: SuccessMetric | None = None
    baseline: str = ""
    contrast: ContrastConfig | None = None
    data_errors: tuple[DataError, ...] = ()
    sizes: Mapping[str, Size] = attrs.field(factory=dict)
    tasks: Mapping[str, ScoredTasks] = attrs.field(factory=dict)


@attrs.frozen(kw_only=True)
class _Entry:
    """A benchmark entry as written and as made, None where it can't be.

    Then `rest` is it without the keys at the paths `refused`, where that can be made.
    """

    place: str
    raw: Any
    made: BenchmarkConfig | None
    rest: BenchmarkConfig | None = None
    refused: frozenset[str] = frozenset()


def check_metadata(
    reader: Reader,
    plugins: Plugins,
    workspace: Workspace,
    given: Any,
    arms: Sequence[tuple[str, Mapping[str, Any]]],
    *,
    confirm: str | None = None,
) -> Judging:
    """Check the `metadata` block, however much of it can be made.

    Args:
        reader: structures and reports.
        plugins: builds metrics, engines, agents and verifiers.
        workspace: has the tasks by ID and name.
        given: the block as plain values; its own faults are reported here.
        arms: name and tree of each arm; none where it isn't known which there are.
        confirm: the entry on which a winner is confirmed; None where that is the success metric's.
    """
    if given is not None and not isinstance(given, Mapping):
        return Judging()  # reported as part of the file
    given = given or {}
    entries = _entries(given.get("benchmark"))
    checks = _check_entries(entries, reader, plugins, workspace)
    values = reader.fields(MetadataConfig, given, "$.metadata", skip=("benchmark",))
    made = tuple(entry.made for entry in entries if entry.made is not None)
    selection = Selection(reader=reader, plugins=plugins, metadata=MetadataConfig(**values, benchmark=made))
    selection.check_claim()
    for missing in missing_preregistration(workspace.root, selection.metadata):
        reader.add(
            f"$.metadata.{missing}",
            "is missing, and this project requires a pre-registration of each experiment",
            "state it before the run; require_preregistration in [tool.evsys] of pyproject.toml asks for it",
        )
    baseline = selection.baseline(arms) if arms else ""
    contrast = selection.contrast([name for name, _ in arms], baseline) if arms else None
    errors = tuple(checks.data_errors)
    if len(made) < len(entries):  # which entry is meant can't be told while one is unreadable
        return Judging(baseline=baseline, contrast=contrast, data_errors=errors)
    success = selection.success_metric()
    benchmarks = selection.filled(success, confirm)
    if success is not None:
        compared = {contrast.arm} if contrast else {name for name, _ in arms} - {baseline}
        for name, comparisons in ((confirm, 1), (success.benchmark, len(compared))):
            if name is not None and (size := checks.sizes.get(name)) is not None:
                _check_size(reader, name, size, comparisons)
    return Judging(
        benchmarks=benchmarks,
        success=success,
        baseline=baseline,
        contrast=contrast,
        data_errors=errors,
        sizes=checks.sizes,
        tasks=checks.tasks,
    )


def _check_entries(
    entries: Sequence[_Entry], reader: Reader, plugins: Plugins, workspace: Workspace
) -> Benchmarks:
    checks = Benchmarks(reader=reader, plugins=plugins, workspace=workspace)
    for entry in entries:
        if entry.made is not None:
            named = with_clients(entry.made, plugins.registry)
            # Without metrics, how many samples are drawn is known with the success metric.
            checks.check(fill_samples(named, plugins) if named.metrics else named, entry.raw, entry.place)
        elif entry.rest is not None:
            _check_rest(checks, entry.rest, entry)
    return checks


def _check_size(reader: Reader, label: str, size: Size, compared: int) -> None:
    """Show where a verdict is out of reach before anything is trained for it."""
    if size.tasks < MIN_TASKS:
        tasks = f"{size.tasks} task{'s' * (size.tasks != 1)}"
        message = f"{size.source} holds {tasks}, and nothing can be decided on fewer than {MIN_TASKS}"
        reader.add(
            size.place, message, "add tasks, or set split: test, which is reported and decides nothing"
        )
        return
    if size.scored < MIN_TASKS:
        reader.report.warn(
            f"benchmark {label!r}: 'limit' leaves {size.scored} tasks; on fewer than {MIN_TASKS} the verdict is INVALID"
        )
        return
    if size.distinct < size.scored:
        reader.report.warn(_equal_tasks(label, size))
    if size.distinct < MIN_TASKS:
        return
    # Signs of clusters are flipped: with G of them no p-value is below 2 in 2^G, times the arms that it is corrected over.
    needed = math.ceil(math.log2(2 * max(compared, 1) / ALPHA))
    if size.clusters < needed:
        arms = f"{compared} arms" if compared > 1 else "one arm"
        reader.report.warn(
            f"benchmark {label!r}: its tasks fall into {size.clusters} clusters; with {arms} to compare, no difference can "
            f"be significant on fewer than {needed}"
        )


def _equal_tasks(label: str, size: Size) -> str:
    """That tasks are copies of each other, and how many are left without them."""
    said = f"benchmark {label!r}: {size.scored} tasks are {size.distinct} different ones; equal and nearly equal tasks count as one observation"
    few = size.distinct < MIN_TASKS
    return said + (f", and on fewer than {MIN_TASKS} the verdict is INVALID" if few else "")


def _entries(listed: Any) -> list[_Entry]:
    """The entries, one or a list; what is wrong with one is reported as part of the file."""
    if listed is None:
        return []
    many = isinstance(listed, list)
    entries = []
    for index, raw in enumerate(listed if isinstance(listed, list) else [listed]):
        place = f"{_PLACE}[{index}]" if many else _PLACE
        entries.append(_entry(raw, place))
    return entries


def _entry(raw: Any, place: str) -> _Entry:
    try:
        return _Entry(place=place, raw=raw, made=structure(BenchmarkConfig, raw, path=place))
    except ConfigError as exc:
        refused = frozenset(problem.path for problem in exc.problems)
    above = len(paths.parse(place))
    rest = trees.remove_keys(raw, [paths.parse(path)[above:] for path in refused])
    entry = _Entry(place=place, raw=rest, made=None, refused=refused)
    try:
        return (
            entry if rest is raw else attrs.evolve(entry, rest=structure(BenchmarkConfig, rest, path=place))
        )
    except ConfigError:
        return entry


def _check_rest(checks: Benchmarks, rest: BenchmarkConfig, entry: _Entry) -> None:
    """Report what is wrong with an entry alongside the refused keys, and apart from their being gone."""
    found = Report()
    reader = attrs.evolve(checks.reader, report=found)
    apart = Benchmarks(reader=reader, plugins=checks.plugins, workspace=checks.workspace)
    apart.check(rest, entry.raw, entry.place)
    told = {entry.place, *entry.refused}
    checks.reader.report.add(*(problem for problem in found.problems if problem.path not in told))
    checks.data_errors += apart.data_errors
