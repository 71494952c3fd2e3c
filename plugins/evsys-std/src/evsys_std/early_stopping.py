"""The callback `early_stopping`: ends a run whose monitored metric no longer gets better."""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import attrs

from evsys import option
from evsys.errors import RunError
from evsys.optional import declared
from evsys.types import ArmResult, EvaluationResult, RunContext

__all__ = ["EarlyStopping"]

_KNOWN: Mapping[str, Literal["max", "min"]] = {"loss": "min", "reward": "max"}
"""Directions of training metrics; those of scores come with the score."""

_LOOK_SECONDS = 0.1
"""Time between two looks at running evaluations; scores of this run itself are reported at once."""


class EarlyStopping:
    """Asks a run to stop once its monitored metric hasn't improved for so many judgements.

    Scores are judged in the order of their steps, whenever they arrive. If a run is `deterministic`, a step waits for the
    scores before it, so that every rerun stops at the same step; elsewhere training continues meanwhile.
    """

    name: ClassVar[str] = "early_stopping"
    conformance: ClassVar[Mapping[str, Any]] = {"params": {"monitor": "loss"}}

    @attrs.frozen(kw_only=True)
    class Config:
        """Parameters of `early_stopping`."""

        monitor: str = option(..., "`<benchmark>.<metric>` of a `val` entry, or a training metric", min_len=1)
        patience: int = option(
            3, "judgements in a row without an improvement after which the run stops", ge=1
        )
        min_delta: float = option(0.0, "smallest change to count as an improvement", ge=0)
        direction: Literal["max", "min"] | None = option(
            None,
            "which way is better; by default that of the metric, which is known of scores, loss and reward",
        )

        def __attrs_post_init__(self) -> None:
            if self.direction is None and "." not in self.monitor and self.monitor not in _KNOWN:
                raise ValueError(
                    f"direction: a training metric such as {self.monitor!r} has no known direction; give max or min"
                )

    def __init__(self, **fields: Any) -> None:
        self.config = self.Config(**fields)
        self._values: dict[int, float] = {}
        self._direction = self.config.direction or _KNOWN.get(self.config.monitor)
        self._unit = "steps"
        self._seen: set[str] = set()
        self._step = 0
        self._scored = asyncio.Event()
        self._refused = False

    @property
    def monitored(self) -> tuple[str, ...]:
        """The benchmark entry that `evsys validate` looks for."""
        return (self.config.monitor,)

    @property
    def judgements(self) -> int:
        """Values until it can stop a run, for `evsys validate`: a best one, and `patience` without an improvement."""
        return self.config.patience + 1

    # --- hooks ----------------------------------------------------------------------------------------------------

    def evsys_run_started(self, ctx: RunContext) -> None:
        """Take up what an earlier attempt at this run had come to."""
        self._note_known(ctx)
        read = declared(ctx.record, "read_metrics")
        if ctx.attempt > 1 and read is not None:
            for record in read("training"):
                self._note_metrics(record["step"], record["values"])

    async def evsys_step_finished(self, ctx: RunContext, step: int, metrics: Mapping[str, float]) -> None:
        """Judge a training metric, or the scores of the steps before."""
        self._step = step
        self._note_metrics(step, metrics)
        if ctx.deterministic:
            await self._scores_before(ctx, step)
        self._note_known(ctx)
        self._judge(ctx)

    def evsys_evaluation_finished(self, ctx: RunContext, evaluation: EvaluationResult) -> None:
        """Take a score, and judge it."""
        self._scored.set()
        self._note_scores(evaluation)
        if not ctx.deterministic:  # else the next step does, as it does in each rerun
            self._judge(ctx)

    def evsys_run_finished(self, result: ArmResult) -> None:
        """Say so where there was nothing to judge: a misspelt name must not pass for a run that went well."""
        if not self._values and not self._refused and result.status == "completed":
            raise RunError(
                f"{self.config.monitor!r} never had a value, so nothing was judged",
                hint=f"there were {', '.join(sorted(self._seen)) or 'no metrics'}",
            )

    # --- values ---------------------------------------------------------------------------------------------------

    def _note_metrics(self, step: int, metrics: Mapping[str, float]) -> None:
        self._seen |= metrics.keys()
        value = metrics.get(self.config.monitor)
        if value is not None:
            self._values[step] = float(value)

    def _note_known(self, ctx: RunContext) -> None:
        """Take the scores without a hook: those of an earlier attempt, and those shared from another arm."""
        for evaluation in declared(ctx.evaluate, "results", ()):
            if evaluation.step not in self._values:
                self._note_scores(evaluation)

    def _note_scores(self, evaluation: EvaluationResult) -> None:
        if evaluation.model is not None or evaluation.status != "completed":
            return
        for name, metric in evaluation.metrics.items():
            full = f"{evaluation.benchmark}.{name}"
            self._seen.add(full)
            if full != self.config.monitor or metric.value is None:
                continue
            if evaluation.split == "test":
                if self._refused:
                    continue
                self._refused = True
                raise RunError(
                    f"{full} is scored on a `test` entry, which nothing may be chosen by, so it isn't judged",
                    hint="monitor a `val` entry",
                )
            self._unit = "scorings"
            self._direction = self._direction or metric.direction
            self._values[evaluation.step] = float(metric.value)

    def _judge(self, ctx: RunContext) -> None:
        """Walk over all values by step, since scores may arrive in another order than that of their steps."""
        if ctx.stop_requested is not None or not self._values:
            return
        sign = 1.0 if self._direction == "max" else -1.0
        best: int | None = None
        stale = 0
        for step, value in sorted(self._values.items()):
            better = not math.isnan(value) and (
                best is None or sign * (value - self._values[best]) > self.config.min_delta
            )
            best, stale = (step, 0) if better else (best, stale + 1)
            if stale >= self.config.patience:
                ctx.request_stop(self._reason(best, step, value))
                return

    def _reason(self, best: int | None, judged: int, value: float) -> str:
        config = self.config
        way = {"max": "risen", "min": "fallen"}[self._direction or "max"]
        by = f" by more than {config.min_delta:g}" if config.min_delta else ""
        since = "since the start" if best is None else f"since {self._values[best]:.6g} at step {best}"
        later = f", known after step {self._step}" if self._step > judged else ""
        return (
            f"early_stopping: {config.monitor} has not {way}{by} for {config.patience} {self._unit} {since}; "
            f"it is {value:.6g} at step {judged}{later}"
        )

    async def _scores_before(self, ctx: RunContext, step: int) -> None:
        """Wait for the monitored scores of the steps before; those of this one are submitted later."""
        while any(
            p["step"] < step and self.config.monitor.startswith(f"{p['benchmark']}.")
            for p in declared(ctx.evaluate, "pending", ())
        ):
            ctx.heartbeat()
            self._scored.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_LOOK_SECONDS):
                    await self._scored.wait()
