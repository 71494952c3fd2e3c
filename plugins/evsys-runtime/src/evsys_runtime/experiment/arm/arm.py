"""One arm, from its data to its scores and its record."""

from __future__ import annotations

import asyncio
import time
from functools import partial

import attrs

from evsys.errors import PLUGIN_FAILURES, BudgetExceeded, EvsysError, RunError
from evsys.types import (
    RunResult,
)
from evsys_record.keep_rollouts import KeepRollouts
from evsys_runtime.background import in_background
from evsys_runtime.config.plan import ArmConfig
from evsys_runtime.experiment.arm.attempt import ArmAttempt
from evsys_runtime.experiment.arm.ending import (
    end,
    partial_arm_result,
    record_failure,
    record_interruption,
    record_superseded,
)
from evsys_runtime.experiment.arm.phases import train_and_evaluate
from evsys_runtime.experiment.arm.result import (
    rollout_retention,
)
from evsys_runtime.experiment.arm.rollback import go_back
from evsys_runtime.experiment.lineage.restart_point import RestartPoint
from evsys_runtime.experiment.state.facts import run_facts
from evsys_runtime.experiment.state.session import Session, run_id_of
from evsys_runtime.experiment.supervision.interrupts import asked_to_stop
from evsys_runtime.logging import context
from evsys_runtime.training.floating_point import floating_point_in
from evsys_runtime.training.retreat import Retreat

__all__ = ["run_arm"]


async def run_arm(session: Session, arm: ArmConfig) -> RunResult:
    """Train and score one arm at one repeat, and record it. Never raises for a failure of the arm itself."""
    run_id = run_id_of(arm)
    record = session.record.run(
        run_id,
        hypothesis=session.plan.experiment.metadata.hypothesis,
        facts=run_facts(arm, dry=session.options.dry),
        keep_rollouts=KeepRollouts() if session.options.dry else rollout_retention(session),
    )
    taken = session.restart_points.get(run_id, RestartPoint())
    record.start_attempt(**taken.next_attempt)
    started = time.monotonic() - taken.seconds
    attempt = ArmAttempt.begin(session, arm, record, taken)
    if taken.attempt is not None:
        attempt.note("run.resumed", from_step=taken.step)
    try:
        with context(arm=arm.name):
            result = await _outcome(attempt)
            while attempt.retreat is not None and result.status == "collapsed":
                try:
                    record_superseded(attempt, result, time.monotonic() - started)
                    attempt = await _roll_back(attempt, attempt.retreat)
                except EvsysError as exc:  # the collapse stands, and this arm ends there
                    attempt.number = record.attempt
                    result = record_failure(attempt, exc)
                    break
                result = await _outcome(attempt)
            return await end(attempt, result, time.monotonic() - started)
    except (asyncio.CancelledError, KeyboardInterrupt):
        if run_id not in session.results:
            await record_interruption(attempt, time.monotonic() - started)
        raise
    finally:
        del session.watched[run_id]
        if attempt.watch.left_running:
            attempt.hooks.close()
        if attempt.budget is not None:
            attempt.budget.close(session.results.get(run_id), went_back=attempt.taken.retreats > 0)


async def _outcome(attempt: ArmAttempt) -> RunResult:
    """How the phases ended; a failure of theirs is a result, an interruption passes."""
    try:
        with floating_point_in(attempt.log):
            return await attempt.watch.watch(partial(train_and_evaluate, attempt))
    except (asyncio.CancelledError, KeyboardInterrupt) as exc:
        if asked_to_stop(exc):
            raise
        error = RunError("a plugin cancelled its own task unexpectedly")
        error.__cause__ = exc
        return record_failure(attempt, error)
    except BudgetExceeded as exc:  # an algorithm that doesn't end by itself when it hears of it
        return attrs.evolve(partial_arm_result(attempt, "budget_stopped"), stop_reason=exc.message)
    except PLUGIN_FAILURES as exc:
        return record_failure(attempt, exc)


async def _roll_back(attempt: ArmAttempt, retreat: Retreat) -> ArmAttempt:
    """The attempt that continues from the best checkpoint."""
    taken = await in_background(go_back, attempt.record, retreat, attempt.best, attempt.benchmarks)
    attempt.log.warning("run.went_back", step=taken.step, how=retreat.kind, attempt=attempt.record.attempt)
    attempt.note("run.went_back", step=taken.step, reason=retreat.kind)
    following = ArmAttempt.begin(attempt.session, attempt.arm, attempt.record, taken)
    following.listening = attempt.listening
    return following
