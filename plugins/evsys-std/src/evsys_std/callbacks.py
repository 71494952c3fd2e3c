"""Callbacks: `local_logger` and `print_progress`."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Mapping
from typing import Any, ClassVar

import attrs

from evsys import option
from evsys.types import ArmResult, EvaluationResult, Failure, RunContext
from evsys_runtime.record.keep_rollouts import KeepRollouts

__all__ = ["LocalLogger", "PrintProgress"]


class LocalLogger:
    """The record of a run is written with or without it; it sets only which training rollouts are kept.

    The run reads `keep_rollouts` when it opens its record. `--dry` keeps all of them.
    """

    name: ClassVar[str] = "local_logger"

    @attrs.frozen(kw_only=True)
    class Config:
        """Parameters of `local_logger`."""

        keep_rollouts: KeepRollouts = option(attrs.Factory(KeepRollouts), "which training rollouts are kept")

    def __init__(self, **fields: Any) -> None:
        self.config = self.Config(**fields)


class PrintProgress:
    """Shows how a run goes, on standard error: one live line on a terminal, plain lines in a pipe or a file."""

    name: ClassVar[str] = "print_progress"
    clock: ClassVar[Any] = staticmethod(time.monotonic)

    @attrs.frozen(kw_only=True)
    class Config:
        """Parameters of `print_progress`."""

        every: int | None = option(
            None,
            "steps between two plain lines; by default a tenth of the run, or 10 where its length is unknown",
            ge=1,
        )
        metrics: tuple[str, ...] = option(("loss", "reward"), "metrics to show, those that a step has")
        redraw_seconds: float = option(0.1, "least time between two redraws of the live line", ge=0)
        scoring_seconds: float = option(
            10.0, "least time between two plain lines of a scoring, and from its start to the first", ge=0
        )

    def __init__(self, **fields: Any) -> None:
        self.config = self.Config(**fields)
        self._total: int | None = None
        self._started = self._drawn = float("-inf")
        self._first_step = 0
        self._tokens = 0.0
        self._scoring = float("-inf")
        self._live: str | None = None

    def evsys_run_started(
        self, ctx: RunContext, total_steps: int | None, estimate: Mapping[str, float] | None = None
    ) -> None:
        """Say which run begins."""
        self._total = total_steps
        self._started, self._drawn = self.clock(), float("-inf")
        self._first_step, self._tokens = 0, 0.0
        steps = "an open number of steps" if total_steps is None else _steps(total_steps)
        self._line(f"{ctx.run_id}: {steps}{_expected(estimate)}")

    def evsys_step_finished(self, ctx: RunContext, step: int, metrics: Mapping[str, float]) -> None:
        """Draw the live line, or write a plain one when it is time."""
        if self._tokens == 0.0 and self._first_step == 0:
            self._first_step = step - 1  # a resumed run begins later
        self._tokens += metrics.get("tokens", 0.0)
        last = step == self._total
        if not _is_terminal():
            if last or step % self._interval() == 0:
                self._line(self._text(ctx, step, metrics))
        elif last or self.clock() - self._drawn >= self.config.redraw_seconds:
            self._draw(self._text(ctx, step, metrics), "training")

    def evsys_evaluation_advanced(
        self, ctx: RunContext, benchmark: str, step: int, done: int, total: int
    ) -> None:
        """Show how far a scoring is: as the live line, or now and then in a plain one."""
        text = f"{ctx.run_id}: scoring {benchmark} at step {step}, {done}/{total} tasks"
        if _is_terminal():
            if done in (0, total) or self.clock() - self._drawn >= self.config.redraw_seconds:
                self._draw(text, "scoring")
        elif done == 0:
            self._scoring = self.clock()
        elif done < total and self.clock() - self._scoring >= self.config.scoring_seconds:
            self._scoring = self.clock()
            self._line(text)

    def evsys_evaluation_finished(self, ctx: RunContext, evaluation: EvaluationResult) -> None:
        """Say what a scoring gave."""
        scored = f"of {evaluation.model}" if evaluation.model else f"at step {evaluation.step}"
        head = f"{ctx.run_id}: {evaluation.benchmark} {scored}"
        if evaluation.status != "completed":
            reason = f": {evaluation.failure.message}" if evaluation.failure is not None else ""
            self._line(f"{head} {evaluation.status}{reason}")
            return
        scores = [
            f"{name} {_number(metric.value)}"
            for name, metric in evaluation.metrics.items()
            if metric.value is not None
        ]
        self._line(f"{head}: {', '.join(scores) or 'no metric is available'}")

    def evsys_run_failed(self, ctx: RunContext, failure: Failure) -> None:
        """Say why a run failed."""
        self._line(f"{ctx.run_id} failed: {failure.message}")

    def evsys_run_finished(self, ctx: RunContext, result: ArmResult) -> None:
        """Say how a run ended."""
        steps = f", {_steps(result.run.steps)}" if result.run is not None else ""
        self._line(f"{ctx.run_id} {result.status} in {_duration(result.seconds)}{steps}")

    def _interval(self) -> int:
        if self.config.every is not None:
            return self.config.every
        return max(1, self._total // 10) if self._total else 10

    def _text(self, ctx: RunContext, step: int, metrics: Mapping[str, float]) -> str:
        seconds = max(self.clock() - self._started, 1e-9)
        done = step - self._first_step
        parts = [f"step {step}/{self._total}" if self._total is not None else f"step {step}"]
        parts += [f"{name} {_number(metrics[name])}" for name in self.config.metrics if name in metrics]
        speed = metrics.get("tokens_per_second", self._tokens / seconds)
        if speed:
            parts.append(f"{_short(speed)} tokens/s")
        if self._total is not None and done > 0:
            parts.append(f"{_duration((self._total - step) * seconds / done)} left")
        return f"{ctx.run_id}: {', '.join(parts)}"

    def _draw(self, text: str, what: str) -> None:
        """Replace the live line; one that is about something else stays above."""
        above = "\n" if self._live not in (None, what) else ""
        self._drawn, self._live = self.clock(), what
        width = shutil.get_terminal_size().columns - 1
        _write(f"{above}\r\x1b[K{text[:width]}")

    def _line(self, text: str) -> None:
        """Write a line that stays: below the live line of training, in place of that of a scoring, which ends with it."""
        before = {None: "", "training": "\n", "scoring": "\r\x1b[K"}[self._live]
        self._live = None
        _write(f"{before}{text}\n")


def _steps(count: int) -> str:
    return "1 step" if count == 1 else f"{count} steps"


def _write(text: str) -> None:
    if sys.stderr is not None:  # a process may have been started without
        sys.stderr.write(text)
        sys.stderr.flush()


def _expected(estimate: Mapping[str, float] | None) -> str:
    """What the backend expects, in words; scorings are part of the time where it is known how long they take."""
    if not estimate:
        return ""
    scoring = estimate.get("scoring_seconds")
    seconds = estimate["seconds"] + (scoring or 0.0)
    extent = {None: " without scoring", 0.0: ""}.get(scoring, " with scoring")
    return f", about {_duration(seconds)}{extent} and {estimate['peak_bytes'] / 1e9:.1f} GB on this machine"


def _is_terminal() -> bool:
    return bool(sys.stderr and sys.stderr.isatty())


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"


def _short(value: float) -> str:
    """1234567 as 1.2M."""
    for unit in ("", "k", "M"):
        if value < 1000:
            return f"{value:.3g}{unit}"
        value /= 1000
    return f"{value:.3g}G"


def _duration(seconds: float) -> str:
    """Seconds as people read them: 0.4 s, 42 s, 3:05, 2:03:05."""
    if seconds < 60:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
