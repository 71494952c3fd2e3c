"""The state of a running experiment as `evsys watch` shows it: one line for each run, from the lines of its record."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, ClassVar

import attrs

from evsys_record.events import EVENTS
from evsys_record.slugs import slug

if TYPE_CHECKING:
    from evsys_record.reader import Line

__all__ = ["Board", "RunState"]


@attrs.define(kw_only=True)
class RunState:
    """The state of one run: its step, its last loss and scores, and when it began to train."""

    status: str = "waiting"
    step: int = 0
    total: int | None = None
    loss: float | None = None
    scores: dict[str, float] = attrs.field(factory=dict)
    evaluating: str | None = None
    began: tuple[int, datetime] | None = None
    latest: datetime | None = None

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
    _ids: dict[str, str] = attrs.field(factory=dict)

    def read(self, line: Line) -> tuple[str, ...]:
        """Take in a line of the record; the ids of the runs that it changes."""
        if line.file == EVENTS:
            return self._event(line.values)
        if line.run is not None and line.file.endswith("/training/metrics.jsonl"):
            return self._metrics(line.run, line.values)
        return ()

    def _event(self, values: Mapping[str, Any]) -> tuple[str, ...]:
        facts, event = values["facts"], values["event"]
        if event == "experiment.started":
            for run_id in facts["runs"]:
                self._run(run_id)
            return tuple(facts["runs"])
        if values["run"] is None:
            return ()
        run = self._run(values["run"])
        match event:
            case "data.prepared":
                run.status, run.step = "starting", facts["from_step"]
            case "run.started":
                run.status, run.total = "running", facts["total_steps"]
                run.began = (run.step, datetime.fromisoformat(values["at"]))
            case "evaluation.started":
                run.evaluating = facts["benchmark"]
            case "evaluation.finished":
                run.evaluating = None
                for name, value in facts["metrics"].items():
                    run.scores[f"{facts['benchmark']}.{name}"] = value
            case "run.finished":
                run.status, run.evaluating = facts["status"], None
                run.step = run.step if facts["steps"] is None else facts["steps"]
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
