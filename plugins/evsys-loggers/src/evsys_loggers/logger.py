"""The base of all loggers: which hooks become which records, and how a run ends."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, ClassVar

from evsys.errors import StoreError
from evsys.optional import declared
from evsys.types import ArmResult, EvaluationResult, ExperimentResult, RunContext
from evsys_loggers.config import LoggerConfig
from evsys_loggers.facts import RunFacts
from evsys_loggers.shipping import Shipper, now
from evsys_loggers.sink import Record, Sink
from evsys_record.secrets import Redactor
from evsys_runtime import in_background
from evsys_runtime.delivered_events import Heard
from evsys_runtime.log_values import effects_of, end_of, scores_of, verdict_of

__all__ = ["RunLogger"]


class RunLogger:
    """A callback that writes each run to a service, and the conclusion of the experiment as one run more.

    Everything that may take long continues in a thread; a hook only puts a record into its queue. A failure there
    is raised by the next hook, once for each kind of failure, so that it becomes a warning in the result; training
    continues, and so does the logger.
    """

    name: ClassVar[str]
    Config: ClassVar[type[LoggerConfig]] = LoggerConfig

    def __init__(self, **fields: Any) -> None:
        self.config: Any = self.Config(**fields)
        self._shipper: Shipper | None = None
        self._heard = Heard()

    def open(self, run: RunFacts) -> Sink:
        """Make the run at the service, or find it where an earlier attempt made it. Called in the run's thread."""
        raise NotImplementedError

    # --- hooks of a run -------------------------------------------------------------------------------------------

    def evsys_data_prepared(self, ctx: RunContext) -> None:
        """Open the run."""
        self._shipper_of(ctx)
        self._raise_failure()

    def evsys_run_started(self, ctx: RunContext) -> None:
        """Log the scores of the untrained model where another arm had them made, as far as they are there."""
        self._catch_up(ctx, declared(ctx.evaluate, "results", ()))
        self._raise_failure()

    def evsys_step_finished(self, ctx: RunContext, step: int, metrics: Mapping[str, float]) -> None:
        """Log a step's metrics as `training/<metric>`."""
        self._shipper_of(ctx).put(Record(step, now(), "training", dict(metrics)))
        self._raise_failure()

    def evsys_evaluation_finished(self, ctx: RunContext, evaluation: EvaluationResult) -> None:
        """Log scores as `val/<entry>/<metric>` or `test/<entry>/<metric>`, with `/low` and `/high`, at the step of their weights."""
        self._score(ctx, evaluation)
        self._raise_failure()

    async def evsys_run_finished(self, ctx: RunContext, result: ArmResult) -> None:
        """Log how the run ended, and wait until all is written, within bounds."""
        self._catch_up(ctx, result.evaluations)
        shipper = self._shipper_of(ctx)
        shipper.close(result.status, end_of(result))
        await self.finished(asyncio.wrap_future(shipper.done))
        self._raise_failure()

    # --- the hook of the experiment -------------------------------------------------------------------------------

    async def evsys_experiment_finished(self, result: ExperimentResult) -> None:
        """Log the verdict, and each arm's outcome and effect, as a run of its own."""
        facts = RunFacts.of_experiment(self.name, self.config, result.experiment_id, Path(result.directory))
        concluding = in_background(
            self.conclude, facts, now(), result.status, verdict_of(result), effects_of(result)
        )
        await self.finished(asyncio.ensure_future(concluding))

    def conclude(
        self,
        run: RunFacts,
        time: float,
        status: str,
        facts: Mapping[str, str | float],
        values: Mapping[str, float],
    ) -> None:
        """Write the conclusion of an experiment, as a run of its own; blocking."""
        sink = self.open(run)
        if values:
            sink.write([Record(0, time, "conclusion", values)])
        sink.close(status, facts)

    # --- one run --------------------------------------------------------------------------------------------------

    def _shipper_of(self, ctx: RunContext) -> Shipper:
        if self._shipper is None:
            facts = RunFacts.of_run(self.name, self.config, ctx, Redactor.from_environment())
            self._shipper = Shipper(self.name, _opener(self, facts), flush_seconds=self.config.flush_seconds)
            # A run that is left behind, or interrupted twice, doesn't tell its callbacks that it ended.
            weakref.finalize(self, self._shipper.abandon)
        return self._shipper

    def _catch_up(self, ctx: RunContext, evaluations: Iterable[EvaluationResult]) -> None:
        for evaluation in self._heard.missed(ctx, evaluations):
            self._score(ctx, evaluation)

    def _score(self, ctx: RunContext, evaluation: EvaluationResult) -> None:
        self._heard.hear(evaluation)
        group, values = scores_of(evaluation)
        if values:
            self._shipper_of(ctx).put(Record(evaluation.step, now(), group, values))

    async def finished(self, waiting: asyncio.Future[None]) -> None:
        """Wait for the thread, which outlives a wait that is too long or cut off.

        Raises:
            StoreError: it isn't done in time; or what the thread failed with.
        """
        ended, _ = await asyncio.wait({waiting}, timeout=self.config.close_seconds)
        if not ended:
            waiting.add_done_callback(lambda future: future.cancelled() or future.exception())
            raise StoreError(
                f"{self.name} wasn't done within {self.config.close_seconds:g} s",
                hint="give it more close_seconds; the record of the run has everything",
            )
        await waiting

    def _raise_failure(self) -> None:
        failure = None if self._shipper is None else self._shipper.failure()
        if failure is not None:
            raise failure


def _opener(logger: RunLogger, facts: RunFacts) -> Any:
    """Opens a run without keeping the logger alive, whose end is noticed by that."""
    reference = weakref.ref(logger)

    def opening() -> Sink:
        found = reference()
        if found is None:
            raise StoreError("the run was given up before it was opened")
        return found.open(facts)

    return opening
