"""The second models of an arm, `teacher` and `reference`: which weights they have, and on which backend they are."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs

from evsys import Registry, structure
from evsys.errors import ConfigError, StoreError
from evsys.protocols import Algorithm, Backend
from evsys.types import Checkpoint, LoraSpec, ModelSpec
from evsys_record.checkpoints import MANIFEST
from evsys_record.files import read_json
from evsys_runtime.config.asked_model import adapter_of, model_spec
from evsys_runtime.config.model import PluginSpec, RoleConfig
from evsys_runtime.config.placeholders import resolve
from evsys_runtime.config.plan import ArmConfig
from evsys_runtime.config.roles import ROLES
from evsys_runtime.training.checkpoints import find_checkpoint
from evsys_runtime.training.inference_role import InferenceRole

__all__ = ["ArmRole", "roles_of"]


@attrs.frozen(kw_only=True)
class ArmRole:
    """A second model as it is prepared.

    Attributes:
        name: `teacher` or `reference`.
        backend: where it is; the run's own backend is made again for it. A service's inference client where `served`.
        model: which one.
        start: the checkpoint that its weights come from; None for those of the base model, or what the backend
            fetches.
        files: the hashes of that checkpoint's files.
    """

    name: str
    backend: PluginSpec
    model: ModelSpec
    start: Checkpoint | None
    files: Mapping[str, object] | None = None
    served: bool = False

    def build(self, registry: Registry) -> Backend:
        """Its backend, with what the environment says put into its params."""
        spec = self.backend
        made = registry.build(
            "inference_client" if self.served else "backend", spec.kind, resolve(spec.params)
        )
        return InferenceRole(made, spec.kind) if self.served else made

    @property
    def facts(self) -> Mapping[str, object]:
        """Its description in the record."""
        return {
            "model": self.model.name,
            "weights": self.model.init_from_checkpoint,
            "files": self.files,
            "inference" if self.served else "backend": self.backend.kind,
        }


def roles_of(arm: ArmConfig, algorithm: Algorithm, project_root: Path) -> tuple[ArmRole, ...]:
    """The roles that an arm names, with their weights looked up.

    Raises:
        ConfigError: the checkpoint of one isn't there, or isn't of its model.
    """
    found = []
    for name in ROLES:
        role: RoleConfig | None = getattr(arm.run, name)
        if role is None:
            continue
        kept = _manifest(role, project_root)
        model = model_spec(role.model, _lora(kept) or adapter_of(algorithm))
        try:
            start = find_checkpoint(model, project_root)
        except ConfigError as error:
            raise ConfigError(
                attrs.evolve(one, path=one.path.replace("$.", f"$.run.{name}.", 1)) for one in error.problems
            ) from error
        files = None if start is None else _files(kept, start)
        backend, served = role.own or arm.run.backend, role.inference is not None
        found.append(
            ArmRole(name=name, backend=backend, model=model, start=start, files=files, served=served)
        )
    return tuple(found)


def _manifest(role: RoleConfig, project_root: Path) -> Mapping[str, Any]:
    """The manifest of a checkpoint of ours; empty for anything else, which the look-up checks."""
    folder = role.model.init_from_checkpoint
    if folder is None or "://" in folder:
        return {}
    try:
        return read_json(project_root / folder / MANIFEST)
    except StoreError:
        return {}


def _lora(kept: Mapping[str, Any]) -> LoraSpec | None:
    """The adapter that it was trained with; None if unknown, and the run's own is used."""
    try:
        return structure(ModelSpec, kept["manifest"]["model"]).lora
    except (KeyError, ConfigError):
        return None


def _files(kept: Mapping[str, Any], start: Checkpoint) -> Mapping[str, object]:
    """The hash of each file; of an adapter that no one committed, its place."""
    told = kept.get("files", {})
    return {name: facts["sha256"] for name, facts in told.items()} or {"directory": str(start.directory)}
