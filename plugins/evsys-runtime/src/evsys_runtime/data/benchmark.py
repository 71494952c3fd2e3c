"""A benchmark's file to its tasks: all problems at once, and a hash of what the tasks say."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import attrs

from evsys.errors import DataError
from evsys.types import HarborTask
from evsys_runtime.data import pipeline
from evsys_runtime.data.json_rows import canonical
from evsys_runtime.data.native_tasks import TaskProblem, native_folders, read_native
from evsys_runtime.data.parse import RowProblem, parse_row
from evsys_runtime.data.problem_counter import ProblemCounter
from evsys_runtime.data.readers import FORMATS, ReadReport, read_rows
from evsys_runtime.data.scope import DataScope, current_scope, use_scope

__all__ = ["format_problems", "load_tasks", "tasks_file"]

_MOST_SHOWN = 20
"""The most kinds of problems reported in words; the others are counted."""

_HINT = "a task needs `task_id`, `instruction` and `verifier {name, expected, params}`"


def load_tasks(
    source: str | Path | Iterable[Mapping[str, Any]],
    *,
    name: str | None = None,
    transforms: Sequence[Any] = (),
    registry: Any = None,
    project_root: Path | None = None,
    seed: int = 0,
    resolve: Callable[[Any], Any] = pipeline.literal_params,
) -> tuple[tuple[HarborTask, ...], str]:
    """The tasks of a benchmark, in their order, and `sha256:...` of their content.

    The hash is over the rows with sorted columns, so it doesn't change with white space or the order of columns.

    Args:
        source: a file of task rows, a folder that holds `tasks.jsonl`, a folder of native Harbor tasks, or rows. The
            `path` of a row is the folder of such a task.
        name: of the source in messages; None is its path.
        transforms: `{kind, params}` entries that make task rows of other rows.
        registry: of transforms.
        project_root: the start of a relative `source` and of the transforms' paths; None is the working directory.
        seed: the root of the seeds of transforms without one.
        resolve: replaces references in the params of transforms, such as `${NAME}`.

    Raises:
        DataError: no such file, or rows that are not tasks, ids that come twice, ids that differ only in punctuation;
            every problem of the file, each with its physical line.
    """
    scope = DataScope() if project_root is None else DataScope(project_root=project_root)
    report = ReadReport(source=name or "", most_problems=10**9)
    with use_scope(scope):
        if isinstance(source, str | Path):
            path = tasks_file(scope.resolve(source))
            if path.is_dir():
                return _native(path, name or str(source), scope, transforms)
            report.source = name or str(source if path == scope.resolve(source) else Path(source) / path.name)
            rows: Iterable[Mapping[str, Any]] = read_rows(path, on_bad_row="skip", report=report)
        else:
            rows = source
            report.source = name or "tasks"
        stages = pipeline.build_stages(transforms, registry, seed=seed, resolve=resolve)
        return _collect(pipeline.apply(rows, stages, source=report), report, pipeline.keeps_position(stages))


def tasks_file(path: Path) -> Path:
    """The file of tasks that a benchmark's path means: itself, or the one in its folder; a folder of native tasks is itself.

    Raises:
        DataError: a folder with neither.
    """
    if not path.is_dir():
        return path
    for suffix in FORMATS:
        if (path / f"tasks{suffix}").is_file():
            return path / f"tasks{suffix}"
    if native_folders(path):
        return path
    inside = sorted(entry.name for entry in path.iterdir())
    hint = f"it has {', '.join(inside[:8])}" if inside else "it is empty"
    raise DataError("the folder has no tasks.jsonl", source=str(path), hint=hint)


def _native(
    path: Path, name: str, scope: DataScope, transforms: Sequence[Any]
) -> tuple[tuple[HarborTask, ...], str]:
    """The tasks of a folder of native tasks, which is a benchmark as it is."""
    if transforms:
        raise DataError("is a folder of tasks, which takes no transforms", source=name)
    tasks: list[HarborTask] = []
    problems: list[tuple[str, int | None, str]] = []
    places: dict[str, str] = {}
    slugs: dict[str, str] = {}
    content = hashlib.sha256()
    for folder in native_folders(path):
        try:
            native = read_native(folder)
        except TaskProblem as exc:
            problems.append((_display_path(exc.file, scope), exc.line, str(exc)))
            continue
        clash = _clash(native.task.task_id, places, slugs)
        if clash:
            problems.append((_display_path(folder, scope), None, clash))
        places[native.task.task_id] = _display_path(folder, scope)
        slugs.setdefault(_slug(native.task.task_id), native.task.task_id)
        tasks.append(native.task)
        content.update(f"{folder.name}\0{native.digest}\0".encode())
    if problems:
        raise _folder_error(problems)
    return tuple(tasks), f"sha256:{content.hexdigest()}"


def _folder_error(problems: Sequence[tuple[str, int | None, str]]) -> DataError:
    file, line, message = problems[0]
    if len(problems) > 1:
        message = format_problems(f"the benchmark has {len(problems)} problems:", problems)
    hint = "a task is a folder with task.toml, instruction.md and tests/test.sh"
    return DataError(message, source=file, line=line, hint=hint, problems=len(problems))


def format_problems(head: str, problems: Sequence[tuple[str, int | None, str]]) -> str:
    """Several problems as one message: a line each, with its file and line, the first ones of very many."""
    told = [f"{place}:{at}: {text}" if at is not None else f"{place}: {text}" for place, at, text in problems]
    shown = told[:_MOST_SHOWN]
    if len(told) > len(shown):
        shown.append(f"and {len(told) - len(shown)} more")
    return "\n  ".join([head, *shown])


def _display_path(path: Path, scope: DataScope) -> str:
    """A path as messages call it: below the project where it is there."""
    root = scope.project_root.resolve()
    whole = path.resolve() if not path.is_symlink() else path.absolute()
    return whole.relative_to(root).as_posix() if whole.is_relative_to(root) else str(path)


def _collect(
    rows: Iterable[Mapping[str, Any]], report: ReadReport, exact: bool
) -> tuple[tuple[HarborTask, ...], str]:
    tasks: list[HarborTask] = []
    problems: list[tuple[int, str, str, str]] = []
    places: dict[str, str] = {}
    slugs: dict[str, str] = {}
    content = hashlib.sha256()
    for index, row in enumerate(rows):
        line = report.line if exact and report.line is not None else None
        where = f"line {line}" if line is not None else f"row {index}"
        try:
            task = cast("HarborTask", parse_row(row, "task", index))
            if task.path is not None:
                task, digest = _with_folder(task)
                content.update(digest.encode())
        except (RowProblem, TaskProblem) as exc:
            problems.append((line or index, where, getattr(exc, "kind", str(exc)), str(exc)))
            continue
        clash = _clash(task.task_id, places, slugs)
        if clash:
            problems.append((line or index, where, "two tasks of one id", clash))
        places.setdefault(task.task_id, where)
        slugs.setdefault(_slug(task.task_id), task.task_id)
        tasks.append(task)
        content.update(canonical(row))
    problems += [(line, f"line {line}", kind, problem) for line, kind, problem in report.problems]
    if problems:
        problems.sort(key=lambda problem: problem[0])
        grouped = ProblemCounter(most_kinds=_MOST_SHOWN)
        for _, where, kind, message in problems:
            grouped.add(kind, where, message)
        head = f"{len(problems)} problems" if len(problems) > 1 else "a problem"
        text = "\n  ".join([f"the benchmark has {head}:", *grouped.lines("tasks")])
        first = problems[0][0] if exact and report.line is not None else None
        raise DataError(text, source=report.source, line=first, hint=_HINT, problems=len(problems))
    if not tasks:
        raise DataError("holds no tasks", source=report.source)
    return tuple(tasks), f"sha256:{content.hexdigest()}"


def _with_folder(task: HarborTask) -> tuple[HarborTask, str]:
    """A row's task with what its folder says where the row doesn't, and the digest of that folder.

    Raises:
        TaskProblem: the folder isn't there, or is broken; the message names the file.
    """
    scope = current_scope()
    try:
        native = read_native(scope.resolve(str(task.path)), task.task_id)
    except TaskProblem as exc:
        place = ":".join(str(part) for part in (_display_path(exc.file, scope), exc.line) if part is not None)
        raise TaskProblem(f"{place}: {exc}", exc.file, exc.line) from exc
    folder = native.task
    merged = attrs.evolve(
        task,
        path=folder.path,
        instruction=task.instruction or folder.instruction,
        metadata={**folder.metadata, **task.metadata},
    )
    return merged, native.digest


def _clash(task_id: str, places: Mapping[str, str], slugs: Mapping[str, str]) -> str | None:
    if task_id in places:
        return f"task_id {task_id!r} comes again, first in {places[task_id]}"
    other = slugs.get(_slug(task_id))
    if other is not None:
        return f"task_id {task_id!r} differs only in punctuation from {other!r} in {places[other]}"
    return None


def _slug(task_id: str) -> str:
    """The portable file name of an id; two tasks must not share it."""
    return re.sub(r"[\W_]+", "-", task_id).strip("-") or task_id
