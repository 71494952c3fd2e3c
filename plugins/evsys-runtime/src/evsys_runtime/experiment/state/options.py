"""How an experiment is run, as against what it is."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, TypedDict

import attrs

from evsys.errors import ConfigError
from evsys_runtime.data.workspace import require_store

if TYPE_CHECKING:
    from evsys_runtime.experiment.state.benchmark import Benchmark
    from evsys_runtime.experiment.state.injection import EvsysStore, InferenceFactory, TrainFn

__all__ = ["DRY_STEPS", "DRY_TASKS", "OptionKeys", "Options", "injected_names", "refuse_misfits"]

DRY_STEPS = 2
"""Optimiser steps of a dry run."""

DRY_TASKS = 4
"""Tasks of each benchmark in a dry run."""


class OptionKeys(TypedDict, total=False):
    """The keyword arguments of `Experiment`; see `Options`."""

    dry: bool
    fail_fast: bool
    quiet: bool
    skip_grader_check: bool
    no_cache: bool
    store: EvsysStore | None
    train_fn: TrainFn | None
    benchmark: Benchmark | None
    inference_factory: InferenceFactory | None


@attrs.frozen(kw_only=True)
class Options:
    """How an experiment is run, as against what it is.

    Attributes:
        dry: a few steps and tasks, every rollout kept, no verdict.
        fail_fast: stop at the first arm that fails: those under way are `cancelled`, the others `skipped`.
        quiet: nothing on standard error.
        skip_grader_check: don't try the benchmarks' verifiers before anything is trained.
        no_cache: score everything again, and keep no result for later.
        store: serves data by id or name, see `EvsysStore`; None means the file's `data_store`, where it has one.
        train_fn: trains `cfg.runs` and returns a result for each, sync (then in a thread) or async; by default
            `run_experiment`.
        benchmark: what arms are scored on, in place of the file's `metadata.benchmark`.
        inference_factory: called with the result and the run of each arm that completed; makes the client that its
            trained model is scored through.
    """

    dry: bool = False
    fail_fast: bool = False
    quiet: bool = False
    skip_grader_check: bool = False
    no_cache: bool = False
    store: EvsysStore | None = None
    train_fn: TrainFn | None = None
    benchmark: Benchmark | None = None
    inference_factory: InferenceFactory | None = None


def injected_names(options: Options) -> list[str]:
    """The names of injected parts that decide results, and that a record can't hold."""
    return [name for name in ("train_fn", "benchmark", "inference_factory") if getattr(options, name)]


def refuse_misfits(options: Options) -> None:
    """Refuse what can't be called as it is going to be, before anything is trained.

    Raises:
        ConfigError: names the option, and how it is called.
    """
    from evsys_runtime.experiment.state.benchmark import Benchmark

    _refuse_uncallable("train_fn", options.train_fn, ("cfg",))
    _refuse_uncallable("inference_factory", options.inference_factory, ("result", "run"))
    if options.benchmark is not None and not isinstance(options.benchmark, Benchmark):
        raise ConfigError(
            f"benchmark: expected a Benchmark, got {_function_name(options.benchmark)}",
            hint="give Benchmark(path=..., metrics=[...]); a train_fn may return scores of its own in RunResult.evaluations",
        )
    if options.store is not None:
        require_store(options.store)
        _refuse_uncallable("store.pull", options.store.pull, ("ref",))


def _refuse_uncallable(name: str, function: Any, arguments: tuple[str, ...]) -> None:
    call = f"{name}({', '.join(arguments)})"
    if function is None:
        return
    if not callable(function):
        raise ConfigError(
            f"{name}: expected a function, got {_function_name(function)}", hint=f"it is called as {call}"
        )
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # some builtins have none
        return
    try:
        signature.bind(*arguments)
    except TypeError as exc:
        raise ConfigError(
            f"{name}: {_function_name(function)} can't be called as {call}: {exc}",
            hint=f"define it with {len(arguments)} parameter{'s' * (len(arguments) > 1)}: {', '.join(arguments)}",
        ) from exc


def _function_name(value: Any) -> str:
    return str(getattr(value, "__name__", None) or f"{type(value).__name__} object")
