"""Callbacks: methods that hear what happens, marked or not, plain or async."""

from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar, assert_type

import attrs

from evsys_sdk import (
    ArmResult,
    Conclusion,
    EvaluationResult,
    ExperimentResult,
    RunContext,
    hookimpl,
    option,
    register_callback,
)


@register_callback("patience")
class Patience:
    """Ends a run whose loss has stopped falling."""

    name: ClassVar[str] = "patience"

    @attrs.frozen(kw_only=True)
    class Config:
        """Params."""

        steps: int = option(20, "Steps without a lower loss after which a run ends.", ge=1)

    def __init__(self, steps: int) -> None:
        self.steps = steps
        self.best: tuple[int, float] = (0, float("inf"))
        self.seen: list[str] = []

    def evsys_step_finished(self, ctx: RunContext, step: int, metrics: Mapping[str, float]) -> None:
        if metrics["loss"] < self.best[1]:
            self.best = (step, metrics["loss"])
        elif step - self.best[0] >= self.steps:
            ctx.request_stop(f"no lower loss for {self.steps} steps")
            assert_type(ctx.stop_requested, str | None)

    async def evsys_evaluation_finished(self, ctx: RunContext, evaluation: EvaluationResult) -> None:
        self.seen.append(f"{ctx.run_id}: {evaluation.benchmark} at {evaluation.step}")


@register_callback("teller")
class Teller:
    """Writes a sentence of its own."""

    def __init__(self) -> None:
        self.directory: Path | None = None

    @hookimpl
    def evsys_experiment_started(self, directory: Path) -> None:
        self.directory = directory

    @hookimpl(tryfirst=True)
    def evsys_run_finished(self, result: ArmResult) -> None:
        assert_type(result.status == "completed", bool)

    def evsys_write_conclusion(self, result: ExperimentResult, conclusion: Conclusion) -> str | None:
        return f"{result.name}: {conclusion.verdict}" if conclusion.verdict else None


assert_type(Patience(steps=2).seen, list[str])
