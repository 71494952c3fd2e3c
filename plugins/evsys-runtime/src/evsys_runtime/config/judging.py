"""`metadata`: the benchmark entries and what is decided by them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs

from evsys import structure
from evsys.errors import ConfigError, DataError
from evsys_runtime.config.benchmarks import Benchmarks
from evsys_runtime.config.building import Plugins
from evsys_runtime.config.model import BenchmarkConfig, MetadataConfig
from evsys_runtime.config.plan import SuccessMetric
from evsys_runtime.config.reading import Reader
from evsys_runtime.config.selection import Selection

__all__ = ["Judging", "check_metadata"]

_PLACE = "$.metadata.benchmark"


@attrs.frozen(kw_only=True)
class Judging:
    """How arms are scored and compared. `data_errors` are those of task files."""

    benchmarks: tuple[BenchmarkConfig, ...] = ()
    success: SuccessMetric | None = None
    baseline: str = ""
    data_errors: tuple[DataError, ...] = ()


@attrs.frozen(kw_only=True)
class _Entry:
    """A benchmark entry as written and as made, None where it can't be."""

    place: str
    raw: Any
    made: BenchmarkConfig | None


def check_metadata(
    reader: Reader,
    plugins: Plugins,
    root: Path,
    given: Any,
    arms: Sequence[tuple[str, Mapping[str, Any]]],
    *,
    has_store: bool,
) -> Judging:
    """Check the `metadata` block, however much of it can be made.

    Args:
        reader: structures and reports.
        plugins: builds metrics, engines, agents and verifiers.
        root: the project root.
        given: the block as plain values; its own faults are reported here.
        arms: name and tree of each arm.
        has_store: True where a data store is configured.
    """
    if given is not None and not isinstance(given, Mapping):
        return Judging()  # reported as part of the file
    given = given or {}
    entries = _entries(given.get("benchmark"))
    checks = Benchmarks(reader=reader, plugins=plugins, root=root, has_store=has_store)
    for entry in entries:
        if entry.made is not None:
            checks.check(entry.made, entry.raw, entry.place)
    values = reader.fields(MetadataConfig, given, "$.metadata", skip=("benchmark",))
    made = tuple(entry.made for entry in entries if entry.made is not None)
    selection = Selection(reader=reader, plugins=plugins, metadata=MetadataConfig(**values, benchmark=made))
    baseline = selection.baseline(arms) if arms else ""
    errors = tuple(checks.data_errors)
    if len(made) < len(entries):  # which entry is meant can't be told while one is unreadable
        return Judging(baseline=baseline, data_errors=errors)
    success = selection.success_metric()
    benchmarks = selection.filled(success)
    return Judging(benchmarks=benchmarks, success=success, baseline=baseline, data_errors=errors)


def _entries(listed: Any) -> list[_Entry]:
    """The entries, one or a list; what is wrong with one is reported as part of the file."""
    if listed is None:
        return []
    many = isinstance(listed, list)
    entries = []
    for index, raw in enumerate(listed if isinstance(listed, list) else [listed]):
        place = f"{_PLACE}[{index}]" if many else _PLACE
        try:
            made = structure(BenchmarkConfig, raw, path=place)
        except ConfigError:
            made = None
        entries.append(_Entry(place=place, raw=raw, made=made))
    return entries
