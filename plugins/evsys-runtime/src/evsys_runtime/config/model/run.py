# ruff: noqa: RUF009 - `key` declares a field, it is no default
"""One arm: data, model, algorithm, backend."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import attrs

from evsys_runtime.config.model.fields import key
from evsys_runtime.config.model.plugins import AgentConfig, PluginSpec

__all__ = [
    "DataConfig",
    "ModelConfig",
    "ReplayConfig",
    "RoleConfig",
    "RunConfig",
    "SourceConfig",
    "SourceKind",
]

SourceKind = Literal["jsonl", "json", "csv", "in_memory", "hf_dataset"]


@attrs.frozen(kw_only=True)
class SourceConfig:
    """Rows of one source, and what is done to them."""

    source_kind: SourceKind | None = key(
        "Format of the source; by default derived from the other keys (a path's suffix, `rows`, `hf_dataset`).",
        None,
    )
    path: str | None = key("File of rows, relative to the project root.", None)
    rows: tuple[Mapping[str, Any], ...] | None = key("The rows themselves.", None)
    dataset_id: str | None = key("Id of a dataset in the data store; wins over `path`.", None)
    dataset_name: str | None = key("Name of a dataset: `faq/v1`, or `faq` for its newest version.", None)
    hf_dataset: str | None = key("A Hugging Face dataset, or a folder that holds one.", None)
    hf_split: str = key("Split of the Hugging Face dataset.", "train")
    on_bad_row: Literal["error", "skip"] = key(
        "A row that can't be read ends the run, or is left out and counted.", "error"
    )
    transforms: tuple[PluginSpec, ...] = key(
        "Applied to the rows in this order.", factory=tuple, plugin="transform"
    )


@attrs.frozen(kw_only=True)
class ReplayConfig:
    """Rows of other datasets between those of a run's own, in turns, each in a random order."""

    ratio: float = key("How many come for each row of the run's own.", gt=0, le=1)
    datasets: tuple[SourceConfig, ...] = key("Distribution to draw from.", min_len=1)


@attrs.frozen(kw_only=True)
class DataConfig(SourceConfig):
    """The source of the rows, and the transforms applied to them."""

    replay: ReplayConfig | None = key("Rows of other datasets between them.", None)


@attrs.frozen(kw_only=True)
class ModelConfig:
    """Which model is trained and from which weights."""

    name: str = key("The base model.", min_len=1)
    init_from_checkpoint: str | None = key("Start from these weights, with a fresh optimiser.", None)
    load_checkpoint_path: str | None = key("Start from these weights and their optimiser state.", None)
    renderer: str | None = key("Name of the renderer; by default the model's own chat template.", None)


@attrs.frozen(kw_only=True)
class RoleConfig:
    """A second model of the run: a teacher or a reference."""

    model: ModelConfig = key("The model in this role.")
    backend: PluginSpec | None = key("Backend to run it on; by default the run's.", None, plugin="backend")
    inference: PluginSpec | None = key(
        "A service that has it, in place of a backend.", None, plugin="inference_client"
    )

    @property
    def own(self) -> PluginSpec | None:
        """Its own backend or client, if that isn't the run's backend."""
        return self.inference or self.backend


@attrs.frozen(kw_only=True)
class RunConfig:
    """One run: what is trained, on what, how and where."""

    name: str | None = key("Name of the arm.", None)
    data: DataConfig = key("The training data.")
    model: ModelConfig = key("The model.")
    algorithm: PluginSpec = key("How it is trained; what is trained belongs here too.", plugin="algorithm")
    backend: PluginSpec = key("Backend for its training only.", plugin="backend")
    agent: AgentConfig | None = key("Who acts in rollouts; by default a plain chat.", None, plugin="agent")
    teacher: RoleConfig | None = key("The model to learn from.", None)
    reference: RoleConfig | None = key("The model to stay close to.", None)
    seed: int | None = key("Takes the place of `base_seed` for this arm.", None, ge=0)
    tags: tuple[str, ...] = key("How the arm is found again.", factory=tuple)
