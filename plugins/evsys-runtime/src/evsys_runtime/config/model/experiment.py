# ruff: noqa: RUF009 - `key` declares a field, it is no default
"""The experiment file as a whole."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import attrs

from evsys_runtime.config.model.benchmark import BenchmarkConfig
from evsys_runtime.config.model.fields import key
from evsys_runtime.config.model.plugins import PluginSpec
from evsys_runtime.config.model.run import DataConfig, RoleConfig, RunConfig, SourceConfig

__all__ = [
    "AxisConfig",
    "BudgetConfig",
    "ConfirmConfig",
    "ContinualConfig",
    "ContrastConfig",
    "ControlConfig",
    "ExperimentConfig",
    "LearnedConfig",
    "MatrixConfig",
    "MetadataConfig",
    "SearchConfig",
    "SelectConfig",
    "StageConfig",
    "WatchdogConfig",
]


@attrs.frozen(kw_only=True)
class ContrastConfig:
    """The one comparison that decides."""

    arm: str = key("The arm that the claim is about.", min_len=1)
    against: str | None = key(
        "The arm it is compared with, or `base_model`; by default `metadata.baseline`.", None
    )


@attrs.frozen(kw_only=True)
class MetadataConfig:
    """Why the experiment is run and how it is judged."""

    hypothesis: str | None = key("Why this is run.", None)
    tags: tuple[str, ...] = key("How it is found again.", factory=tuple)
    project_goal_id: str | None = key("The goal it serves.", None)
    parent_experiment_id: str | None = key("The experiment it follows.", None)
    success_metric: str | None = key(
        "`benchmark.metric`, or a metric's name alone, which then is the only `val` entry's.", None
    )
    direction: Literal["max", "min"] | None = key("Which way is better; by default the metric's own.", None)
    baseline: str = key(
        "An arm's name, or `base_model`: the untrained model, scored at step 0.", "base_model"
    )
    claim: Literal["better", "no_worse", "equal", "worse"] = key(
        "Claim about the arms: better or worse by more than `margin`, not worse by `margin` or more, "
        "or equal within `margin`.",
        "better",
    )
    margin: float | None = key("The difference that the claim is about, in units of the metric.", None, ge=0)
    minimum_effect: float | None = key(
        "Smallest difference worth acting on: `margin` of the claim `better`.", None, ge=0
    )
    contrast: ContrastConfig | None = key(
        "The one comparison that the claim is about; by default each arm is compared with the baseline.", None
    )
    allow_test_selection: bool = key("Let the success metric read a `test` entry.", False)
    allow_leak: bool = key(
        "Decide although more than 10 % of the deciding tasks are among the training rows; the conclusion is marked.",
        False,
    )
    benchmark: BenchmarkConfig | tuple[BenchmarkConfig, ...] = key(
        "Benchmarks of the models: one entry or a list.", factory=tuple
    )

    @property
    def claimed_margin(self) -> float:
        """The margin of the claim, under either name; 0 where none is set."""
        return self.margin or self.minimum_effect or 0.0

    @property
    def benchmarks(self) -> tuple[BenchmarkConfig, ...]:
        """The entries as a tuple, however many there are."""
        return (self.benchmark,) if isinstance(self.benchmark, BenchmarkConfig) else self.benchmark


@attrs.frozen(kw_only=True)
class AxisConfig:
    """An axis that applies to some arms only, or a range of numbers for a search."""

    values: tuple[Any, ...] | None = key("The values; instead of `low` and `high`.", None)
    low: int | float | None = key("The lowest number of a range, which needs a `search`.", None)
    high: int | float | None = key("The highest number of a range.", None)
    log: bool = key("Whether equal ratios of a range count alike, instead of equal distances.", False)
    type: Literal["float", "int"] = key("Type of the values in a range.", "float")
    when: Mapping[str, Any] = key(
        "Applies where each of these paths has the given value, or one of a list.", factory=dict
    )


@attrs.frozen(kw_only=True)
class MatrixConfig:
    """All combinations of some values."""

    axes: Mapping[str, tuple[Any, ...] | AxisConfig] = key(
        "Dotted path inside a run to the list of its values, to `{values, when}`, or to a range `{low, high}`."
    )
    base_run: Mapping[str, Any] | None = key(
        "The run that the axes vary; may be given next to `matrix`.", None
    )
    name_template: str | None = key(
        "Names of the arms, such as `lr-{algorithm.params.learning_rate}`; by default made of the axes.", None
    )
    zip: tuple[tuple[str, ...], ...] = key(
        "Groups of axes that advance together instead of multiplying.", factory=tuple
    )


@attrs.frozen(kw_only=True)
class SearchConfig(PluginSpec):
    """A search by name with its parameters."""

    referee: float = key(
        "Share of arms that random search proposes in addition, to measure whether this search is better.",
        0.0,
        ge=0,
        le=0.5,
    )


@attrs.frozen(kw_only=True)
class ControlConfig:
    """Identical repeats of the baseline, which show how far apart equal arms fall."""

    repeats: int = key("Number of control runs, in addition to the baseline's own.", 2, ge=1)


FEWEST_SEEDS, SEEDS_BY_DEFAULT, MOST_SEEDS = 3, 4, 8
"""How many seeds a confirmation chooses at least, without a run-to-run deviation on record, and at most."""


@attrs.frozen(kw_only=True)
class ConfirmConfig:
    """Tries the winner and the baseline again, so that luck in choosing it doesn't count."""

    seeds: int | None = key(
        "Number of fresh seeds to retrain both with; 0 evaluates the trained models again. By default 3 to 8, as many as show the "
        "winner's expected effect given the run-to-run deviation on record, and 4 where none is on record.",
        None,
        ge=0,
    )
    benchmark: str | None = key(
        "The entry that they are scored on, kept for them alone; by default the success metric's.", None
    )

    @property
    def expected_seeds(self) -> int:
        """The seeds given, or those that a budget sets aside until the number is known."""
        return SEEDS_BY_DEFAULT if self.seeds is None else self.seeds

    @property
    def most_seeds(self) -> int:
        """The seeds given, or the most that may be chosen."""
        return MOST_SEEDS if self.seeds is None else self.seeds


