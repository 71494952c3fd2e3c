"""How an experiment is run, as against what it is."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict

import attrs

if TYPE_CHECKING:
    from evsys_runtime.experiment.benchmark import Benchmark
    from evsys_runtime.experiment.injected import EvsysStore, InferenceFactory, TrainFn

__all__ = ["DRY_STEPS", "DRY_TASKS", "OptionKeys", "Options"]

DRY_STEPS = 2
"""Optimiser steps of a dry run."""

DRY_TASKS = 4
"""Tasks of each benchmark in a dry run."""


class OptionKeys(TypedDict, total=False):
    """What `Experiment` takes by keyword; see `Options`."""

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
        no_cache: score everything anew, and keep no result for later.
        store: serves data by id or name, see `EvsysStore`; None means the file's `data_store`, where it has one.
        train_fn: trains `cfg.runs` and returns a result for each, sync (then in a thread) or async; by default `run_experiment`.
        benchmark: what arms are scored on, in place of the file's `metadata.benchmark`.
        inference_factory: called with the result and the run of each arm that completed; makes the client that its trained model is
            scored through.
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
