"""What can be scored without training: a checkpoint of the record, a base model on a backend, an API model."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs

from evsys import structure
from evsys.errors import ConfigError, StoreError
from evsys.types import ModelSpec
from evsys_runtime.config.model import PluginSpec
from evsys_runtime.record.checkpoints import MANIFEST
from evsys_runtime.record.files import read_json

__all__ = ["BaseModel", "NamedClient", "SavedModel", "find_saved_model", "is_checkpoint"]


@attrs.frozen(kw_only=True)
class SavedModel:
    """A checkpoint of the record: its folder, its step, the model that it belongs to, and the backend that made it."""

    folder: Path
    step: int
    model: ModelSpec
    backend: PluginSpec

    @property
    def label(self) -> str:
        """What its scores go by: its run and its step."""
        return f"{self.folder.parent.parent.name}-step{self.step}"

    @property
    def asked(self) -> Mapping[str, Any]:
        """It as JSON values."""
        return {"checkpoint": str(self.folder), "backend": attrs.asdict(self.backend)}


@attrs.frozen(kw_only=True)
class BaseModel:
    """A model as it is before training, on a backend."""

    model: ModelSpec
    backend: PluginSpec
    step: int = attrs.field(default=0, init=False)

    @property
    def label(self) -> str:
        """What its scores go by: its name, or of a folder the folder's."""
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
        ConfigError: it is no complete checkpoint of a record.
    """
    folder = folder.resolve()
    run_dir = folder.parent.parent
    try:
        manifest = read_json(folder / MANIFEST)
        run_id = read_json(run_dir / "run.json")["run_id"]
        arms = read_json(run_dir.parent.parent / "resolved.json")["arms"]
        [tree] = [arm["run"] for arm in arms if arm["run_id"] == run_id]
        return SavedModel(
            folder=folder,
            step=int(manifest["step"]),
            model=structure(ModelSpec, manifest["manifest"]["model"]),
            backend=structure(PluginSpec, tree["backend"]),
        )
    except (StoreError, KeyError, ValueError) as exc:
        raise ConfigError(
            f"{folder} is no complete checkpoint of a run ({exc})",
            hint="name a folder like .evsys/experiments/<experiment>/runs/<run>/checkpoints/<step>; for a base model, its backend, too",
        ) from exc