@attrs.frozen(kw_only=True)
class SelectConfig:
    """Which checkpoint of each run is tested, continued and deployed."""

    by: str | None = key(
        "`<val entry>.<metric>` that selects; by default the success metric, or the first metric of the first `val` entry that has `run_every`.",
        None,
    )
    checkpoint: Literal["best", "last"] | None = key(
        "`best` of those that `by` scored during training, or `last`; by default `best` if a `val` entry has `run_every`.",
        None,
    )


@attrs.frozen(kw_only=True)
class LearnedConfig(SourceConfig):
    """One dataset of a sequence learnt: the keys of a `data` block, and these."""

    name: str | None = key("Name of its stage; by default `data-1`, `data-2` and so on.", None, min_len=1)
    benchmark: str | None = key(
        "The benchmark entry that measures retention; by default the one of its name.", None
    )


@attrs.frozen(kw_only=True)
class ContinualConfig:
    """One recipe over datasets in order; each starts from the weights that the one before ended with."""

    datasets: tuple[LearnedConfig, ...] = key("The datasets in order.")
    replay: float = key("Rows of earlier datasets for each row of the current one.", 0.0, ge=0, le=1)
    maximum_loss: float | None = key(
        "An arm ends early once it has lost more than this of an earlier dataset's score, in units of its metric.",
        None,
        ge=0,
    )
    minimum_retention: float | None = key(
        "Use `maximum_loss`. An arm ends early once less than this share of an earlier dataset's score is left.",
        None,
        ge=0,
        le=1,
        deprecated="0.1",
    )
    level: float = key(
        "The most often that a chain of stages may end early although it has lost no more than allowed.",
        0.05,
        gt=0,
        le=0.5,
    )


@attrs.frozen(kw_only=True)
class StageConfig:
    """One stage of a recipe in several."""

    name: str = key("Name of the stage.", min_len=1)
    data: DataConfig = key("Its data.")
    algorithm: PluginSpec = key("Its algorithm.", plugin="algorithm")
    teacher: RoleConfig | None = key("The model that it learns from.", None)
    reference: RoleConfig | None = key("The model that it stays close to.", None)


