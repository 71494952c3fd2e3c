"""The state of a running experiment as `evsys watch` shows it: one line for each run, from the lines of its record."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, ClassVar

import attrs

from evsys_record import slug
from evsys_record.events import EVENTS

if TYPE_CHECKING:
    from evsys_record import Line

__all__ = ["Board", "RunState"]


@attrs.define(kw_only=True)
class RunState:
    """The state of one run: its step, its last loss and scores, and when it began to train."""

    status: str = "waiting"
    phase: str | None = None
    step: int = 0
    total: int | None = None
    loss: float | None = None
    scores: dict[str, float] = attrs.field(factory=dict)
    evaluating: str | None = None
    began: tuple[int, datetime] | None = None
    latest: datetime | None = None

    def take(self, event: str, facts: Mapping[str, Any], at: datetime) -> None:
        """Take in an event of the run."""
        match event:
            case "phase.changed":
                self.phase = facts["phase"]
            case "data.prepared":
                self.status, self.step = "starting", facts["from_step"]
            case "run.started":
                self.status, self.total = "running", facts["total_steps"]
                self.began = (self.step, at)
            case "run.paused":
                self.status = "paused"
            case "run.unpaused":
                self._continue(facts["seconds"])
            case "evaluation.started":
                self.evaluating = facts["benchmark"]
            case "evaluation.finished":
                self.evaluating = None
                self.scores |= {
                    f"{facts['benchmark']}.{name}": value for name, value in facts["metrics"].items()
                }
            case "run.finished":
                self.status, self.evaluating = facts["status"], None
                self.step = self.step if facts["steps"] is None else facts["steps"]

    def _continue(self, held: float) -> None:
        self.status = "running"
        if self.began is not None:  # time on hold doesn't count towards its steps
            self.began = (self.began[0], self.began[1] + timedelta(seconds=held))

    @property
    def seconds_left(self) -> float | None:
        """An estimate from the steps so far; None before the second."""
        if self.status != "running" or self.began is None or self.latest is None or not self.total:
            return None
        first, at = self.began
        done = self.step - first
        return None if done < 1 else (self.latest - at).total_seconds() / done * (self.total - self.step)

    @property
    def text(self) -> str:
        """Its line, without its name."""
        step = f"step {self.step}" if self.total is None else f"step {self.step}/{self.total}"
        parts = [self.status] if self.status == "waiting" else [self.status, step]
        if self.status == "starting" and self.phase is not None:
            parts.append(self.phase)
        if self.loss is not None:
            parts.append(f"loss {self.loss:.4g}")
        parts += [f"{name} {value:.3f}" for name, value in self.scores.items()]
        if self.evaluating is not None:
            parts.append(f"evaluating {self.evaluating}")
        left = self.seconds_left
        if left is not None:
            parts.append(f"{left:.0f} s of training left")
        return ", ".join(parts)


@attrs.define
class Board:
    """The runs of an experiment by id, in the order in which it lists them."""

    FILES: ClassVar = (EVENTS, "runs/*/training/metrics.jsonl")
    """The files of an experiment that it is made of."""

    runs: dict[str, RunState] = attrs.field(factory=dict)
    budget: dict[str, tuple[float, float]] = attrs.field(factory=dict)
    _ids: dict[str, str] = attrs.field(factory=dict)

    def read(self, line: Line) -> tuple[str, ...]:
        """Take in a line of the record; the ids of the runs that it changes."""
        if line.file == EVENTS:
            return self._event(line.values)
        if line.run is not None and line.file.endswith("/training/metrics.jsonl"):
            return self._metrics(line.run, line.values)
        return ()

    @property
    def budget_text(self) -> str:
        """The spent part of each limit; empty without a budget."""
        return ", ".join(
            f"{name} {spent:,.6g} of {limit:,.6g}" for name, (spent, limit) in self.budget.items()
        )

    def _event(self, values: Mapping[str, Any]) -> tuple[str, ...]:
        facts, event = values["facts"], values["event"]
        if event == "experiment.started":
            for run_id in facts["runs"]:
                self._run(run_id)
            return tuple(facts["runs"])
        if event == "budget.spent":
            self.budget = {name: (spent, facts["limits"][name]) for name, spent in facts["spent"].items()}
        if values["run"] is None:
            return ()
        self._run(values["run"]).take(event, facts, datetime.fromisoformat(values["at"]))
        return (values["run"],)

    def _metrics(self, folder: str, values: Mapping[str, Any]) -> tuple[str, ...]:
        run_id = self._ids.get(folder, folder)
        run = self._run(run_id)
        run.step = values["step"]
        run.latest = datetime.fromisoformat(values["time"])
        loss = values["values"].get("loss")
        run.loss = loss if loss is not None else run.loss
        return (run_id,)

    def _run(self, run_id: str) -> RunState:
        self._ids[slug(run_id)] = run_id  # the name of its folder
        return self.runs.setdefault(run_id, RunState())
