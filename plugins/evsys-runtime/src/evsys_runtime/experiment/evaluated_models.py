"""Models to evaluate without training: a checkpoint of the record, a base model on a backend, an API model."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs

from evsys import structure
from evsys.errors import ConfigError, StoreError
from evsys.types import ModelSpec
from evsys_record.checkpoints import MANIFEST
from evsys_record.files import read_json
from evsys_runtime.config.harness import Harness
from evsys_runtime.config.model import AgentConfig, PluginSpec
from evsys_runtime.evaluation.agents import DEFAULT_AGENT

__all__ = ["BaseModel", "NamedClient", "SavedModel", "find_saved_model", "is_checkpoint"]


@attrs.frozen(kw_only=True)
class SavedModel:
    """A checkpoint of the record: its folder, its step, the model that it belongs to, and the backend that made it.

    `harness` is what its run was scored in.
    """

    folder: Path
    step: int
    model: ModelSpec
    backend: PluginSpec
    harness: Harness = attrs.field(factory=Harness)

    @property
    def label(self) -> str:
        """The label of its scores: its run and its step."""
        return f"{self.folder.parent.parent.name}-step{self.step}"

    @property
    def asked(self) -> Mapping[str, Any]:
        """It as JSON values."""
        return {
            "checkpoint": str(self.folder),
            "backend": attrs.asdict(self.backend),
            "harness": attrs.asdict(self.harness),
        }


@attrs.frozen(kw_only=True)
class BaseModel:
    """A model as it is before training, on a backend."""

    model: ModelSpec
    backend: PluginSpec
    step: int = attrs.field(default=0, init=False)

    @property
    def label(self) -> str:
        """The label of its scores: its name, or that of its folder."""
        path = Path(self.model.name)
        return path.name if path.is_absolute() else self.model.name

    @property
    def asked(self) -> Mapping[str, Any]:
        """It as JSON values, `${NAME}` as it was written."""
        return {"base_model": self.model.name, "backend": attrs.asdict(self.backend)}


@attrs.frozen(kw_only=True)
class NamedClient:
    """An API model: what its scores go by, and the client that it is asked through."""

    label: str
    client: PluginSpec

    @property
    def asked(self) -> Mapping[str, Any]:
        """It as JSON values, `${NAME}` as it was written."""
        return {"name": self.label, "client": attrs.asdict(self.client)}


def is_checkpoint(folder: Path) -> bool:
    """Whether a folder is one that a run saved."""
    return (folder / MANIFEST).is_file()


def find_saved_model(folder: Path) -> SavedModel:
    """The checkpoint in a folder `<experiment>/runs/<run>/checkpoints/<step>`.

    Raises:
        ConfigError: it is not a complete checkpoint of a record.
    """
    folder = folder.resolve()
    run_dir = folder.parent.parent
    try:
        manifest = read_json(folder / MANIFEST)
        run_id = read_json(run_dir / "run.json")["run_id"]
        resolved = read_json(run_dir.parent.parent / "resolved.json")
        [arm] = [arm for arm in resolved["arms"] if arm["run_id"] == run_id]
        return SavedModel(
            folder=folder,
            step=int(manifest["step"]),
            model=structure(ModelSpec, manifest["manifest"]["model"]),
            backend=structure(PluginSpec, arm["run"]["backend"]),
            harness=_harness_of(resolved, arm),
        )
    except (StoreError, KeyError, ValueError) as exc:
        raise ConfigError(
            f"{folder} is not a complete checkpoint of a run ({exc})",
            hint="name a folder like .evsys/experiments/<experiment>/runs/<run>/checkpoints/<step>; for a base model, also its backend",
        ) from exc


def _harness_of(resolved: Mapping[str, Any], arm: Mapping[str, Any]) -> Harness:
    """The harness in which a run was evaluated on the entry of its success metric, or on its only one: the entry's
    own parts before those of the run.

    Records from before runs had a harness know the run's agent.
    """
    run: Mapping[str, Any] = arm.get("harness") or {"agent": arm["run"].get("agent")}
    entries, success = resolved["benchmarks"], resolved["metadata"].get("success_metric") or ""
    named = [entry for entry in entries if success.startswith(f"{entry['name']}.")]
    named = named or (entries if len(entries) == 1 else [])
    entry: Mapping[str, Any] = max(named, key=lambda one: len(one["name"]), default={})
    tree = {key: entry.get(key) or run.get(key) for key in ("agent", "environment", "system_prompt")}
    return Harness(
        agent=None if _is_chat(tree["agent"]) else structure(AgentConfig, tree["agent"]),
        environment=None if tree["environment"] is None else structure(PluginSpec, tree["environment"]),
        system_prompt=tree["system_prompt"],
        max_turns=run.get("max_turns"),
    )


def _is_chat(agent: Mapping[str, Any] | None) -> bool:
    """Whether that is the agent that acts if none is named: `chat` with its defaults."""
    if agent is None:
        return True
    name = str(agent.get("kind") or "").rpartition("/")[2]
    return name == DEFAULT_AGENT and not any(agent["params"].values())
