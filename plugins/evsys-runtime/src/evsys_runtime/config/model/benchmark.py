# ruff: noqa: RUF009 - `key` declares a field, it is no default
"""The benchmarks of a model."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Mapping
from json import JSONDecodeError, dumps, loads
from pathlib import PurePosixPath
from typing import Any, Literal

import attrs

from evsys_runtime.config.model.fields import key
from evsys_runtime.config.model.plugins import AgentConfig, PluginSpec

__all__ = ["LEAST_TEMPERATURE", "BenchmarkConfig", "LimitBy", "Split"]

LEAST_TEMPERATURE = 0.05
"""Below it samples count as the same answers again, as at temperature 0."""

LimitBy = Literal["sample", "first"]
Split = Literal["val", "test"]


@attrs.frozen(kw_only=True)
class BenchmarkConfig:
    """A set of tasks and how they are scored."""

    name: str | None = key("Label of the entry; also its name in the store if no path or ID is given.", None)
    path: str | None = key(
        "File of tasks, a folder with `tasks.jsonl`, or a folder of Harbor's tasks; relative to the project root.",
        None,
    )
    id: str | None = key("Id of a stored benchmark; wins over `path`, which is then the fallback.", None)
    transforms: tuple[PluginSpec, ...] = key(
        "Applied to the rows in this order, to make tasks of them (see `jsonl_to_tasks`).",
        factory=tuple,
        plugin="transform",
    )
    split: Split = key("`val` may steer decisions, `test` is only reported.", "val")
    tags: tuple[Split, ...] = key("Older spelling of `split`.", factory=tuple)
    run_every: int | None = key(
        "Score every so many steps while training; by default once, after it.", None, ge=1
    )
    metrics: tuple[str | PluginSpec, ...] = key(
        "Metrics by name, such as `pass@3`, or as `{kind, params}`; by default the success metric where it is this entry's, else `mean_reward`. One listed more than once is called `kind[param=value]` in results.",
        factory=tuple,
        plugin="metric",
    )
    num_samples: int | None = key(
        "Samples of each task; by default as many as its metrics need, such as 3 for `pass@3`.", None, ge=1
    )
    max_tokens: int = key("Longest completion in tokens.", 256, ge=1, le=10_000_000)
    temperature: float | None = key(
        "Of sampling; by default 0 for one sample and 1 for several.", None, ge=0, le=100
    )
    limit: int | None = key("Score only so many tasks.", None, ge=1)
    limit_by: LimitBy = key(
        "`sample` draws the tasks of `limit`, the same in every run, in proportion from each group of `breakdown_keys` or labels; `first` takes the first ones.",
        "sample",
    )
    breakdown_keys: tuple[str, ...] = key("Metadata keys to give scores by.", factory=tuple)
    cluster_key: str | None = key("Metadata key of tasks that belong together; widens the intervals.", None)
    n_concurrent: int = key("Rollouts in flight.", 64, ge=1)
    engine: str | PluginSpec = key("Rollout engine by name, or `auto`.", "auto", plugin="rollout_engine")
    agent: AgentConfig | None = key("Who acts; by default the run's agent.", None, plugin="agent")
    environment: PluginSpec | None = key("Environment of the agent.", None, plugin="environment")
    inference: PluginSpec | None = key(
        "How completions are made; by default by the trained model.", None, plugin="inference_client"
    )
    models: tuple[str | PluginSpec, ...] = key(
        "API models, scored once for comparison: each as `{kind, params}` of a client, as the name of an installed or registered client, or as the name of a model at `OPENAI_BASE_URL`.",
        factory=tuple,
        plugin="inference_client",
    )
    model: str | PluginSpec | None = key("One API model; see `models`.", None, plugin="inference_client")
    system_prompt: str | None = key("Goes before each task.", None)
    pass_threshold: float = key("A reward from here on counts as passed.", 1.0)
    allow_test_selection: bool = key("Let the success metric read this `test` entry; see `metadata`.", False)

    def __attrs_post_init__(self) -> None:
        if self.tags:
            object.__setattr__(self, "split", self.tags[0])
        if self.temperature is None and self.num_samples is not None:
            object.__setattr__(self, "temperature", 0.0 if self.num_samples == 1 else 1.0)

    def with_clients(self, is_client: Callable[[str], bool]) -> BenchmarkConfig:
        """The entry with `{kind, params}` for each API model that it only names: a client of that name, if there is one, else
        the model of that name at `OPENAI_BASE_URL`.
        """

        def client(model: str | PluginSpec) -> PluginSpec:
            if isinstance(model, PluginSpec):
                return model
            return PluginSpec(kind=model) if is_client(model) else _default_client(model)

        if not any(isinstance(model, str) for model in (*self.models, self.model)):
            return self
        model = None if self.model is None else client(self.model)
        return attrs.evolve(self, models=tuple(map(client, self.models)), model=model)

    def drawn(self, needed: int) -> BenchmarkConfig:
        """The entry with a number of samples, `needed` ones unless it says how many, and the temperature that follows."""
        return attrs.evolve(self, num_samples=needed) if self.num_samples is None else self

    @property
    def repeats_answers(self) -> bool:
        """Whether a second scoring of the same weights gets the same answers, since the temperature is 0 or next to it."""
        return (self.temperature or 0.0) < LEAST_TEMPERATURE

    @property
    def label(self) -> str:
        """Its name in results: its name, its id, or the last distinctive part of its path."""
        if self.name or self.id or not self.path:
            return self.name or self.id or ""
        path = PurePosixPath(self.path.replace("\\", "/"))
        return path.parent.name or path.stem if path.stem == "tasks" else path.stem

    @property
    def metric_specs(self) -> tuple[PluginSpec, ...]:
        """The metrics, each as `{kind, params}`."""
        return tuple(
            metric if isinstance(metric, PluginSpec) else PluginSpec(kind=metric) for metric in self.metrics
        )

    @property
    def metric_names(self) -> tuple[str, ...]:
        """The name of each metric in results: its kind, with its params if the kind is listed several times."""
        specs = self.metric_specs
        listed = Counter(spec.kind for spec in specs)
        return tuple(
            spec.kind + (_bracketed_params(spec.params) if listed[spec.kind] > 1 else "") for spec in specs
        )

    @property
    def model_specs(self) -> tuple[tuple[str, str, PluginSpec], ...]:
        """The API models: their place in the entry, what results call them, and the client that each is asked through.

        A bare name means a model at `OPENAI_BASE_URL`, unless `with_clients` was there before.
        """
        given = [(f"models[{place}]", model) for place, model in enumerate(self.models)]
        given += [("model", self.model)] if self.model is not None else []
        return tuple((place, *_api_model(model)) for place, model in given)

    @property
    def engine_spec(self) -> PluginSpec:
        """The engine as `{kind, params}`; the kind `auto` leaves the choice to the evaluation."""
        return self.engine if isinstance(self.engine, PluginSpec) else PluginSpec(kind=self.engine)


def _bracketed_params(params: Mapping[str, Any]) -> str:
    """Params as part of a name: `[k=4,weights={"a":1}]`, sorted; nothing where there are none."""
    said = ",".join(f"{name}={_short(params[name])}" for name in sorted(params, key=str))
    return f"[{said}]" if said else ""


def _short(value: Any) -> str:
    """A value as JSON; text without quotes, unless it then were something else."""
    try:
        if isinstance(value, str):
            loads(value)
    except JSONDecodeError:
        return str(value)
    return dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":"), default=str)


def _api_model(model: str | PluginSpec) -> tuple[str, PluginSpec]:
    """The label and the client of an API model."""
    if isinstance(model, PluginSpec):
        return str(model.params.get("model", model.kind)), model
    return model, _default_client(model)


def _default_client(model: str) -> PluginSpec:
    """The client of a model asked for where the usual variables say."""
    params = {"model": model, "base_url": "${OPENAI_BASE_URL}"}
    params |= {"api_key_env": "OPENAI_API_KEY"} if os.environ.get("OPENAI_API_KEY") else {}
    return PluginSpec(kind="openai_compatible", params=params)
