"""The end of an attempt at an arm, whatever ends it: a result, its record, and its listeners."""

from __future__ import annotations

import asyncio

import attrs

from evsys.errors import StoreError
from evsys.optional import declared
from evsys.types import (
    ArmResult,
    RunResult,
    Status,
)
from evsys_runtime.evaluation.failures import failure_of
from evsys_runtime.experiment.arm.attempt import ArmAttempt
from evsys_runtime.experiment.arm.listeners import LAST_WORD_SECONDS
from evsys_runtime.experiment.arm.partial_result import partial_result
from evsys_runtime.experiment.arm.result import (
    arm_result,
    keep_result,
    write_superseded,
)
from evsys_runtime.experiment.budget.charges import remaining_usage
from evsys_runtime.experiment.state.secrets import redact_result
from evsys_runtime.experiment.state.session import run_id_of
from evsys_runtime.experiment.supervision.interrupts import interruption
from evsys_runtime.experiment.supervision.watchdog import is_stall

__all__ = [
    "end",
    "interruption_result",
    "partial_arm_result",
    "record_failure",
    "record_interruption",
    "record_superseded",
]


def record_failure(attempt: ArmAttempt, exc: BaseException) -> RunResult:
    """Log a failure, and make a result of it."""
    failure = failure_of(exc, "run")
    status: Status = "failed"
    if is_stall(exc):
        status, failure = "stalled", attrs.evolve(failure, place=attempt.watch.place)
    said = {"boundary": failure.boundary, "reason": failure.message, "status": status}
    attempt.log.error("run.failed", **said, exc_info=exc)
    attempt.lost = attrs.evolve(partial_arm_result(attempt, status), failure=failure)
    return attempt.lost


def interruption_result(attempt: ArmAttempt) -> RunResult:
    """The result of an interrupted run; one that had failed already stays failed."""
    if attempt.lost is not None:
        return attempt.lost
    if attempt.session.down is not None:
        return attrs.evolve(partial_arm_result(attempt, "failed"), failure=failure_of(attempt.session.down))
    return attrs.evolve(partial_arm_result(attempt, "cancelled"), stop_reason=attempt.session.why_ended)


def partial_arm_result(attempt: ArmAttempt, status: Status) -> RunResult:
    """The partial result of a run that failed or was interrupted: weights, steps and checkpoints stay."""
    if attempt.trained is not None:
        return attrs.evolve(attempt.trained, status=status)
    try:
        result = partial_result(attempt.record, status)
        if attempt.ctx is not None and declared(attempt.ctx.clients.policy, "free", False):
            result = attrs.evolve(result, usage=attrs.evolve(result.usage, cost_usd=0.0))
        return attempt.backend.add_role_usage(result)
    except StoreError as error:
        attempt.warnings.append(f"how far the run came can't be read: {error.message}")
        return RunResult(status=status, run_id=run_id_of(attempt.arm))


async def end(attempt: ArmAttempt, result: RunResult, seconds: float) -> RunResult:
    """Record how the arm ended and notify the listeners, even if recording fails."""
    try:
        ended = finish(attempt, result, seconds)
    except StoreError:
        told = redact_result(_arm_result(attempt, result, seconds), attempt.session.log_settings.redactor)
        await attempt.listening.notify_end(told)
        raise
    await attempt.listening.notify_end(ended)
    if not set(attempt.hooks.warnings) <= set(ended.warnings):
        ended = finish(attempt, result, seconds)  # with what a listener did wrong just now
    return ended.run or result


async def record_interruption(attempt: ArmAttempt, seconds: float) -> None:
    """The same for an interrupted arm. Its record is written before anything is awaited; its listeners have a few
    seconds, or none where Ctrl-C came again.
    """
    if interruption().times > 1:
        finish(attempt, interruption_result(attempt), seconds)
        return
    try:
        async with asyncio.timeout(LAST_WORD_SECONDS):
            await end(attempt, interruption_result(attempt), seconds)
    except TimeoutError:
        told = {"run_id": run_id_of(attempt.arm), "seconds": LAST_WORD_SECONDS}
        attempt.session.log.warning("listeners.cut_off", **told)


def finish(attempt: ArmAttempt, result: RunResult, seconds: float) -> ArmResult:
    """Write the result with every score made so far; nothing is awaited, so it works after Ctrl-C."""
    return keep_result(attempt.session, attempt.record, _arm_result(attempt, result, seconds))


def record_superseded(attempt: ArmAttempt, result: RunResult, seconds: float) -> None:
    """Record what this attempt came to, which another one is going to replace. Its listeners hear of it once that one has its own."""
    attempt.listening.left = write_superseded(
        attempt.session, attempt.record, _arm_result(attempt, result, seconds)
    )


def _arm_result(attempt: ArmAttempt, result: RunResult, seconds: float) -> ArmResult:
    evaluations = tuple(attempt.scored if attempt.evaluator is None else attempt.evaluator.results)
    best, reused = attempt.best.place(attempt.record.directory), attempt.reused
    if reused is not None and reused.result.run is not None:
        best = reused.result.run.best_checkpoint
    result = attrs.evolve(
        result,
        run_id=run_id_of(attempt.arm),
        evaluations=evaluations,
        best_checkpoint=best,
        selected_checkpoint=attempt.selected,
    )
    made = arm_result(
        attempt.session,
        attempt.arm,
        result,
        attempt=attempt.number,
        seconds=seconds,
        identity=None if attempt.rows is None else attempt.rows.identity,
        record=attempt.record,
        cut_off=remaining_usage(
            attempt.taken.paid, (*attempt.taken.counted, *(charges.taken_over for charges in attempt.charges))
        ),
        warnings=(*attempt.warnings, *attempt.hooks.warnings),
    )
    return made if reused is None else attrs.evolve(made, reused=reused.source, health=reused.result.health)
