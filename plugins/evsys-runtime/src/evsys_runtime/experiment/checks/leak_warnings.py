"""Before anything is spent: which benchmarks have tasks among the rows that arms will train on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from evsys.errors import EvsysError
from evsys_runtime.config.plan import ArmConfig, Plan
from evsys_runtime.data.contamination import DataCheck
from evsys_runtime.experiment.checks.data_check import check_data
from evsys_runtime.experiment.verdict.leak import MOST_LEAKED, leak_words

__all__ = ["leak_warnings", "reads_few_local_rows"]

_MOST_BYTES = 32 * 2**20


def leak_warnings(plan: Plan) -> tuple[str, ...]:
    """A warning for each benchmark entry that has tasks among the training rows, however those were split. Blocking.

    Rows are read through their transforms. If they or the tasks can't be read, the warning says so.
    """
    if not plan.experiment.metadata.benchmarks or not plan.looked_at:
        return ()
    try:
        return tuple(_warnings(plan, check_data(plan)))
    except EvsysError as error:
        return (f"training rows were not searched for benchmark tasks: {error.message}",)


def reads_few_local_rows(plan: Plan) -> bool:
    """Whether all training rows are in files of the project of 32 MiB at most, so that a search takes seconds and downloads nothing."""
    sizes = [_local_bytes(plan, arm) for arm in plan.looked_at]
    return all(size is not None and size <= _MOST_BYTES for size in sizes)


def _local_bytes(plan: Plan, arm: ArmConfig) -> int | None:
    data = arm.run.data
    if data.path is None or data.dataset_id is not None or data.replay is not None:
        return None
    path = plan.project_root / Path(data.path)
    return path.stat().st_size if path.is_file() else None


def _warnings(plan: Plan, check: DataCheck) -> Iterator[str]:
    found: dict[str, set[str]] = {}
    tasks: dict[str, int] = {}
    for entry in (entry for dataset in check.datasets for entry in dataset.benchmarks):
        tasks[entry.benchmark] = entry.tasks
        found.setdefault(entry.benchmark, set()).update(task.task_id for task in entry.flagged)
    deciding = None if plan.success is None else plan.success.benchmark
    for name, leaked in found.items():
        why = leak_words(name, len(leaked), tasks[name])
        if not leaked:
            continue
        said = f"benchmark {name!r}: {len(leaked)} of {tasks[name]} tasks ({len(leaked) / tasks[name]:.0%}) are among the training rows"
        if name == deciding and why is not None and not plan.experiment.metadata.allow_leak:
            said += f"; above {MOST_LEAKED:.0%} the verdict is INVALID"
        yield f"{said}; `evsys data check` lists them"
