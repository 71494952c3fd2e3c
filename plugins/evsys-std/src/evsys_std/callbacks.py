"""Callbacks: `local_logger` and `print_progress`."""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

import attrs

from evsys import option
from evsys.optional import declared
from evsys.types import ArmResult, EvaluationResult, Failure, RunContext
from evsys_record.keep_rollouts import KeepRollouts
from evsys_record.secrets import Redactor
from evsys_record.text import visible
from evsys_runtime.live_lines import LiveLines, current_live_lines, leave_live_lines, use_live_lines

__all__ = ["LocalLogger", "PrintProgress"]


class LocalLogger:
    """The record of a run is written with or without it; it sets only which training rollouts are kept.

    The run reads `keep_rollouts` when it opens its record. `--dry` keeps all of them.
    """

    name: ClassVar[str] = "local_logger"
    conformance: ClassVar[Mapping[str, Any]] = {"mark": True}

    @attrs.frozen(kw_only=True)
    class Config:
        """Parameters of `local_logger`."""

        keep_rollouts: KeepRollouts = option(attrs.Factory(KeepRollouts), "which training rollouts are kept")

    def __init__(self, **fields: Any) -> None:
        self.config = self.Config(**fields)


class PrintProgress:
    """Shows how runs go, on standard error: on a terminal a live line, or a table of those under way where there
    are several; plain lines that begin with the run's id in a pipe or a file.
    """

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
            10.0, "least time between two plain lines of an evaluation, and from its start to the first", ge=0
        )

    def __init__(self, **fields: Any) -> None:
        self.config = self.Config(**fields)
        self._redactor = Redactor.from_environment()
        self._total: int | None = None
        self._started = self._drawn = float("-inf")
        self._ends: list[float] = []
        self._tokens = 0.0
        self._seconds: float | None = None
        self._about = _about(None)
        self._training: str | None = None
        self._trained = False
        self._evaluations: dict[tuple[str, int], _Evaluation] = {}
        self._live: Literal["training", "evaluation", "both"] | None = None

    def evsys_experiment_started(self, arms: Sequence[str]) -> None:
        """Begin a table that the runs share; each of them has a callback of its own, in a context that begins with this one."""
        use_live_lines(LiveLines(arms) if len(arms) > 1 and _is_terminal() else None)

    def evsys_experiment_finished(self) -> None:
        """Take the table away."""
        table = current_live_lines()
        if table is not None:
            table.remove()
        leave_live_lines()

    def evsys_run_started(
        self, ctx: RunContext, total_steps: int | None, estimate: Mapping[str, float] | None = None
    ) -> None:
        """Say which run begins."""
        self._total = total_steps
        self._started, self._drawn = self.clock(), float("-inf")
        self._ends, self._tokens = [self._started], 0.0
        self._training, self._trained = None, False
        self._seconds = estimate["seconds"] if estimate and "scoring_seconds" not in estimate else None
        self._about = _about(estimate)
        steps = "an open number of steps" if total_steps is None else _steps(total_steps)
        left = estimate.get("steps", total_steps) if estimate and total_steps is not None else total_steps
        if left != total_steps:  # it continues, and what is estimated is the rest
            steps += f", {left:.0f} of them left"
        if self._table is not None:
            self._table.show(ctx.run_id, f"{steps}{_estimate_words(estimate)}")
        else:
            self._line(f"{ctx.run_id}: {steps}{_estimate_words(estimate)}")

    def evsys_step_finished(self, ctx: RunContext, step: int, metrics: Mapping[str, float]) -> None:
        """Draw the live line, or write a plain one when it is time."""
        self._ends.append(self.clock())
        self._tokens += metrics.get("tokens", 0.0)
        last = step == self._total
        if not _is_terminal():
            if last or step % self._interval() == 0:
                self._line(self._text(ctx, step, metrics))
        elif last or self.clock() - self._drawn >= self.config.redraw_seconds:
            self._training, self._trained = self._text(ctx, step, metrics), last
            self._draw(ctx, "training" if last or not self._evaluations else "both")

    def evsys_evaluation_advanced(
        self, ctx: RunContext, benchmark: str, step: int, done: int, total: int
    ) -> None:
        """Show how far an evaluation is: in the live line, or now and then in a plain one of its own."""
        evaluation = self._evaluations.setdefault((benchmark, step), _Evaluation(told=self.clock()))
        evaluation.text = f"{benchmark} at step {step}, {done}/{total} tasks"
        if _is_terminal():
            if done in (0, total) or self.clock() - self._drawn >= self.config.redraw_seconds:
                self._draw(ctx, "evaluation" if self._trained or self._training is None else "both")
        elif done < total and self.clock() - evaluation.told >= self.config.scoring_seconds:
            evaluation.told = self.clock()
            self._line(f"{ctx.run_id}: evaluating {evaluation.text}")

    def evsys_evaluation_finished(self, ctx: RunContext, evaluation: EvaluationResult) -> None:
        """Say what an evaluation gave."""
        self._evaluations.pop((evaluation.benchmark, evaluation.step), None)
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
        self._tell_whole_time(ctx, evaluation)

    def evsys_run_failed(self, ctx: RunContext, failure: Failure) -> None:
        """Say why a run failed."""
        self._line(f"{ctx.run_id} failed: {failure.message}")

    def evsys_run_finished(self, ctx: RunContext, result: ArmResult) -> None:
        """Say how a run ended."""
        if self._table is not None:
            self._table.remove(ctx.run_id)
        steps = f", {_steps(result.run.steps)}" if result.run is not None else ""
        run = result.run
        early = run is not None and result.status == "completed" and run.steps < (self._total or 0)
        why = f"; {run.stop_reason}" if run is not None and early and run.stop_reason else ""
        self._line(f"{ctx.run_id} {result.status} in {_duration(result.seconds)}{steps}{why}")

    @property
    def _table(self) -> LiveLines | None:
        return current_live_lines()

    def _interval(self) -> int:
        if self.config.every is not None:
            return self.config.every
        return max(1, self._total // 10) if self._total else 10

    def _text(self, ctx: RunContext, step: int, metrics: Mapping[str, float]) -> str:
        seconds = max(self.clock() - self._started, 1e-9)
        parts = [f"step {step}/{self._total}" if self._total is not None else f"step {step}"]
        parts += [f"{name} {_number(metrics[name])}" for name in self.config.metrics if name in metrics]
        speed = metrics.get("tokens_per_second", self._tokens / seconds)
        if speed:
            parts.append(f"{_short(speed)} tokens/s")
        if self._total is not None and len(self._ends) > 1:
            evaluation = self._last_evaluation(ctx)
            left = _duration((self._total - step) * self._pace() + evaluation)
            parts.append(f"{left} left including evaluation" if evaluation else f"{left} left")
        return f"{ctx.run_id}: {', '.join(parts)}"

    def _pace(self) -> float:
        """Seconds of a step, by the later half of the completed ones: the first ones share their time with more
        than others.
        """
        judged = len(self._ends) // 2
        return (self._ends[-1] - self._ends[-1 - judged]) / judged

    def _tell_whole_time(self, ctx: RunContext, evaluation: EvaluationResult) -> None:
        """Say what the run takes with its evaluations, once those of the untrained model have shown how long they take."""
        if self._seconds is None or evaluation.step != 0:
            return
        seconds = self._evaluation_seconds(ctx, 0)
        if seconds is not None:
            self._line(
                f"{ctx.run_id}: {self._about} {_duration(self._seconds + seconds)} including evaluation"
            )
            self._seconds = None

    def _last_evaluation(self, ctx: RunContext) -> float:
        """Seconds of the evaluation that no training hides, that of the last weights; 0 where they aren't known."""
        return self._evaluation_seconds(ctx, self._total - 1) or 0.0 if self._total else 0.0

    def _evaluation_seconds(self, ctx: RunContext, start: int) -> float | None:
        """Seconds of the evaluations after step `start`; None where they aren't known."""
        estimate = declared(getattr(ctx, "evaluate", None), "estimate")
        return None if estimate is None or self._total is None else estimate(start, self._total)

    def _draw(self, ctx: RunContext, what: Literal["training", "evaluation", "both"]) -> None:
        """Replace the live line; the last one of training stays above those of evaluations that end after it."""
        above = "\n" if self._live == "training" and what == "evaluation" else ""
        evaluations = "; ".join(evaluation.text for evaluation in self._evaluations.values())
        text = f"{ctx.run_id}: evaluating {evaluations}" if what == "evaluation" else self._training or ""
        if what == "both":
            text += f" | evaluating {evaluations}"
        text = visible(text)
        self._drawn = self.clock()
        if self._table is not None:
            self._table.show(ctx.run_id, text.removeprefix(f"{ctx.run_id}: "))
            return
        self._live = what
        _write(f"{above}\r\x1b[K{_fitting(text)}")

    def _line(self, text: str) -> None:
        """Write a line that stays: above the table, below the live line of training, in place of that of evaluations.

        Terminals are kept in files as well, so what a plugin or a service says of a failure is shown without secrets.
        """
        text = visible(self._redactor.text(text))
        if self._table is not None:
            self._table.above(text)
            return
        kept = f"\r\x1b[K{_fitting(self._training or '')}\n"
        before = {None: "", "training": "\n", "evaluation": "\r\x1b[K", "both": kept}[self._live]
        self._live = None
        _write(f"{before}{text}\n")


@attrs.define
class _Evaluation:
    """An evaluation in progress: how far it is, and when a permanent line last reported that."""

    told: float
    text: str = ""


def _fitting(text: str) -> str:
    """Text that doesn't reach the end of a line of the terminal."""
    return text[: shutil.get_terminal_size().columns - 1]


def _steps(count: int) -> str:
    return "1 step" if count == 1 else f"{count} steps"


def _write(text: str) -> None:
    if sys.stderr is not None:  # a process may have been started without
        sys.stderr.write(text)
        sys.stderr.flush()


def _estimate_words(estimate: Mapping[str, float] | None) -> str:
    """The backend's estimate, in words; the time includes evaluations if their duration is known."""
    if not estimate:
        return ""
    evaluation = estimate.get("scoring_seconds")
    seconds = estimate["seconds"] + (evaluation or 0.0)
    extent = {None: " without evaluation", 0.0: ""}.get(evaluation, " including evaluation")
    return f", {_about(estimate)} {_duration(seconds)}{extent} and {estimate['peak_bytes'] / 1e9:.1f} GB on this machine"


def _about(estimate: Mapping[str, float] | None) -> str:
    """An estimate whose answers are all as long as they may be is one of the most that it takes."""
    return "at most about" if estimate and "sampled_tokens" in estimate else "about"


def _is_terminal() -> bool:
    """Whether standard error is a terminal that can redraw a line."""
    return bool(sys.stderr and sys.stderr.isatty()) and os.environ.get("TERM") != "dumb"


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
