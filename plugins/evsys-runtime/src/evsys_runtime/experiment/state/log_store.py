"""The consumer of `log_store`: what happens in an experiment, as records.

A record is a mapping of JSON values. Each has `event`, `time` (seconds since 1970), `experiment`, `run`, `arm`, `repeat` and `attempt`,
the last four null for the experiment as a whole, and by event:

| event | has |
| --- | --- |
| `experiment_started` | `directory`, `runs` |
| `run_started` | `directory`, `config`, `rows`, `from_step` |
| `metrics` | `step`, `group` (`training`, or of a scoring its entry), `values` by name |
| `checkpoint` | `step`, `path` |
| `run_finished` | `status`, `facts` |
| `experiment_finished` | `status`, `facts`, `values` |
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from evsys.optional import declared
from evsys.protocols import LogStore
from evsys.types import ArmResult, Checkpoint, EvaluationResult, ExperimentResult, RunContext
from evsys_record.secrets import Redactor
from evsys_runtime.delivered_events import Heard
from evsys_runtime.log_values import effects_of, end_of, scores_of, verdict_of

__all__ = ["LogStoreListener"]


class LogStoreListener:
    """Writes one run, or an experiment as a whole, to a store that all of them share.

    What the store raises is logged and counted as of any listener, and ends nothing.
    """

    def __init__(self, store: LogStore, experiment: str, redactor: Redactor) -> None:
        self._store = store
        self._experiment = experiment
        self._redactor = redactor
        self._heard = Heard()

    async def evsys_experiment_started(self, directory: Path, arms: Sequence[str]) -> None:
        """The first record."""
        await self._write("experiment_started", None, directory=str(directory), runs=list(arms))

    async def evsys_data_prepared(self, ctx: RunContext, rows: int) -> None:
        """The first record of a run, or of an attempt at it."""
        restored = ctx.checkpoints.restored
        await self._write(
            "run_started",
            ctx,
            directory=str(ctx.run_dir),
            config=ctx.config,
            rows=rows,
            from_step=0 if restored is None else restored.step,
        )

    async def evsys_run_started(self, ctx: RunContext) -> None:
        """Scores of the untrained model that another run had made."""
        await self._catch_up(ctx, declared(ctx.evaluate, "results", ()))

    async def evsys_step_finished(self, ctx: RunContext, step: int, metrics: Mapping[str, float]) -> None:
        """Metrics of training."""
        await self._write("metrics", ctx, step=step, group="training", values=dict(metrics))

    async def evsys_checkpoint_saved(self, ctx: RunContext, checkpoint: Checkpoint) -> None:
        """Store the path of a checkpoint."""
        await self._write("checkpoint", ctx, step=checkpoint.step, path=str(checkpoint.directory))

    async def evsys_evaluation_finished(self, ctx: RunContext, evaluation: EvaluationResult) -> None:
        """Scores, at the step of their weights."""
        self._heard.hear(evaluation)
        group, values = scores_of(evaluation)
        if values:
            await self._write("metrics", ctx, step=evaluation.step, group=group, values=values)

    async def evsys_run_finished(self, ctx: RunContext, result: ArmResult) -> None:
        """The last record of a run."""
        await self._catch_up(ctx, result.evaluations)
        await self._write("run_finished", ctx, status=result.status, facts=end_of(result))

    async def evsys_experiment_finished(self, result: ExperimentResult) -> None:
        """The last record; then the store is closed."""
        try:
            await self._write(
                "experiment_finished",
                None,
                directory=result.directory,
                status=result.status,
                facts=verdict_of(result),
                values=effects_of(result),
            )
        finally:
            await self._store.close()

    async def _catch_up(self, ctx: RunContext, evaluations: Sequence[EvaluationResult]) -> None:
        for evaluation in self._heard.missed(ctx, evaluations):
            await self.evsys_evaluation_finished(ctx, evaluation)

    async def _write(self, event: str, ctx: RunContext | None, **more: Any) -> None:
        record = {
            "event": event,
            "time": time.time(),
            "experiment": self._experiment,
            "run": None if ctx is None else ctx.run_id,
            "arm": None if ctx is None else ctx.arm,
            "repeat": None if ctx is None else ctx.repeat,
            "attempt": None if ctx is None else ctx.attempt,
            **more,
        }
        await self._store.write(self._redactor.tree(record))
