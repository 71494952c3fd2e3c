"""The experiment: its arms side by side, their seeds and identities, and what may be concluded."""

from __future__ import annotations

from typing import TYPE_CHECKING

from evsys._lazy import lazy_names

if TYPE_CHECKING:
    from evsys_runtime.config.sweep import Sweep
    from evsys_runtime.experiment.experiment import Experiment
    from evsys_runtime.experiment.python_api import arun_experiment, run_experiment
    from evsys_runtime.experiment.schemas import schema_for
    from evsys_runtime.experiment.state.benchmark import Benchmark
    from evsys_runtime.experiment.state.injection import EvsysStore, InferenceFactory, TrainFn

__all__ = [
    "Benchmark",
    "EvsysStore",
    "Experiment",
    "InferenceFactory",
    "Sweep",
    "TrainFn",
    "arun_experiment",
    "run_experiment",
    "schema_for",
]

_HOME = {
    "Benchmark": "evsys_runtime.experiment.state.benchmark",
    "EvsysStore": "evsys_runtime.experiment.state.injection",
    "InferenceFactory": "evsys_runtime.experiment.state.injection",
    "Sweep": "evsys_runtime.config.sweep",
    "TrainFn": "evsys_runtime.experiment.state.injection",
    "Experiment": "evsys_runtime.experiment.experiment",
    "arun_experiment": "evsys_runtime.experiment.python_api",
    "run_experiment": "evsys_runtime.experiment.python_api",
    "schema_for": "evsys_runtime.experiment.schemas",
}


if not TYPE_CHECKING:  # a type checker would take it as saying that every name is there, and is Any
    __getattr__ = lazy_names(__name__, _HOME)
