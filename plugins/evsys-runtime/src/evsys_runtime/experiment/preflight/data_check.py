"""`evsys data check`: the tasks of each benchmark entry, looked for in what each arm trains on."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import attrs

from evsys.errors import ConfigError, DataError, Problem
from evsys.optional import declared
from evsys_record.hashing import digest
from evsys_runtime.config.model import DataConfig
from evsys_runtime.config.placeholders import resolve
from evsys_runtime.config.plan import ArmConfig, Plan
from evsys_runtime.data.contamination import DataCheck, DatasetCheck, Scan
from evsys_runtime.data.load import open_rows
from evsys_runtime.data.parse import Shape, parse_rows
from evsys_runtime.data.pipeline import build_stages
from evsys_runtime.data.scope import DataScope, use_scope
from evsys_runtime.data.task_index import Entry, TaskIndex
from evsys_runtime.data.workspace import Workspace
from evsys_runtime.experiment.state.seeds import seeds_of

__all__ = ["check_data", "data_key", "shape_of"]

_TOLD_EVERY = 1_000

type Advanced = Callable[[str, int], None]
"""Called with a dataset's name and the number of its rows read so far."""


@attrs.define(kw_only=True)
class _Dataset:
    """The training data of arms: the block of the first of them, read with its seed, and the names and repeats of
    all.
    """

    config: DataConfig
    shape: Shape
    seed: int
    arms: dict[str, None] = attrs.field(factory=dict)
    repeats: set[int] = attrs.field(factory=set)


def check_data(
    plan: Plan,
    *,
    arm: str | None = None,
    advanced: Advanced = lambda _source, _rows: None,
    needs_benchmark: bool = True,
) -> DataCheck:
    """Look for the benchmarks' tasks in the training rows of each arm. Rows are streamed, once for all arms that
    share them and all entries; nothing is written.

    Blocking; call it in a thread if an event loop runs.

    Args:
        plan: a valid plan.
        arm: only the data of this arm; by default of all.
        advanced: called with the progress, every thousand rows.
        needs_benchmark: refuse a plan without a benchmark; else only its columns are checked.

    Raises:
        ConfigError: no such arm, or no benchmark to look for.
        DataError: rows can't be read.
    """
    arms = [candidate for candidate in plan.looked_at if arm in (None, candidate.name)]
    if not arms:
        names = ", ".join(dict.fromkeys(candidate.name for candidate in plan.looked_at))
        raise ConfigError(f"no arm is called {arm!r}", hint=f"arms: {names}")
    entries = _entries(plan) if needs_benchmark or plan.experiment.metadata.benchmarks else []
    index = TaskIndex(entries)
    checks = tuple(
        _check_dataset(plan, dataset, index, entries, advanced) for dataset in _datasets(plan, arms)
    )
    flagged = sum(len(entry.flagged) for check in checks for entry in check.benchmarks)
    return DataCheck(flagged=flagged, datasets=checks)


def _entries(plan: Plan) -> list[Entry]:
    configs = plan.experiment.metadata.benchmarks
    if not configs:
        message = "there is no benchmark, so no task to look for"
        raise ConfigError([Problem(path="$.metadata", message=message, hint="name one as `benchmark`")])
    return [
        Entry(name=config.label, split=config.split, tasks=plan.tasks[config.label].tasks)
        for config in configs
    ]


def shape_of(plan: Plan, arm: ArmConfig) -> Shape:
    """Which rows the arm's algorithm takes."""
    shape: Shape = declared(plan.resolver.built("algorithm", arm.run.algorithm), "shape", "chat")
    return shape


def data_key(arm: ArmConfig, shape: Shape, seed: int) -> str:
    """The facts that an arm's rows depend on: arms with equal ones read the same rows. Only transforms and replay
    draw with the seed.
    """
    drawn = arm.run.data.transforms or arm.run.data.replay is not None
    return digest([arm.tree.get("data"), shape, seed if drawn else None])


def _datasets(plan: Plan, arms: Sequence[ArmConfig]) -> list[_Dataset]:
    """The datasets of arms, each once; repeats differ only where a transform draws with the seed of the repeat."""
    found: dict[str, _Dataset] = {}
    looked_up: dict[tuple[int, Shape, int], _Dataset] = {}  # arms share the very block, as a rule
    for arm in arms:
        shape, seed = shape_of(plan, arm), seeds_of(plan, arm)("data")
        alike = id(arm.run.data), shape, seed
        if alike not in looked_up:
            dataset = _Dataset(config=arm.run.data, shape=shape, seed=seed)
            looked_up[alike] = found.setdefault(_dataset_key(plan, arm, dataset), dataset)
        looked_up[alike].arms[arm.name] = None
        looked_up[alike].repeats.add(arm.repeat)
    return list(found.values())


def _dataset_key(plan: Plan, arm: ArmConfig, dataset: _Dataset) -> str:
    """What the rows of an arm depend on, with the seed only if something draws with it."""
    with use_scope(DataScope(project_root=plan.project_root)):
        stages = build_stages(
            dataset.config.transforms,
            plan.registry,
            seed=dataset.seed,
            path="$.run.data.transforms",
            resolve=resolve,
        )
    drawn = dataset.seed if dataset.config.replay is not None else None
    return digest([arm.tree.get("data"), dataset.shape, [stage.given_seed for stage in stages], drawn])


def _check_dataset(
    plan: Plan, dataset: _Dataset, index: TaskIndex, entries: Sequence[Entry], advanced: Advanced
) -> DatasetCheck:
    scan = Scan(index)
    scope = DataScope(project_root=plan.project_root)
    with use_scope(scope):
        pull = Workspace(plan.project_root).find_dataset
        opened = open_rows(dataset.config, scope, plan.registry, pull, seed=dataset.seed, resolve=resolve)
        source = opened.source.report.source
        rows = parse_rows(opened.rows, dataset.shape, on_bad_row=opened.on_bad_row, place=opened.place)
        for row in rows:
            scan.add(row)
            if scan.rows % _TOLD_EVERY == 0:
                advanced(source, scan.rows)
    if not scan.rows:
        raise DataError("holds no rows", source=source or None)
    return DatasetCheck(
        source=source,
        arms=tuple(dataset.arms),
        repeats=tuple(sorted(dataset.repeats)),
        rows=scan.rows,
        unused=dict(scan.columns.unused),
        benchmarks=tuple(scan.checks(entries)),
    )
