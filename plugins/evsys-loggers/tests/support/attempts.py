"""Attempts at a run, told to a logger as the runtime tells them."""

import asyncio
from importlib.util import find_spec
from types import SimpleNamespace

import pytest

from evsys.types import ArmResult, EvaluationResult, MetricValue, RunResult


def context(folder, attempt=1, from_step=None, **given):
    run_dir = folder / ".evsys" / "experiments" / "20260101-000000-trial" / "runs" / "a-s0"
    run_dir.mkdir(parents=True, exist_ok=True)
    restored = None if from_step is None else SimpleNamespace(step=from_step)
    return SimpleNamespace(
        **{
            "run_id": "a-s0",
            "arm": "a",
            "repeat": 0,
            "attempt": attempt,
            "run_dir": run_dir,
            "config": {"algorithm": {"kind": "sft", "params": {"learning_rate": 0.01}}, "tags": ["t"]},
            "checkpoints": SimpleNamespace(restored=restored),
            "evaluate": None,
            **given,
        }
    )


def score(step, value):
    metrics = {"pass@1": MetricValue(value=value, low=0.25, high=0.75)}
    return EvaluationResult(benchmark="val", split="val", step=step, status="completed", metrics=metrics)


def ended(status="completed"):
    run = RunResult(status=status, steps=5, stop_reason="early_stopping: enough")
    return ArmResult(run_id="a-s0", arm="a", repeat=0, seed=0, status=status, identity="x", run=run)


def attempt(logger, ctx, steps, scores=(), status="completed"):
    """Train some steps, whose loss is their number; what the logger raises passes."""
    logger.evsys_data_prepared(ctx)
    logger.evsys_run_started(ctx)
    for step in steps:
        logger.evsys_step_finished(ctx, step, {"loss": float(step)})
    for step, value in scores:
        logger.evsys_evaluation_finished(ctx, score(step, value))
    asyncio.run(logger.evsys_run_finished(ctx, ended(status)))


def needs(library):
    """Skip a module's tests where a library isn't installed; it isn't imported."""
    reason = f"needs evsys-loggers[{library}]; `nox -s loggers` installs it"
    return pytest.mark.skipif(find_spec(library) is None, reason=reason)
