"""Every key of the experiment file, as classes with help texts. `validate.load_experiment` makes them."""

from __future__ import annotations

from evsys_runtime.config.model.benchmark import BenchmarkConfig, Split
from evsys_runtime.config.model.experiment import (
    FEWEST_SEEDS,
    MOST_SEEDS,
    SEEDS_BY_DEFAULT,
    AxisConfig,
    BudgetConfig,
    ConfirmConfig,
    ContinualConfig,
    ContrastConfig,
    ControlConfig,
    ExperimentConfig,
    LearnedConfig,
    MatrixConfig,
    MetadataConfig,
    SearchConfig,
    SelectConfig,
    StageConfig,
    WatchdogConfig,
)
from evsys_runtime.config.model.plugins import AgentConfig, PluginSpec
from evsys_runtime.config.model.run import (
    DataConfig,
    ModelConfig,
    ReplayConfig,
    RoleConfig,
    RunConfig,
    SourceKind,
)

__all__ = [
    "FEWEST_SEEDS",
    "MOST_SEEDS",
    "SEEDS_BY_DEFAULT",
    "AgentConfig",
    "AxisConfig",
    "BenchmarkConfig",
    "BudgetConfig",
    "ConfirmConfig",
    "ContinualConfig",
    "ContrastConfig",
    "ControlConfig",
    "DataConfig",
    "ExperimentConfig",
    "LearnedConfig",
    "MatrixConfig",
    "MetadataConfig",
    "ModelConfig",
    "PluginSpec",
    "ReplayConfig",
    "RoleConfig",
    "RunConfig",
    "SearchConfig",
    "SelectConfig",
    "SourceKind",
    "Split",
    "StageConfig",
    "WatchdogConfig",
]
