"""The callback `csv_metrics`: what a run measures as tables for spreadsheets and data frames."""

from __future__ import annotations

import csv
import io
import os
import weakref
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import attrs

from evsys import option
from evsys.errors import DataError
from evsys.optional import declared
from evsys.types import ArmResult, EvaluationResult, RunContext
from evsys_record import write_atomic
from evsys_record.encoding import utf8
from evsys_record.files import storing, write_all
from evsys_runtime.delivered_events import Heard

__all__ = ["CsvMetrics"]

_PLACE = ("attempt", "step")
_SCORE_COLUMNS = (
    *_PLACE,
    *("benchmark", "split", "model", "status", "metric", "value", "low", "high", "n", "no_score"),
)


class CsvMetrics:
    """Writes `metrics.csv`, a row a step, and `scores.csv`, a row for each metric of each scoring, into a run's
    folder.

    A resumed run continues in the same files; `attempt` distinguishes the rows of a step trained twice.
    """

    name: ClassVar[str] = "csv_metrics"

    @attrs.frozen(kw_only=True)
    class Config:
        """Parameters of `csv_metrics`."""

        every: int = option(1, "steps between two rows of metrics.csv", ge=1)

    def __init__(self, **fields: Any) -> None:
        self.config = self.Config(**fields)
        self._metrics: Table | None = None
        self._scores: Table | None = None
        self._heard = Heard()

    def evsys_run_started(self, ctx: RunContext) -> None:
        """Add the scores of the untrained model where another arm had them made, as far as they are there."""
        self._catch_up(ctx, declared(ctx.evaluate, "results", ()))

    def evsys_step_finished(self, ctx: RunContext, step: int, metrics: Mapping[str, float]) -> None:
        """Add a row of training metrics."""
        if step % self.config.every:
            return
        if self._metrics is None:
            self._metrics = Table(ctx.run_dir / "metrics.csv", _PLACE)
        self._metrics.add({"attempt": ctx.attempt, "step": step, **metrics})

    def evsys_evaluation_finished(self, ctx: RunContext, evaluation: EvaluationResult) -> None:
        """Add a row for each metric; one without a value where a scoring gave none."""
        self._heard.hear(evaluation)
        if self._scores is None:
            self._scores = Table(ctx.run_dir / "scores.csv", _SCORE_COLUMNS)
        scoring = {
            "attempt": ctx.attempt,
            "step": evaluation.step,
            "benchmark": evaluation.benchmark,
            "split": evaluation.split,
            "model": evaluation.model,
            "status": evaluation.status,
            "no_score": evaluation.no_score,
        }
        rows = [
            {**scoring, "metric": name, "value": m.value, "low": m.low, "high": m.high, "n": m.n}
            for name, m in evaluation.metrics.items()
        ]
        for row in rows or [scoring]:
            self._scores.add(row)

    def evsys_run_finished(self, ctx: RunContext, result: ArmResult) -> None:
        """Add what another arm had made meanwhile, and release the files."""
        self._catch_up(ctx, result.evaluations)
        for table in (self._metrics, self._scores):
            if table is not None:
                table.close()

    def _catch_up(self, ctx: RunContext, evaluations: Iterable[EvaluationResult]) -> None:
        for evaluation in self._heard.missed(ctx, evaluations):
            self.evsys_evaluation_finished(ctx, evaluation)


class Table:
    """A CSV file that rows are added to, each by one write; a name that no row had before becomes a further column.

    The file with more columns replaces the old one atomically, so a killed process leaves one of the two. A last
    row that a killed process didn't finish is taken out when the table is opened again.
    """

    def __init__(self, path: Path, columns: Sequence[str]) -> None:
        self.path = path
        self.columns = list(columns)
        self._descriptor = -1
        self._release: weakref.finalize[..., Table] | None = None

    def add(self, row: Mapping[str, Any]) -> None:
        """Add a row; a column that it doesn't name stays empty.

        Raises:
            DataError: the file was there before and isn't such a table.
            StoreError: it can't be written.
        """
        if self._release is None:
            self._open()
        new = [name for name in row if name not in self.columns]
        if new:
            self.close()  # the file is another one afterwards
            self._widen(new)
            self._open()
        line = _line(row.get(name) for name in self.columns)
        with storing(self.path):
            write_all(self._descriptor, utf8(line))

    def close(self) -> None:
        """Release the file; a further row opens it again."""
        if self._release is not None:
            self._release()
            self._release = None

    def _open(self) -> None:
        self._take_up()
        with storing(self.path):
            self._descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND)
        # A run that is interrupted doesn't tell its callbacks that it ended.
        self._release = weakref.finalize(self, os.close, self._descriptor)

    def _take_up(self) -> None:
        """Continue with what an earlier attempt wrote, or start."""
        if self.path.exists():
            with storing(self.path, "read"):
                text = self.path.read_bytes().decode("utf-8", errors="replace")
            whole = _without_torn_row(text)
            header = next(csv.reader(io.StringIO(whole, newline="")), [])
            if whole and header[: len(_PLACE)] != self.columns[: len(_PLACE)]:
                raise DataError(
                    f"{self.path} isn't a table of metrics: it begins with {','.join(header)[:60]!r}",
                    hint="move it away",
                )
            self.columns = header or self.columns
            if whole != text:
                write_atomic(self.path, whole or _line(self.columns))
        else:
            write_atomic(self.path, _line(self.columns))

    def _widen(self, names: Sequence[str]) -> None:
        with storing(self.path, "read"), self.path.open(encoding="utf-8", newline="") as file:
            rows = list(csv.reader(file))
        columns = [*self.columns, *names]
        padded = (row + [""] * (len(columns) - len(row)) for row in rows[1:])
        write_atomic(self.path, _line(columns) + "".join(map(_line, padded)))
        self.columns = columns


def _without_torn_row(text: str) -> str:
    """Up to the last line end that no quoted text holds."""
    if text.endswith("\n") and text.count('"') % 2 == 0:
        return text
    quoted, end = False, 0
    for index, char in enumerate(text):
        if char == '"':
            quoted = not quoted
        elif char == "\n" and not quoted:
            end = index + 1
    return text[:end]


def _line(values: Iterable[Any]) -> str:
    buffer = io.StringIO(newline="")
    csv.writer(buffer, lineterminator="\n").writerow(["" if value is None else value for value in values])
    return buffer.getvalue()
