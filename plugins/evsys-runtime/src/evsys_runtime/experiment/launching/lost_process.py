"""The process of an arm that ended without a result: why, and what the arm has on record."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import attrs

from evsys.errors import LaunchError, StoreError
from evsys.types import ArmResult, JobState, RunResult, Status, Usage
from evsys_runtime.config.plan import ArmConfig
from evsys_runtime.experiment.arm.partial_result import partial_result
from evsys_runtime.experiment.arm.result import arm_result, keep_result
from evsys_runtime.experiment.budget.spending import usage_of_run
from evsys_runtime.experiment.state.facts import run_facts
from evsys_runtime.experiment.state.session import Session, run_id_of

__all__ = ["process_lost", "record_lost"]

_LOG_LINES = 20
"""Lines of the output of a process that ended without a result."""

_KILLED_HINT = "the kernel kills a process like this when memory runs out: `dmesg` says so"


def process_lost(
    run_id: str, state: JobState, folder: Path, *, place: str | None, plugin: str
) -> LaunchError:
    """The error of a process that ended without a result, with the end of its output.

    Args:
        run_id: the run.
        state: the last state of the job.
        folder: of the launch.
        place: the machine of the job, where its last state doesn't have it.
        plugin: the launcher.
    """
    output = folder / "output.log"
    lines = _last_lines(output)
    where = f" ({state.place or place})" if state.place or place else ""
    tail = "".join(f"\n    {line}" for line in lines)
    said = f"; its last lines ({output}):{tail}" if lines else f"; {output} is empty"
    hint = _KILLED_HINT if state.signal == signal.SIGKILL and state.cause is None else None
    return LaunchError(
        f"the process of {run_id}{where} ended without a result: {_cause(state)}{said}",
        hint=hint,
        plugin=plugin,
    )


def record_lost(
    session: Session, arm: ArmConfig, status: Status, *, after: int, seconds: float, **facts: Any
) -> ArmResult:
    """Put on record how an arm ended whose process left no result, with the steps and scores that it left.

    Args:
        session: of the experiment.
        arm: the arm.
        status: `failed` or `cancelled`.
        after: the last attempt before the launch.
        seconds: how long the arm took.
        **facts: further fields of its `RunResult`.
    """
    run_id, warnings = run_id_of(arm), list[str]()
    record = session.record.run(
        run_id,
        hypothesis=session.plan.experiment.metadata.hypothesis,
        facts=run_facts(arm, dry=session.options.dry),
    )
    if max((one.n for one in record.attempts), default=0) <= after:
        record.start_attempt(reason="launch")  # the process didn't come so far
    try:
        run, cut_off = partial_result(record, status), usage_of_run(record)
    except (StoreError, KeyError, TypeError, ValueError) as error:
        warnings.append(f"how far the run came can't be read: {error}")
        run, cut_off = RunResult(status=status, run_id=run_id), Usage()
    made = arm_result(
        session,
        arm,
        attrs.evolve(run, run_id=run_id, **facts),
        attempt=max(one.n for one in record.attempts),
        seconds=seconds,
        identity=record.facts.get("identity"),
        record=record,
        cut_off=cut_off,
        warnings=warnings,
    )
    return keep_result(session, record, made)


def _cause(state: JobState) -> str:
    if state.cause is not None:
        return state.cause
    if state.signal is not None:
        return f"killed by {signal.Signals(state.signal).name}"
    return "for an unknown reason" if state.exit_code is None else f"exit code {state.exit_code}"


def _last_lines(path: Path) -> list[str]:
    """The end of a process's output."""
    try:
        with path.open("rb") as stream:
            stream.seek(max(0, os.fstat(stream.fileno()).st_size - (8 << 10)))
            text = stream.read().decode("utf-8", "replace")
    except OSError:
        return []
    return text.rstrip().splitlines()[-_LOG_LINES:]
