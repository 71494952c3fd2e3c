"""The second models of an arm, `teacher` and `reference`: which weights they have, and on which backend they are."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs

from evsys import structure
from evsys.errors import ConfigError, StoreError
from evsys.protocols import Algorithm
from evsys.types import Checkpoint, LoraSpec, ModelSpec
from evsys_runtime.config.model import PluginSpec, RoleConfig
from evsys_runtime.config.plan import ArmConfig
from evsys_runtime.config.roles import ROLES, role_spec
from evsys_runtime.experiment.arms.asked_model import asked_model
from evsys_runtime.record.checkpoints import MANIFEST
from evsys_runtime.record.files import read_json
from evsys_runtime.training.checkpoints import find_checkpoint

__all__ = ["ArmRole", "roles_of"]


@attrs.frozen(kw_only=True)
class ArmRole:
    """A second model as it is prepared.

    Attributes:
        name: `teacher` or `reference`.
        backend: where it is; the run's own backend is made once more for it.
        model: which one.
        start: the checkpoint that its weights come from; None for those of the base model, or what the backend fetches.
        files: the hashes of that checkpoint's files.
    """

    name: str
    backend: PluginSpec
    model: ModelSpec
    start: Checkpoint | None
    files: Mapping[str, object] | None = None

    @property
    def facts(self) -> Mapping[str, object]:
        """What the record says of it."""
        return {
            "model": self.model.name,
            "weights": self.model.init_from_checkpoint,
            "files": self.files,
            "backend": self.backend.kind,
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
        model = role_spec(role, _lora(kept) or asked_model(arm, algorithm).lora)
        try:
            start = find_checkpoint(model, project_root)
        except ConfigError as error:
            raise ConfigError(
                attrs.evolve(one, path=one.path.replace("$.", f"$.run.{name}.", 1)) for one in error.problems
            ) from error
        files = None if start is None else _files(kept, start)
        backend = role.backend or arm.run.backend
        found.append(ArmRole(name=name, backend=backend, model=model, start=start, files=files))
    return tuple(found)


def _manifest(role: RoleConfig, project_root: Path) -> Mapping[str, Any]:
    """What a checkpoint of ours says of itself; empty for anything else, which looking it up judges."""
    folder = role.model.init_from_checkpoint
    if folder is None or "://" in folder:
        return {}
    try:
        return read_json(project_root / folder / MANIFEST)
    except StoreError:
        return {}


def _lora(kept: Mapping[str, Any]) -> LoraSpec | None:
    """What it was trained with; None where nobody says, and the run's own is taken."""
    try:
        return structure(ModelSpec, kept["manifest"]["model"]).lora
    except (KeyError, ConfigError):
        return None


def _files(kept: Mapping[str, Any], start: Checkpoint) -> Mapping[str, object]:
    """The hash of each file; of an adapter that nobody committed, its place."""
    told = kept.get("files", {})
    return {name: facts["sha256"] for name, facts in told.items()} or {"directory": str(start.directory)}
