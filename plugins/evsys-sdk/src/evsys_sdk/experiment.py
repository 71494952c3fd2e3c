"""`Experiment`, what it ends with, and the types of what Python code may put in place of its parts."""

from __future__ import annotations

from evsys.types import ArmResult, EvalResult, ExperimentResult
from evsys_runtime.config.model import ExperimentConfig, RunConfig
from evsys_runtime.experiment import Benchmark, EvsysStore, Experiment, InferenceFactory, Sweep, TrainFn

__all__ = [
    "ArmResult",
    "Benchmark",
    "EvalResult",
    "EvsysStore",
    "Experiment",
    "ExperimentConfig",
    "ExperimentResult",
    "InferenceFactory",
    "RunConfig",
    "Sweep",
    "TrainFn",
]
