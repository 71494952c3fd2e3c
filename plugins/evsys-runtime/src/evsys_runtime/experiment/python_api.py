"""`run_experiment`: an experiment from Python in one call."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from evsys.types import RunResult
from evsys_runtime.config.model import ExperimentConfig
from evsys_runtime.config.plan import Plan
from evsys_runtime.experiment.experiment import Experiment
from evsys_runtime.experiment.state.injection import running_experiment
from evsys_runtime.experiment.supervision.event_loop import run_to_end

__all__ = ["arun_experiment", "run_experiment"]

type Runnable = ExperimentConfig | Plan | Mapping[str, Any] | str | Path
"""An experiment: its config, the same as a mapping, its file, or a plan."""


async def arun_experiment(cfg: Runnable) -> list[RunResult]:
    """Train and score every arm; a failed arm is a result and doesn't stop the others, unless `fail_fast` says so.

    Args:
        cfg: an experiment, which is run as a whole and recorded. Called by a `train_fn` with the config that it got, this trains
            that experiment's arms instead.

    Returns:
        One result for each arm and repeat, in the order of the plan.

    Raises:
        ConfigError: it isn't valid; with every problem.
    """
    found = running_experiment()
    if found is not None and cfg is found.config:
        return await found.results()
    root = None if found is None or isinstance(cfg, str | Path) else found.project_root
    arms = (await Experiment(cfg, project_root=root).arun()).arms
    return [arm.run for arm in arms if arm.run is not None]


def run_experiment(cfg: Runnable) -> list[RunResult]:
    """`arun_experiment` for callers without an event loop.

    Raises:
        RuntimeError: an event loop runs in this thread already.
    """
    return run_to_end(
        partial(arun_experiment, cfg), call="run_experiment()", instead="results = await arun_experiment(cfg)"
    )
