"""The hooks that listeners may implement: keyword only, `ctx` first if they concern a run.

Implementations may take any subset of a hook's arguments and may be async. Only `evsys_write_conclusion` has a
value used. An implementation that raises is logged and counted, and the others still run. To end a run early, call
`ctx.request_stop(reason)`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pluggy

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from evsys.types import (
        ArmResult,
        Checkpoint,
        Conclusion,
        EvaluationResult,
        ExperimentResult,
        Failure,
        Rollout,
        Round,
        RunContext,
    )

__all__ = ["PROJECT", "hookimpl", "hookspec"]

PROJECT = "evsys"
hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)


@hookspec
def evsys_experiment_started(experiment_id: str, directory: Path, arms: Sequence[str]) -> None:
    """The record exists and every arm is valid; `arms` are the run ids to come."""


@hookspec
def evsys_experiment_finished(result: ExperimentResult) -> None:
    """All arms ended and the conclusion is written."""


@hookspec
def evsys_run_started(ctx: RunContext, total_steps: int | None, estimate: Mapping[str, float] | None) -> None:
    """An arm begins to train; `total_steps` is None if unknown. `estimate` has the `seconds` and `peak_bytes`
    that the backend expects of the `steps` to come, and `scoring_seconds` if the duration of the evaluations is
    known; None if the backend has no estimate. If training samples, it has `sampled_tokens`, the most tokens that a
    step samples, and is an upper bound.
    """


@hookspec
def evsys_run_finished(ctx: RunContext, result: ArmResult) -> None:
    """An arm ended, with any status; called once."""


@hookspec
def evsys_run_failed(ctx: RunContext, failure: Failure) -> None:
    """An arm failed; `evsys_run_finished` follows."""


@hookspec
def evsys_data_prepared(ctx: RunContext, rows: int, dropped: Mapping[str, int]) -> None:
    """The arm's rows are ready; `dropped` counts rows by the reason they were left out."""


@hookspec
def evsys_step_finished(ctx: RunContext, step: int, metrics: Mapping[str, float]) -> None:
    """`step` optimiser steps are done."""


@hookspec
def evsys_checkpoint_saved(ctx: RunContext, checkpoint: Checkpoint) -> None:
    """A checkpoint is complete."""


@hookspec
def evsys_rollouts_finished(ctx: RunContext, step: int, phase: str, rollouts: Sequence[Rollout]) -> None:
    """A group or an evaluation has its rollouts; `phase` says which."""


@hookspec
def evsys_evaluation_advanced(ctx: RunContext, benchmark: str, step: int, done: int, total: int) -> None:
    """A benchmark entry is being evaluated: `done` of `total` tasks have all their samples, 0 at its start."""


@hookspec
def evsys_evaluation_finished(ctx: RunContext, evaluation: EvaluationResult) -> None:
    """The evaluation of a benchmark entry ended or failed."""


@hookspec
def evsys_round_finished(research_id: str, directory: Path, round: Round) -> None:
    """A round of `evsys research` was scored, failed or was lost, and is on record in `directory`."""


@hookspec(firstresult=True)
def evsys_write_conclusion(result: ExperimentResult, conclusion: Conclusion) -> str | None:
    """Prose for conclusion.md; the first returned text is used. Numbers and verdict are fixed before."""


HOOKS: Mapping[str, Any] = {name: value for name, value in globals().items() if name.startswith("evsys_")}