@attrs.frozen(kw_only=True)
class BudgetConfig:
    """The limits of an experiment, for all its launches together."""

    usd: float | None = key(
        "US dollars, as far as prices are known: trained, sampled and judged.", None, gt=0
    )
    tokens: int | None = key("Tokens: trained, sampled and judged.", None, ge=1)
    wall_seconds: float | None = key("Seconds that pass while it runs.", None, gt=0)
    steps: int | None = key("Optimiser steps of all runs.", None, ge=1)
    arms: int | None = key("Number of runs to start; each repeat of an arm counts.", None, ge=1)


@attrs.frozen(kw_only=True)
class WatchdogConfig:
    """When a run that doesn't move any more is ended as `stalled`."""

    factor: float = key("So many times the median step may pass without anything that moves.", 10.0, ge=2)
    floor_seconds: float = key(
        "At least so many seconds may; all that counts before the first step, as while a model is loaded.",
        3600.0,
        gt=0,
    )


@attrs.frozen(kw_only=True)
class ExperimentConfig:
    """An experiment: the arms, how they are judged, and what goes with them."""

    version: Literal[1] = key("Version of this format.", 1)
    name: str = key("Becomes part of folder names.", min_len=1)
    description: str | None = key("Free text.", None)
    metadata: MetadataConfig = key("Why it is run and how it is judged.", factory=MetadataConfig)
    run: RunConfig | None = key("The only arm.", None)
    runs: tuple[RunConfig, ...] | None = key("Arms written out.", None)
    matrix: MatrixConfig | None = key("Arms as combinations.", None)
    base_run: Mapping[str, Any] | None = key("The run that `matrix` varies.", None)
    n_repeats: int = key("Repeats of each arm, over seeds that differ and that the arms share.", 1, ge=1)
    base_seed: int = key("Seed from which all seeds are derived.", 0, ge=0)
    deterministic: bool | None = key(
        "The same bits each time; by default where the backend can promise it.", None
    )
    reuse_arms: bool = key(
        "Take arms that an earlier experiment ran exactly as here from the record, instead of running them again.",
        False,
    )
    control: ControlConfig | None = key("A noise floor.", None)
    confirm: ConfirmConfig | None = key("A second trial of the winner, which decides.", None)
    select: SelectConfig | None = key("Which checkpoint of each run counts.", None)
    max_concurrent_arms: int | None = key(
        "Arms side by side; by default what their backends suggest, 1 on `local` and 4 elsewhere.", None, ge=1
    )
    continual: ContinualConfig | None = key("Learn dataset after dataset, in place of `run.data`.", None)
    stages: tuple[StageConfig, ...] = key(
        "A recipe in stages, in place of `run.data` and `run.algorithm`.", factory=tuple
    )
    search: SearchConfig | None = key(
        "Search that chooses from the axes of `matrix`, instead of all combinations.", None, plugin="search"
    )
    budget: BudgetConfig | None = key("Limits on spending.", None)
    watchdog: WatchdogConfig = key("When a run that doesn't move is ended.", factory=WatchdogConfig)
    data_store: PluginSpec | None = key("Stores of datasets and benchmarks.", None, plugin="data_store")
    log_store: PluginSpec | None = key(
        "Additional destinations of metrics, configs and results; the record in `output_dir` is always written.",
        None,
        plugin="log_store",
    )
    callbacks: tuple[PluginSpec, ...] = key("Listeners.", factory=tuple, plugin="callback")
    deploy: PluginSpec | None = key("Destination of the winner.", None, plugin="deployer")
    launcher: PluginSpec | None = key(
        "Runs each arm in a process of its own, here or on other machines.", None, plugin="launcher"
    )
    output_dir: str = key("Folder of the records, relative to the project root.", ".evsys/experiments")

    @property
    def confirming_repeats(self) -> int:
        """The repeats at which a winner is tried again: fresh ones, or each trained; 0 where none is."""
        return 0 if self.confirm is None else self.confirm.expected_seeds or self.n_repeats
