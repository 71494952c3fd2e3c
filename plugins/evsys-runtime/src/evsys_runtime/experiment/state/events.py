"""The listener that writes `events.jsonl`: what happens in an experiment, for followers in other processes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from evsys.types import (
    ArmResult,
    Checkpoint,
    EvaluationResult,
    ExperimentResult,
    Failure,
    Rollout,
    RunContext,
)
from evsys_record.events import EventLog

__all__ = ["EventWriter"]


class EventWriter:
    """Writes the events of one run, or of an experiment as a whole, to the log that all of them share."""

    def __init__(self, log: EventLog) -> None:
        self._log = log

    def evsys_experiment_started(self, experiment_id: str, directory: Path, arms: Sequence[str]) -> None:
        """The coming runs."""
        self._log.append("experiment.started", runs=list(arms))

    def evsys_data_prepared(self, ctx: RunContext, rows: int, dropped: Mapping[str, int]) -> None:
        """The rows of a run."""
        restored = ctx.checkpoints.restored
        from_step = 0 if restored is None else restored.step
        self._append(ctx, "data.prepared", rows=rows, dropped=dict(dropped), from_step=from_step)

    def evsys_run_started(
        self, ctx: RunContext, total_steps: int | None, estimate: Mapping[str, float] | None
    ) -> None:
        """How long a run will be."""
        facts = {} if estimate is None else {"estimate": dict(estimate)}
        self._append(ctx, "run.started", total_steps=total_steps, **facts)

    def evsys_evaluation_advanced(
        self, ctx: RunContext, benchmark: str, step: int, done: int, total: int
    ) -> None:
        """The start of an evaluation; its progress is not an event."""
        if done == 0:
            self._append(ctx, "evaluation.started", benchmark=benchmark, step=step, tasks=total)

    def evsys_evaluation_finished(self, ctx: RunContext, evaluation: EvaluationResult) -> None:
        """The metrics of an evaluation, those known."""
        values = {name: metric.value for name, metric in evaluation.metrics.items()}
        self._append(
            ctx,
            "evaluation.finished",
            benchmark=evaluation.benchmark,
            step=evaluation.step,
            status=evaluation.status,
            metrics={name: value for name, value in values.items() if value is not None},
        )

    def evsys_rollouts_finished(
        self, ctx: RunContext, step: int, phase: str, rollouts: Sequence[Rollout]
    ) -> None:
        """How many rollouts were tried again; none is not an event."""
        attempts = [int(one.metadata.get("attempts", 1)) for one in rollouts]
        retried = [count for count in attempts if count > 1]
        if retried:
            self._append(
                ctx, "rollouts.retried", step=step, phase=phase, rollouts=len(retried), attempts=sum(retried)
            )

    def evsys_checkpoint_saved(self, ctx: RunContext, checkpoint: Checkpoint) -> None:
        """The step of a checkpoint."""
        self._append(ctx, "checkpoint.saved", step=checkpoint.step)

    def evsys_run_failed(self, ctx: RunContext, failure: Failure) -> None:
        """Why a run failed."""
        self._append(ctx, "run.failed", boundary=failure.boundary, message=failure.message)

    def evsys_run_finished(self, ctx: RunContext, result: ArmResult) -> None:
        """How a run ended."""
        steps = None if result.run is None else result.run.steps
        facts = {"stop_reason": result.run.stop_reason} if result.run and result.run.stop_reason else {}
        self._append(ctx, "run.finished", status=result.status, steps=steps, seconds=result.seconds, **facts)

    def evsys_experiment_finished(self, result: ExperimentResult) -> None:
        """The verdict; the last event of a process that works on the experiment."""
        verdict = result.conclusion.verdict
        self._log.append(
            "experiment.finished", status=result.status, verdict=verdict, exit_code=result.exit_code
        )
        self._log.close()

    def _append(self, ctx: RunContext, event: str, **facts: object) -> None:
        self._log.append(event, run=ctx.run_id, attempt=ctx.attempt, **facts)
