"""How far the runs of an experiment have come, for those who ask while it runs."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import attrs

from evsys.types import ArmResult, EvaluationResult, RunContext

__all__ = ["Progress", "RunProgress"]


@attrs.define(kw_only=True)
class RunProgress:
    """One run. `began` is its first step of this attempt and when that was due; `stepped` when the last one was done."""

    status: str = "waiting"
    phase: str | None = None
    step: int = 0
    total_steps: int | None = None
    metrics: Mapping[str, float] = attrs.field(factory=dict)
    scores: dict[str, float] = attrs.field(factory=dict)
    evaluating: str | None = None
    began: tuple[int, float] | None = None
    stepped: float = 0.0

    @property
    def seconds_left(self) -> float | None:
        """An estimate of the training time left, from the steps so far; None before the first one."""
        if self.status != "running" or self.began is None or self.total_steps is None:
            return None
        first, at = self.began
        done = self.step - first
        return None if done < 1 else (self.stepped - at) / done * (self.total_steps - self.step)

    def resume_after(self, seconds: float) -> None:
        """It ran again after it had held for so long."""
        self.status = "running"
        if self.began is not None:
            self.began = (self.began[0], self.began[1] + seconds)
            self.stepped += seconds

    def facts(self) -> dict[str, Any]:
        """It as JSON values."""
        return {
            "status": self.status,
            "phase": self.phase,
            "step": self.step,
            "total_steps": self.total_steps,
            "loss": self.metrics.get("loss"),
            "scores": dict(self.scores),
            "evaluating": self.evaluating,
            "seconds_left": self.seconds_left,
        }


class Progress:
    """The runs by id, in the order in which they begin. A listener of each of them.

    `changes` counts what has happened, so that a reader in another thread knows whether its copy is still right.
    """

    def __init__(self) -> None:
        self.runs: dict[str, RunProgress] = {}
        self.changes = 0

    def run(self, run_id: str) -> RunProgress:
        """The progress of a run, to be changed."""
        self.changes += 1
        found = self.runs.get(run_id)
        if found is None:
            found = self.runs[run_id] = RunProgress()
        return found

    def evsys_run_started(self, ctx: RunContext, total_steps: int | None) -> None:
        """A hook: training begins."""
        run = self.run(ctx.run_id)
        restored = ctx.checkpoints.restored
        run.step = 0 if restored is None else restored.step
        run.total_steps = total_steps
        run.began, run.stepped = (run.step, time.monotonic()), time.monotonic()

    def evsys_step_finished(self, ctx: RunContext, step: int, metrics: Mapping[str, float]) -> None:
        """A hook: a step is done."""
        run = self.run(ctx.run_id)
        run.step, run.metrics, run.stepped = step, metrics, time.monotonic()

    def evsys_evaluation_advanced(
        self, ctx: RunContext, benchmark: str, step: int, done: int, total: int
    ) -> None:
        """A hook: an evaluation is under way."""
        self.run(ctx.run_id).evaluating = f"{benchmark} of step {step}, {done}/{total}"

    def evsys_evaluation_finished(self, ctx: RunContext, evaluation: EvaluationResult) -> None:
        """A hook: its means, of the model of the run."""
        run = self.run(ctx.run_id)
        run.evaluating = None
        if evaluation.model is None:
            for name, metric in evaluation.metrics.items():
                if name.startswith("mean") and metric.value is not None:
                    run.scores[f"{evaluation.benchmark} {name}"] = metric.value

    def evsys_run_finished(self, ctx: RunContext, result: ArmResult) -> None:
        """A hook: how it ended."""
        run = self.run(ctx.run_id)
        run.status, run.phase, run.evaluating = result.status, None, None
