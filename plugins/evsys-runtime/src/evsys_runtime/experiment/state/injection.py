"""The parts of an experiment that Python code may replace: a store, a runner, benchmarks, model clients."""

from __future__ import annotations

import asyncio
import inspect
import traceback
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any, Protocol

import attrs

from evsys.errors import (
    PLUGIN_FAILURES,
    EvsysError,
    PluginContractError,
    RunError,
    boundary,
)
from evsys.protocols import InferenceClient
from evsys.types import RunResult
from evsys_runtime.background import in_background
from evsys_runtime.config.model import ExperimentConfig, RunConfig
from evsys_runtime.config.plan import ArmConfig, Plan
from evsys_runtime.data.workspace import Store

__all__ = [
    "EvsysStore",
    "InferenceFactory",
    "RunningExperiment",
    "TrainFn",
    "announce_experiment",
    "call_injected",
    "make_client",
    "require_client",
    "run_of",
    "running_experiment",
    "runs_config",
]


class EvsysStore(Store, Protocol):
    """The source of datasets that are neither in the project nor in its cache.

    Nothing is written to it: the record of an experiment is local.
    """


type TrainFn = Callable[[ExperimentConfig], Sequence[RunResult] | Awaitable[Sequence[RunResult]]]
"""Trains every run of the experiment and returns a result for each of `cfg.runs`, in their order."""

type InferenceFactory = Callable[[RunResult, RunConfig], InferenceClient | Awaitable[InferenceClient]]
"""Makes the client that a trained run is scored through."""


async def call_injected(option: str, function: Any, *arguments: Any) -> Any:
    """Call a function of the user's given as `option`: async in this loop, sync in a thread.

    Raises:
        RunError: it failed; names the option, and the line of the function.
        EvsysError: it raised one, which passes unchanged.
    """
    name = getattr(function, "__name__", type(function).__name__)
    with boundary("run", name):
        try:
            if inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__):
                return await function(*arguments)
            result = await in_background(function, *arguments)
            return await result if inspect.isawaitable(result) else result
        except EvsysError:
            raise
        except PLUGIN_FAILURES as exc:
            detail = f"{type(exc).__name__}: {str(exc) or 'no message'}"
            raise RunError(f"{option} {name!r} failed{_line(function, exc)}: {detail}", plugin=name) from exc


def _line(function: Any, exc: BaseException) -> str:
    """The place in the function's own file that an exception came through last, else where it was raised."""
    frames = traceback.extract_tb(exc.__traceback__)
    code = getattr(inspect.unwrap(function), "__code__", None)
    own = [frame for frame in frames if code is not None and frame.filename == code.co_filename]
    last = (own or frames)[-1]
    return f" at {last.filename}:{last.lineno}"


# --- model clients ----------------------------------------------------------------------------------------------


async def make_client(factory: InferenceFactory, result: RunResult, run: RunConfig) -> InferenceClient:
    """The client that a trained run is scored through.

    Raises:
        PluginContractError: the factory returned something else.
        EvsysError: it failed.
    """
    client: InferenceClient = await call_injected("inference_factory", factory, result, run)
    require_client(client, "inference_factory", returned=True)
    return client


def require_client(client: object, name: str, *, returned: bool = False) -> None:
    """Refuse what can't generate completions.

    Raises:
        PluginContractError: names who returned it, or who was given it.
    """
    if not callable(getattr(client, "generate", None)):
        raise PluginContractError(
            f"{name} {'returned' if returned else 'got'} {type(client).__name__} object, which has no method `generate`",
            hint="an inference client has `async generate(messages, sampling, *, n=1, tools=())`",
        )


# --- the experiment that a train_fn trains ----------------------------------------------------------------------


def run_of(arm: ArmConfig, plan: Plan) -> RunConfig:
    """An arm at one repeat as a run. It has the arm's name, unless several runs share that: then its own."""
    alone = plan.experiment.n_repeats == 1 and arm.stage is None and arm.purpose == "candidate"
    return attrs.evolve(arm.run, name=arm.name if alone else arm.run_id)


def runs_config(plan: Plan) -> ExperimentConfig:
    """The experiment with its arms written out: `runs` has one for each arm, repeat and stage, in order."""
    return attrs.evolve(
        plan.experiment,
        run=None,
        matrix=None,
        base_run=None,
        continual=None,
        stages=(),
        control=None,
        n_repeats=1,
        runs=tuple(run_of(arm, plan) for arm in plan.arms),
    )


@attrs.define(kw_only=True, eq=False)
class RunningExperiment:
    """An experiment whose `train_fn` is being called; `config` is what that was given, and `train` trains it as evsys does.

    A plain `train_fn` runs in a thread, and what it calls may have an event loop of its own there: the arms run in the
    experiment's own `loop` all the same.
    """

    config: ExperimentConfig
    project_root: Path
    train: Callable[[], Awaitable[list[RunResult]]]
    loop: asyncio.AbstractEventLoop
    tasks: set[asyncio.Task[Any]] = attrs.field(factory=set)

    async def results(self) -> list[RunResult]:
        """Train the arms that have no result yet; the results of all."""
        if asyncio.get_running_loop() is self.loop:
            return await self._results_of_training()
        return await asyncio.wrap_future(
            asyncio.run_coroutine_threadsafe(self._results_of_training(), self.loop)
        )

    async def _results_of_training(self) -> list[RunResult]:
        task = asyncio.current_task()
        if task is not None:
            self.tasks.add(task)
        return await self.train()

    async def end(self) -> None:
        """Cancel what an abandoned `train_fn` still has running in the loop."""
        left = {task for task in self.tasks if not task.done() and task is not asyncio.current_task()}
        for task in left:
            task.cancel()
        if left:
            await asyncio.wait(left)


_UNDER_WAY: ContextVar[RunningExperiment | None] = ContextVar("evsys_under_way", default=None)


@contextmanager
def announce_experiment(experiment: RunningExperiment) -> Iterator[None]:
    """Have `run_experiment` know the experiment whose config it is given in this block."""
    token = _UNDER_WAY.set(experiment)
    try:
        yield
    finally:
        _UNDER_WAY.reset(token)


def running_experiment() -> RunningExperiment | None:
    """The experiment whose `train_fn` this is called by; None outside one."""
    return _UNDER_WAY.get()
