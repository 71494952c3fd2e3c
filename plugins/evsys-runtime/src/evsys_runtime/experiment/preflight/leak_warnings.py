"""Before anything is spent: which benchmarks have tasks among the rows that arms will train on, and which columns are left unused."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from evsys.errors import DataError, EvsysError
from evsys_runtime.config.model import DataConfig
from evsys_runtime.config.model.run import SourceConfig
from evsys_runtime.config.plan import Plan
from evsys_runtime.data.column_use import unused_warnings
from evsys_runtime.data.contamination import DataCheck, best_matches, count_by_match
from evsys_runtime.data.stored_data import find_dataset
from evsys_runtime.experiment.preflight.data_check import check_data
from evsys_runtime.experiment.verdict.leak import MOST_LEAKED, leak_words

__all__ = ["leak_warnings", "quick_leak_warnings", "reads_few_local_rows"]

_MOST_BYTES = 32 * 2**20


def leak_warnings(plan: Plan, *, columns: bool = True) -> tuple[str, ...]:
    """A warning for each benchmark entry that has tasks among the training rows, however those were split. Blocking.

    Rows are read through their transforms. If they can't be used, the warning says so.

    Args:
        plan: a valid plan.
        columns: warn of columns that reach no message as well; a run's own warnings name those of its rows.
    """
    if not plan.looked_at or not (columns or plan.experiment.metadata.benchmarks):
        return ()
    try:
        check = check_data(plan, needs_benchmark=False)
        return (*_warnings(plan, check), *_column_warnings(check, rows=columns))
    except DataError as error:
        return (f"training rows can't be used, so a run would fail: {error.message}",)
    except EvsysError as error:
        return (f"training rows were not searched for benchmark tasks: {error.message}",)


def quick_leak_warnings(plan: Plan, *, columns: bool = True) -> tuple[str, ...]:
    """`leak_warnings` if the search is quick and offline; else, if there is a benchmark, a warning that nothing was searched. Blocking."""
    if reads_few_local_rows(plan):
        return leak_warnings(plan, columns=columns)
    if not plan.experiment.metadata.benchmarks:
        return ()
    where = f"they are not in local files of at most {_MOST_BYTES >> 20} MiB"
    return (
        f"training rows were not searched for benchmark tasks: {where}; `evsys data check` searches them",
    )


def reads_few_local_rows(plan: Plan) -> bool:
    """Whether all training rows are in files of the project of 32 MiB at most, so that a search takes seconds and downloads nothing."""
    sizes = [_local_bytes(plan.project_root, arm.run.data) for arm in plan.looked_at]
    return all(size is not None and size <= _MOST_BYTES for size in sizes)


def _local_bytes(root: Path, data: DataConfig) -> int | None:
    """Bytes of the files that a `data` block reads, replayed ones included; None if one of them isn't a file of the project."""
    sizes = [_source_bytes(root, one) for one in (data, *(data.replay.datasets if data.replay else ()))]
    known = [size for size in sizes if size is not None]
    return sum(known) if len(known) == len(sizes) else None


def _source_bytes(root: Path, data: SourceConfig) -> int | None:
    if (reference := data.dataset_id or data.dataset_name) is not None:
        try:
            path = find_dataset(root, reference).path
        except DataError:  # a store has it, which isn't asked here
            return None
    elif data.rows is not None:
        return 0  # they are in the experiment file
    elif data.path is not None:
        path = root / Path(data.path)
    else:
        return None
    return path.stat().st_size if path.is_file() else None


def _column_warnings(check: DataCheck, *, rows: bool) -> Iterator[str]:
    """Columns of rows and of tasks whose words the model never sees, each once."""
    if rows:
        for dataset in check.datasets:
            yield from unused_warnings(dataset.source, dataset.unused, dataset.rows)
    unused = {
        entry.benchmark: entry for dataset in check.datasets for entry in dataset.benchmarks if entry.unused
    }
    for name, entry in unused.items():
        named = ", ".join(
            f"{column!r} ({count:,} of {entry.tasks:,} tasks)" for column, count in entry.unused.items()
        )
        yield f"benchmark {name!r}: question columns missing from the prompt: {named}"


def _warnings(plan: Plan, check: DataCheck) -> Iterator[str]:
    entries = [entry for dataset in check.datasets for entry in dataset.benchmarks]
    tasks = {entry.benchmark: entry.tasks for entry in entries}
    deciding = None if plan.success is None else plan.success.benchmark
    for name, leaked in best_matches(entries).items():
        why = leak_words(name, len(leaked), tasks[name])
        if not leaked:
            continue
        said = f"benchmark {name!r}: {len(leaked)} of {tasks[name]} tasks ({len(leaked) / tasks[name]:.0%}) are among the training rows"
        counts = count_by_match(leaked.values())
        if counts.keys() != {"equal"}:
            said += f" ({', '.join(f'{count} {match}' for match, count in counts.items())})"
        if name == deciding and why is not None and not plan.experiment.metadata.allow_leak:
            said += f"; above {MOST_LEAKED:.0%} the verdict is INVALID"
        yield f"{said}; `evsys data check` lists them"
