"""A benchmark as a guard: tasks that the run isn't trained on, which the policy as it is now does once each, scored by their own verifiers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import attrs
import numpy as np

from evsys.errors import DataError
from evsys.types import SamplingParams
from evsys_record.task_contents import share_in_common
from evsys_runtime import current_scope, run_groups
from evsys_runtime.config.placeholders import resolve
from evsys_runtime.data.benchmark import load_tasks
from evsys_runtime.data.stored_data import find_benchmark
from evsys_runtime.data.task_contents import task_contents
from evsys_runtime.evaluation.verify import bound_verifiers, unjudgeable

if TYPE_CHECKING:
    from pathlib import Path

    from evsys import Registry
    from evsys.types import HarborTask, Rollout, RunContext
    from evsys_algo_rl.params import GuardParams, RLParams
    from evsys_runtime.evaluation.verify import Verifiers

__all__ = ["GuardBenchmark", "benchmark_path", "guard_benchmark"]

_OTHER_CALLS = 1_000_000_000
"""Samplings of a guard have seeds of their own, far from those of the training."""

_LABEL = "guard"
"""The label of the seed that draws the tasks of a check."""


@attrs.frozen(kw_only=True, eq=False)
class GuardBenchmark:
    """The tasks, with their bound verifiers. `shared` is the part of them that the run is trained on."""

    tasks: tuple[HarborTask, ...]
    verifiers: Verifiers
    shared: float

    def drawn(self, ctx: RunContext, count: int, sampling: int) -> list[HarborTask]:
        """The tasks of a check, drawn with replacement, so that what is expected of each is the same at all checks."""
        rng = np.random.default_rng(ctx.seeds(_LABEL, sampling))
        return [self.tasks[place] for place in rng.integers(len(self.tasks), size=count)]

    async def rollouts(self, ctx: RunContext, params: RLParams, sampling: int, step: int) -> list[Rollout]:
        """A judged rollout of each task of a check, by the weights as they are now, in the agent and environment of the training.

        Args:
            ctx: the run.
            params: of the algorithm: how much a model may write, and by which limits.
            sampling: which sampling of the run this belongs to.
            step: the optimiser step that it is for, counted from 1.
        """
        assert params.guard is not None
        snapshot = await ctx.clients.policy.sampling_client()
        try:
            groups = run_groups(
                ctx,
                self.drawn(ctx, params.guard.tasks, sampling),
                1,
                snapshot=snapshot,
                sampling=SamplingParams(
                    max_tokens=params.max_tokens,
                    temperature=params.temperature,
                    seed=_OTHER_CALLS + sampling,
                ),
                limits=params.limits(wave=ctx.deterministic),
                step=step - 1,
            )
            found = {group.place: group.rollouts[0] async for group in groups}
        finally:
            await snapshot.close()
        return [found[place] for place in sorted(found)]


def benchmark_path(name: str, root: Path) -> Path:
    """The path of a benchmark's tasks: a file or folder of the project, or a stored benchmark by its name or id.

    Raises:
        DataError: neither exists.
    """
    path = root / name
    return path if path.exists() else find_benchmark(root, name).path


def guard_benchmark(config: GuardParams, data: Sequence[HarborTask], registry: Registry) -> GuardBenchmark:
    """Read the benchmark of a guard.

    Args:
        config: the guard's params, with a `benchmark`.
        data: the tasks that the run is trained on.
        registry: where transforms and verifiers are looked up.

    Raises:
        DataError: it isn't there, can't be read, has no tasks, or one that can't be judged.
    """
    assert config.benchmark is not None
    root = current_scope().project_root
    tasks, _ = load_tasks(
        benchmark_path(config.benchmark, root),
        name=config.benchmark,
        transforms=config.transforms,
        registry=registry,
        project_root=root,
        resolve=resolve,
    )
    if not tasks:
        raise DataError(f"guard: benchmark {config.benchmark!r} has no tasks")
    verifiers = bound_verifiers(tasks, registry)
    for task in tasks:
        if (why := unjudgeable(task, verifiers)) is not None:
            raise DataError(f"guard: task {task.task_id!r} of benchmark {config.benchmark!r}: {why}")
    shared = share_in_common(task_contents(tasks), task_contents(data))
    return GuardBenchmark(tasks=tasks, verifiers=verifiers, shared=shared)
