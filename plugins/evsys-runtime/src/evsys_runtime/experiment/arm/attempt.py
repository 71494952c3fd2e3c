"""One attempt at an arm: what it is made of, and what each phase has made so far."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs

from evsys import HookManager
from evsys.protocols import Log
from evsys.types import (
    Checkpoint,
    EvaluationResult,
    RunContext,
    RunResult,
    SelectedCheckpoint,
)
from evsys_record.run_record import RunRecord
from evsys_runtime.config.plan import ArmConfig
from evsys_runtime.evaluation.benchmarks import BoundBenchmark
from evsys_runtime.evaluation.evaluator import Evaluator
from evsys_runtime.experiment.arm.backend import ArmBackend
from evsys_runtime.experiment.arm.best_checkpoint import BestCheckpoint
from evsys_runtime.experiment.arm.data import ArmData
from evsys_runtime.experiment.arm.listeners import Listening
from evsys_runtime.experiment.budget.budget import ArmBudget
from evsys_runtime.experiment.budget.charges import ScoringCharges
from evsys_runtime.experiment.lineage.restart_point import RestartPoint
from evsys_runtime.experiment.reuse.reusable import FoundRun
from evsys_runtime.experiment.state.session import Session, run_id_of
from evsys_runtime.experiment.supervision.watchdog import Watchdog, watchdog_of
from evsys_runtime.logging import record_logger
from evsys_runtime.training.retreat import Retreat

__all__ = ["ArmAttempt"]


@attrs.define(kw_only=True, eq=False)
class ArmAttempt:
    """The state of one attempt: what each phase has made so far."""

    session: Session
    arm: ArmConfig
    record: RunRecord
    log: Log
    number: int
    watch: Watchdog
    taken: RestartPoint
    warnings: list[str] = attrs.field(factory=list)
    hooks: HookManager = attrs.field(factory=HookManager)
    ctx: RunContext | None = None
    listening: Listening = attrs.field(factory=Listening)
    evaluator: Evaluator | None = None
    scored: Sequence[EvaluationResult] = ()
    trained: RunResult | None = None
    lost: RunResult | None = None
    restore: Checkpoint | None = None
    retreat: Retreat | None = None
    selected: SelectedCheckpoint | None = None
    best: BestCheckpoint = attrs.field(factory=BestCheckpoint)
    rows: ArmData | None = None
    reused: FoundRun | None = None
    charges: list[ScoringCharges] = attrs.field(factory=list)
    benchmarks: tuple[BoundBenchmark, ...] = ()
    backend: ArmBackend = attrs.field(init=False)

    @backend.default
    def _backend(self) -> ArmBackend:
        return ArmBackend(
            session=self.session,
            arm=self.arm,
            record=self.record,
            log=self.log,
            watch=self.watch,
            warnings=self.warnings,
        )

    @classmethod
    def begin(cls, session: Session, arm: ArmConfig, record: RunRecord, taken: RestartPoint) -> ArmAttempt:
        """The attempt that the record has just started."""
        log = record_logger(record, session.log_settings, arm=arm.name)
        watch = session.watched[run_id_of(arm)] = watchdog_of(record, session.plan.experiment.watchdog, log)
        session.progress.run(run_id_of(arm)).status = "running"
        return cls(
            session=session, arm=arm, record=record, log=log, number=record.attempt, watch=watch, taken=taken
        )

    def enters(self, phase: str, boundary: str, plugin: str) -> None:
        """A phase of the run begins: `data`, `model`, `training` or `evaluation`; the run waits for this plugin."""
        self.watch.awaits(boundary, plugin)
        progress = self.session.progress.run(run_id_of(self.arm))
        if progress.phase != phase:
            progress.phase = phase
            self.note("phase.changed", phase=phase)

    def note(self, event: str, **facts: Any) -> None:
        """Put an event of the run on record."""
        self.session.record.events.append(event, run=run_id_of(self.arm), attempt=self.number, **facts)

    @property
    def budget(self) -> ArmBudget | None:
        """The budget of this arm; None without limits."""
        return self.session.budgets.get(run_id_of(self.arm))

    @property
    def why_ended(self) -> str:
        """Why the work was cut off, in words that follow "was"."""
        return self.session.why_ended if self.watch.stalled is None else f"ended, since {self.watch.stalled}"
