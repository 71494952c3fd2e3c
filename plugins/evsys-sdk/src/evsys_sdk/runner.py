"""Training and scoring every arm of an experiment, for callers that want the results of the runs alone."""

from __future__ import annotations

from evsys_runtime.experiment.python_api import arun_experiment, run_experiment

__all__ = ["arun_experiment", "run_experiment"]
