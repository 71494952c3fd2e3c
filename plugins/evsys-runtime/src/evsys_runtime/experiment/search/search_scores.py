"""Arms that a search stops in their training: the scores that it is asked about, and what it said to each, on record."""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import attrs

from evsys import HookManager
from evsys.errors import boundary
from evsys.optional import declared
from evsys.types import EvaluationResult, RunContext
from evsys_record import metric_of
from evsys_record.encoding import now
from evsys_record.jsonl import JsonlWriter
from evsys_runtime.config.plan import ArmConfig, SuccessMetric
from evsys_runtime.experiment.search.judged_scores import JUDGED, JudgedScore, judged_scores
from evsys_runtime.experiment.search.search import Searching

if TYPE_CHECKING:
    from evsys_runtime.experiment.state.session import Session

__all__ = ["ScoreJudge", "register_judge"]


_LOOK_SECONDS = 0.1
"""Time between two looks at running evaluations; scores of this run are reported at once."""


def register_judge(session: Session, arm: ArmConfig, hooks: HookManager) -> None:
    """Have the search judge the scores of a run, where it may stop it."""
    search, success = session.plan.search, session.plan.success
    if search is None or not search.stops or success is None or arm.purpose != "candidate":
        return
    source: Any = next(one for one in session.sources if one.name == "search")
    n = source.number_of(session, arm.name)
    if n is not None:
        hooks.register(ScoreJudge(session=session, arm=arm, success=success, source=source, n=n), "search")


@attrs.define(kw_only=True, eq=False)
class ScoreJudge:
    """Follows one run, as a listener: asks the search at each score of the success metric, and stops the run where it says so.

    What it said is on record before anything follows from it, and isn't asked again. If a run is `deterministic`, a step waits for the
    scores before it, so that each rerun stops at the same step; elsewhere training continues meanwhile.
    """

    session: Session
    arm: ArmConfig
    success: SuccessMetric
    source: Searching
    n: int
    _last: int | None = None
    _judged: dict[int, JudgedScore] | None = None
    _scored: asyncio.Event = attrs.field(factory=asyncio.Event)

    def evsys_run_started(self, ctx: RunContext, total_steps: int | None) -> None:
        """A hook: what was said in an earlier attempt still holds."""
        self._last = total_steps
        scores = judged_scores(self.session.record, self.arm.repeat).get(self.n, [])
        self._judged = {one.step: one for one in scores}
        restored = ctx.checkpoints.restored
        if restored is not None and any(not one.keep and one.step < restored.step for one in scores):
            self._stop(ctx)

    async def evsys_step_finished(self, ctx: RunContext, step: int) -> None:
        """A hook: judge what was scored before."""
        if ctx.deterministic:
            await self._scores_before(ctx, step)
            self._judge(ctx, before=step)

    def evsys_evaluation_finished(self, ctx: RunContext, evaluation: EvaluationResult) -> None:
        """A hook: a score is there."""
        self._scored.set()
        if not ctx.deterministic and self._judged is not None:
            self._judge(ctx, before=evaluation.step + 1)

    # --- judging --------------------------------------------------------------------------------------------------

    def _judge(self, ctx: RunContext, *, before: int) -> None:
        """Ask about each score that no one was asked about, in the order of steps."""
        if ctx.stop_requested is not None:
            return
        for step, score in sorted(self._scores(ctx).items()):
            if step >= before or (self._last is not None and step >= self._last):
                break
            judged = self._judged.get(step) if self._judged is not None else None
            if judged is None:
                judged = self._ask(step, score)
            if not judged.keep:
                self._stop(ctx)
                return

    def _ask(self, step: int, score: float | None) -> JudgedScore:
        search: Any = self.source.search
        keep = True
        history = self.source.history(self.session, self.arm.repeat)
        history[self.n]["scores"].append([step, score])
        with boundary("search", self.source.planned.spec.kind, self.arm.run_id):
            keep = bool(search.keep(history, self.n, step, float("nan") if score is None else score))
        judged = JudgedScore(
            n=self.n,
            run_id=self.arm.run_id,
            repeat=self.arm.repeat,
            step=step,
            score=score,
            keep=keep,
        )
        with JsonlWriter(self.session.record.directory / JUDGED, durable=True) as writer:
            writer.write({"time": now(), **attrs.asdict(judged)})
        if self._judged is not None:
            self._judged[step] = judged
        return judged

    def _stop(self, ctx: RunContext) -> None:
        stopped = next(one for one in (self._judged or {}).values() if not one.keep)
        score = "no number" if stopped.score is None else f"{self.success.oriented(stopped.score):.6g}"
        kind = self.source.planned.spec.kind
        ctx.request_stop(
            f"search: {kind} stopped it by its score at step {stopped.step}: {self.success} {score}"
        )

    def _scores(self, ctx: RunContext) -> Mapping[int, float | None]:
        """The success metric in this run's training, by step; None where it is not a number."""
        success = self.success
        found: dict[int, float | None] = {}
        for one in declared(ctx.evaluate, "results", ()):
            if one.benchmark != success.benchmark or one.model is not None or not one.step:
                continue
            metric = metric_of(one, success.metric)
            if metric is None or one.split != "val":
                continue
            value = metric.value
            found[one.step] = None if value is None or math.isnan(value) else success.oriented(value)
        return found

    async def _scores_before(self, ctx: RunContext, step: int) -> None:
        """Wait for the scores of the steps before; those of this one are submitted later."""
        while any(
            one["step"] < step and one["benchmark"] == self.success.benchmark
            for one in declared(ctx.evaluate, "pending", ())
        ):
            ctx.heartbeat()
            self._scored.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_LOOK_SECONDS):
                    await self._scored.wait()
