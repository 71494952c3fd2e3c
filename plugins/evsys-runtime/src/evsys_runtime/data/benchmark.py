"""A benchmark's file to its tasks: all problems at once, and a hash of what the tasks say."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from evsys.errors import DataError
from evsys.types import HarborTask
from evsys_runtime.data import pipeline
from evsys_runtime.data.json_rows import canonical
from evsys_runtime.data.parse import RowProblem, parse_row
from evsys_runtime.data.readers import FORMATS, ReadReport, read_rows
from evsys_runtime.data.scope import DataScope, use_scope

__all__ = ["load_tasks", "tasks_file"]

_MOST_SHOWN = 20
"""How many problems are told one by one; the others are counted."""

_HINT = "a task needs `task_id`, `instruction` and `verifier {name, expected, params}`"


def load_tasks(
    source: str | Path | Iterable[Mapping[str, Any]],
    *,
    name: str | None = None,
    transforms: Sequence[Any] = (),
    registry: Any = None,
    project_root: Path | None = None,
    seed: int = 0,
    resolve: Callable[[Any], Any] = pipeline.unchanged,
) -> tuple[tuple[HarborTask, ...], str]:
    """The tasks of a benchmark, in their order, and `sha256:...` of their content.

    The hash is over the rows with sorted columns, so it doesn't change with white space or the order of columns.

    Args:
        source: a file of task rows, a folder that holds `tasks.jsonl`, or rows.
        name: how messages call the source; None is its path.
        transforms: `{kind, params}` entries that make task rows of other rows.
        registry: where transforms are looked up.
        project_root: what a relative `source` and the transforms' paths start from; None is the working directory.
        seed: what transforms without a seed derive theirs from.
        resolve: puts in what the params of transforms only name, such as `${NAME}`.

    Raises:
        DataError: no such file, or rows that are no tasks, ids that come twice, ids that differ only in punctuation;
            every problem of the file, each with its physical line.
    """
    scope = DataScope() if project_root is None else DataScope(project_root=project_root)
    report = ReadReport(source=name or "", most_problems=10**9)
    with use_scope(scope):
        if isinstance(source, str | Path):
            path = tasks_file(scope.resolve(source))
            report.source = name or str(source if path == scope.resolve(source) else Path(source) / path.name)
            rows: Iterable[Mapping[str, Any]] = read_rows(path, on_bad_row="skip", report=report)
        else:
            rows = source
            report.source = name or "tasks"
        stages = pipeline.build_stages(transforms, registry, seed=seed, resolve=resolve)
        return _collect(pipeline.apply(rows, stages, source=report), report, pipeline.keeps_position(stages))


def tasks_file(path: Path) -> Path:
    """The file of tasks that a benchmark's path means: itself, or the one in its folder.

    Raises:
        DataError: a folder without `tasks.jsonl`.
    """
    if not path.is_dir():
        return path
    for suffix in FORMATS:
        if (path / f"tasks{suffix}").is_file():
            return path / f"tasks{suffix}"
    inside = sorted(entry.name for entry in path.iterdir())
    hint = f"it has {', '.join(inside[:8])}" if inside else "it is empty"
    raise DataError("the folder has no tasks.jsonl", source=str(path), hint=hint)


def _collect(
    rows: Iterable[Mapping[str, Any]], report: ReadReport, exact: bool
) -> tuple[tuple[HarborTask, ...], str]:
    tasks: list[HarborTask] = []
    problems: list[tuple[int, str]] = []
    places: dict[str, str] = {}
    slugs: dict[str, str] = {}
    content = hashlib.sha256()
    for index, row in enumerate(rows):
        line = report.line if exact and report.line is not None else None
        where = f"line {line}" if line is not None else f"row {index}"
        try:
            task = cast("HarborTask", parse_row(row, "task", index))
        except RowProblem as exc:
            problems.append((line or index, f"{where}: {exc}"))
            continue
        clash = _clash(task.task_id, places, slugs)
        if clash:
            problems.append((line or index, f"{where}: {clash}"))
        places.setdefault(task.task_id, where)
        slugs.setdefault(_slug(task.task_id), task.task_id)
        tasks.append(task)
        content.update(canonical(row))
    problems += [(line, f"line {line}: {problem}") for line, problem in report.problems]
    if problems:
        problems.sort(key=lambda problem: problem[0])
        head = f"{len(problems)} problems" if len(problems) > 1 else "a problem"
        shown = [text for _, text in problems[:_MOST_SHOWN]]
        if len(problems) > len(shown):
            shown.append(f"and {len(problems) - len(shown)} more")
        text = "\n  ".join([f"the benchmark has {head}:", *shown])
        first = problems[0][0] if exact and report.line is not None else None
        raise DataError(text, source=report.source, line=first, hint=_HINT, problems=len(problems))
    if not tasks:
        raise DataError("holds no tasks", source=report.source)
    return tuple(tasks), f"sha256:{content.hexdigest()}"


def _clash(task_id: str, places: Mapping[str, str], slugs: Mapping[str, str]) -> str | None:
    if task_id in places:
        return f"task_id {task_id!r} comes again, first in {places[task_id]}"
    other = slugs.get(_slug(task_id))
    if other is not None:
        return f"task_id {task_id!r} differs only in punctuation from {other!r} in {places[other]}"
    return None


def _slug(task_id: str) -> str:
    """What is left of an id in a portable file name; two tasks must not share it."""
    return re.sub(r"[\W_]+", "-", task_id).strip("-") or task_id
