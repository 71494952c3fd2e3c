"""Checks the return values of algorithms and backends against their protocols as they enter the experiment."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from numbers import Real
from typing import Any, get_args

from evsys.errors import PluginContractError
from evsys.protocols import Algorithm, Backend, Log, TrainingClient
from evsys.types import RunContext, RunResult, Status
from evsys_runtime.training.bands import bands_of

__all__ = ["prepare", "prepare_options", "train"]

CLIENT_MEMBERS = ("forward_backward", "optim_step", "save_state", "sampling_client", "renderer")
STATUSES = get_args(Status)


async def train(algorithm: Algorithm, ctx: RunContext, name: str) -> RunResult:
    """Train, and hold the algorithm to what its protocol says that it returns.

    Raises:
        PluginContractError: something else came back, or its `health` isn't one.
    """
    bands_of(algorithm, name)
    training: object = algorithm.train(ctx)
    if not inspect.isawaitable(training):
        raise PluginContractError(
            f"algorithm {name!r}: train isn't async", hint="define `async def train(self, ctx)`"
        )
    result = await training
    if not isinstance(result, RunResult):
        raise PluginContractError(
            f"algorithm {name!r}: train returned {type(result).__name__}, not a RunResult",
            hint="return what the training loop gives",
        )
    if result.status not in STATUSES:
        known = ", ".join(STATUSES)
        raise PluginContractError(
            f"algorithm {name!r}: no status {result.status!r}", hint=f"use one of {known}"
        )
    metrics: Mapping[str, object] = result.metrics
    for metric, value in metrics.items():
        if not isinstance(value, Real):
            raise PluginContractError(
                f"algorithm {name!r}: the metric {metric!r} is a {type(value).__name__}, not a number"
            )
    return result


def prepare_options(backend: Backend, *, deterministic: bool, log: Log | None = None) -> Mapping[str, Any]:
    """Optional arguments of `prepare`: `deterministic` and the run's `log`, if it has parameters of
    these names.
    """
    try:
        parameters = inspect.signature(backend.prepare).parameters
    except (TypeError, ValueError):  # a callable that doesn't tell
        return {}
    known = {"deterministic": deterministic, **({} if log is None else {"log": log})}
    return {name: value for name, value in known.items() if name in parameters}


async def prepare(preparing: object, name: str) -> TrainingClient:
    """Wait for a backend, and hold it to what its protocol says that `prepare` returns.

    Raises:
        PluginContractError: something else came back.
    """
    if not inspect.isawaitable(preparing):
        raise PluginContractError(
            f"backend {name!r}: prepare isn't async",
            hint="define `async def prepare(self, model, run_dir, seed, restore)`",
        )
    client = await preparing
    lacks = [member for member in CLIENT_MEMBERS if not hasattr(client, member)]
    if lacks:
        raise PluginContractError(
            f"backend {name!r}: prepare returned {type(client).__name__}, which has no {', '.join(lacks)}",
            hint="return a training client; evsys.protocols.TrainingClient says what it does",
        )
    made: TrainingClient = client
    return made
