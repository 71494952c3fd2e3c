"""The result of an arm, and the selection of rollouts to keep."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import attrs

from evsys.errors import PluginError, StoreError
from evsys.types import ArmResult, EvaluationResult, OutOfBand, RunResult, Usage
from evsys_record.hashing import digest
from evsys_record.keep_rollouts import KeepRollouts
from evsys_record.run_record import RunRecord
from evsys_runtime.config.plan import ArmConfig
from evsys_runtime.experiment.state.secrets import redact_result
from evsys_runtime.experiment.state.session import Session
from evsys_runtime.experiment.verdict.prose import run_markdown
from evsys_runtime.training.bands import bands_of, out_of_bands

__all__ = [
    "arm_result",
    "budget_limited_result",
    "keep_result",
    "rollout_retention",
    "stopped_result",
    "write_superseded",
]


def budget_limited_result(
    result: RunResult, evaluations: Iterable[EvaluationResult], stopped: str | None
) -> RunResult:
    """How an arm ended where its training was complete, and some of its scores weren't paid for.

    Args:
        result: what its training came to.
        evaluations: its scores. Those of API models to compare with say nothing of the arm.
        stopped: why nothing more was paid for; None where there was enough.
    """
    lacks = any(one.status == "missing" and one.model is None for one in evaluations)
    if stopped is None or not lacks or result.status != "completed":
        return result
    return attrs.evolve(result, status="budget_stopped", stop_reason=stopped)


def stopped_result(result: RunResult, requested: str | None) -> RunResult:
    """How an arm ended whose training was cut short by a request; one whose training had ended before is complete.

    Args:
        result: what its training came to.
        requested: why it was to end early; None where no one asked for that.
    """
    if requested is None or result.status != "completed" or result.stop_reason != requested:
        return result
    return attrs.evolve(result, status="stopped")


def arm_result(
    session: Session,
    arm: ArmConfig,
    result: RunResult,
    *,
    attempt: int,
    seconds: float,
    identity: str | None,
    record: RunRecord,
    cut_off: Usage,
    warnings: Iterable[str],
) -> ArmResult:
    """The result of an arm.

    Args:
        session: of the experiment.
        arm: the arm.
        result: what its run came to, with its evaluations.
        attempt: which attempt that was.
        seconds: how long it took, with those before it.
        identity: of the run; None where it didn't come to know its rows.
        record: of the run.
        cut_off: what was used by work cut off and made again.
        warnings: alongside those of the run's own.
    """
    health, unread = _health(session, arm, record)
    used = sum((e.usage + e.judged for e in result.evaluations), result.usage)
    return ArmResult(
        run_id=result.run_id,
        arm=arm.name,
        repeat=arm.repeat,
        purpose=arm.purpose,
        stage=None if arm.stage is None else arm.stage.label,
        seed=session.seeds(arm).base_seed,
        status=result.status,
        identity=identity or digest(arm.digest),
        run=result,
        evaluations=result.evaluations,
        failure=result.failure,
        attempt=attempt,
        seconds=seconds,
        # Scorings run alongside the training and each other: their seconds add up to more than passed here.
        usage=attrs.evolve(used, seconds=min(used.seconds, seconds)),
        cut_off=cut_off,
        run_dir=str(record.directory),
        warnings=tuple(dict.fromkeys((*result.warnings, *warnings, *unread))),
        health=health,
    )


def _health(
    session: Session, arm: ArmConfig, record: RunRecord
) -> tuple[tuple[OutOfBand, ...], tuple[str, ...]]:
    """The measures that left the bands of the algorithm, and a warning if they can't be read; nothing is raised, as
    a run that failed ends here as well.
    """
    kind = arm.run.algorithm.kind
    try:
        bands = bands_of(session.plan.registry.get("algorithm", kind), kind)
        return (out_of_bands(record.read_metrics(), bands) if bands else ()), ()
    except PluginError:  # it has ended the run, whose failure it is
        return (), ()
    except StoreError as error:
        return (), (f"whether training stayed healthy is unknown: {error.message}",)


def rollout_retention(session: Session) -> KeepRollouts | None:
    """The retention set by a `local_logger` among the callbacks."""
    for spec in session.plan.experiment.callbacks:
        if spec.kind.rpartition("/")[2] == "local_logger":
            kept = spec.params.get("keep_rollouts")
            return KeepRollouts(**kept) if isinstance(kept, Mapping) else None
    return None


def keep_result(session: Session, record: RunRecord, result: ArmResult) -> ArmResult:
    """Write how a run ended, free of secrets, and close its record; nothing is awaited, so it works after Ctrl-C."""
    result = redact_result(result, session.log_settings.redactor)
    record.write_result(result)
    record.write_conclusion(run_markdown(result))
    record.close()
    session.results[result.run_id] = result
    return result


def write_superseded(session: Session, record: RunRecord, result: ArmResult) -> ArmResult:
    """Write what an attempt came to that another one is going to replace, free of secrets: it is not a result of the run."""
    result = redact_result(result, session.log_settings.redactor)
    record.write_result_left_behind(result)
    return result
