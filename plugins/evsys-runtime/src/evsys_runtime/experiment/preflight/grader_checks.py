"""The graders of an experiment's benchmarks, checked before anything is trained or paid for."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import attrs

from evsys import Registry
from evsys.errors import DataError
from evsys_record.experiment_record import ExperimentRecord
from evsys_record.files import write_json
from evsys_record.secrets import Redactor
from evsys_runtime.config.model import BenchmarkConfig
from evsys_runtime.config.tasks import Tasks
from evsys_runtime.data.benchmark import format_problems, tasks_file
from evsys_runtime.data.stored_data import find_benchmark
from evsys_runtime.evaluation.benchmarks import BoundBenchmark
from evsys_runtime.evaluation.grader_check import GraderCheck, GraderFault, check_grader

__all__ = ["GRADER_CHECK", "check_graders", "keep_grader_checks"]

GRADER_CHECK = "grader_check.json"
"""The file of an experiment's record that says which answers made without a model got which marks."""


async def check_graders(
    entries: Sequence[BenchmarkConfig],
    benchmarks: Sequence[BoundBenchmark],
    *,
    registry: Registry,
    project_root: Path,
    seed: int,
) -> tuple[GraderCheck, ...]:
    """Check the graders of every entry.

    Args:
        entries: as the experiment file has them.
        benchmarks: the same, bound.
        registry: where verifiers are looked up.
        project_root: what paths start from.
        seed: draws the tried tasks.

    Raises:
        DataError: a grader passes everything, or fails the right answer; says which tasks, and where the first of them is.
    """
    checks = [await check_grader(benchmark, registry, seed=seed) for benchmark in benchmarks]
    found = [
        (fault, *_place(entry, fault.tasks[0], project_root))
        for entry, check in zip(entries, checks, strict=True)
        for fault in check.faults
    ]
    if found:
        raise _refusal(found)
    return tuple(checks)


def keep_grader_checks(
    record: ExperimentRecord, checks: Sequence[GraderCheck] | None, redactor: Redactor
) -> None:
    """Put on record how graders were checked, or that they weren't, which None represents."""
    tree = {"checked": checks is not None, "benchmarks": [attrs.asdict(check) for check in checks or ()]}
    write_json(record.directory / GRADER_CHECK, redactor.tree(tree))


def _refusal(found: Sequence[tuple[GraderFault, str, int | None]]) -> DataError:
    first, source, line = found[0]
    message = first.message
    if len(found) > 1:
        message = format_problems(
            f"{len(found)} graders don't distinguish right answers from wrong ones:",
            [(place, at, fault.message) for fault, place, at in found],
        )
    return DataError(
        message,
        source=source,
        line=line,
        hint="fix the verifier, or the task's expected answer; --skip-grader-check runs anyway",
        faults=len(found),
    )


def _place(entry: BenchmarkConfig, task_id: str, project_root: Path) -> tuple[str, int | None]:
    """The file of an entry's tasks, and the line of one of them; None for an unknown line."""
    if entry.path is not None:
        path = tasks_file(project_root / entry.path)
    else:
        path = find_benchmark(project_root, entry.id or entry.name or "").path
    inside = path.is_relative_to(project_root)
    line = Tasks(tasks=(), file=path, transformed=bool(entry.transforms)).line_of(task_id)
    return path.relative_to(project_root).as_posix() if inside else str(path), line
