"""A run's checkpoints: the backend's files, the loop's position and the whole model spec, in one folder of the record."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evsys import structure, unstructure
from evsys.errors import ConfigError, Problem, StoreError
from evsys.types import Checkpoint, ModelSpec
from evsys_record.checkpoints import MANIFEST, CheckpointEntry, CheckpointFiles
from evsys_record.files import DISK_FULL, read_json, store_error
from evsys_runtime.config.scalars import is_non_finite

if TYPE_CHECKING:
    from evsys.protocols import TrainingClient
    from evsys_record.attempts import Attempt
    from evsys_runtime.training.role_usage import RoleUsage

__all__ = ["ROLES", "RunCheckpoints", "find_checkpoint", "place_of", "restorable"]

ROLES = "roles"
"""The key of a checkpoint's loop under which the usage of second models is kept."""

_NUMBER = "evsys:number"
"""The one key of a mapping that represents a number which JSON lacks."""

PEFT_CONFIG = "adapter_config.json"
"""The file that marks a folder as an adapter in the layout of PEFT."""


class RunCheckpoints:
    """A core `Checkpoints` over the record's files.

    Args:
        files: the run's checkpoint folders.
        model: the trained one; stored whole alongside each checkpoint.
        attempt: the attempt that saves.
        attempts: every attempt so far, to distinguish live checkpoints from abandoned ones.
        restored: the checkpoint that this attempt started from, as `restorable` made it.
        roles: the accounts of second models, whose usage until then each checkpoint keeps.
    """

    def __init__(
        self,
        files: CheckpointFiles,
        model: ModelSpec,
        *,
        attempt: int,
        attempts: Sequence[Attempt] = (),
        restored: Checkpoint | None = None,
        roles: Mapping[str, RoleUsage] | None = None,
    ) -> None:
        self._files = files
        self._model = model
        self._attempt = attempt
        self._attempts = tuple(attempts)
        self._restored = restored
        self._roles = dict(roles or {})

    async def save(self, step: int, client: TrainingClient, loop: Mapping[str, Any]) -> Checkpoint:
        """Save a complete checkpoint: it is listed once everything is on the disk, or not at all.

        Args:
            step: optimiser steps behind the weights.
            client: saves weights and optimiser.
            loop: JSON values that the loop and the algorithm continue from.

        Raises:
            StoreError: it can't be written.
        """
        folder = self._files.begin(step)
        try:
            state = dict(await client.save_state(folder))
            used = {name: usage.state() for name, usage in self._roles.items()}
            entry = self._files.commit(
                folder,
                step=step,
                attempt=self._attempt,
                manifest={
                    "model": unstructure(self._model),
                    "state": state,
                    "loop": _spell_numbers({**loop, **({ROLES: used} if used else {})}),
                },
            )
        except OSError as exc:
            if exc.errno not in DISK_FULL:
                raise
            raise store_error(exc, folder, "save a checkpoint in") from exc
        finally:
            shutil.rmtree(folder, ignore_errors=True)  # gone already when it was committed
        return restorable(entry)

    def latest(self) -> Checkpoint | None:
        """The last complete checkpoint of the live lineage."""
        entry = self._files.latest(self._attempts)
        return None if entry is None else restorable(entry)

    @property
    def restored(self) -> Checkpoint | None:
        """The checkpoint that this attempt started from."""
        return self._restored


def restorable(entry: CheckpointEntry) -> Checkpoint:
    """A checkpoint of the record as backends and loops take it.

    Raises:
        StoreError: it lacks what they need.
    """
    manifest = entry.manifest
    if "state" not in manifest:
        raise StoreError(f"{entry.directory} has no entry for the backend's state", path=str(entry.directory))
    loop = _numbers(manifest.get("loop", {}))
    return Checkpoint(step=entry.step, directory=entry.directory, state=manifest["state"], loop=loop)


def _spell_numbers(tree: Any) -> Any:
    """A loop's values with the numbers that JSON lacks, infinities and NaN, spelt out."""
    return _each(tree, lambda value: {_NUMBER: repr(float(value))} if is_non_finite(value) else value)


def _numbers(tree: Any) -> Any:
    """The reverse of `_spell_numbers`."""
    return _each(tree, lambda value: value)


def _each(tree: Any, change: Callable[[Any], Any]) -> Any:
    if isinstance(tree, Mapping):
        if tree.keys() == {_NUMBER}:
            return float(tree[_NUMBER])
        return {key: _each(value, change) for key, value in tree.items()}
    if isinstance(tree, list | tuple):
        return [_each(value, change) for value in tree]
    return change(tree)


def find_checkpoint(model: ModelSpec, project_root: Path) -> Checkpoint | None:
    """The checkpoint that a model starts from: another run's, so no step of this run is behind it.

    `load_checkpoint_path` continues with the optimiser's state, `init_from_checkpoint` takes the weights alone. Both name
    a checkpoint folder, relative to the project root; `init_from_checkpoint` also an adapter's, in the layout of PEFT,
    which the backend checks. An address (`scheme://...`) is the backend's own to understand.

    Returns:
        None where the model names no folder.

    Raises:
        ConfigError: there is no complete checkpoint, or what it trained doesn't fit the model.
    """
    key = "load_checkpoint_path" if model.load_checkpoint_path is not None else "init_from_checkpoint"
    name = getattr(model, key)
    if name is None or "://" in name:
        return None
    folder = project_root / name

    def wrong(message: str, hint: str) -> ConfigError:
        return ConfigError([Problem(path=f"$.model.{key}", message=message, hint=hint)])

    if (
        key == "init_from_checkpoint"
        and (folder / PEFT_CONFIG).is_file()
        and not (folder / MANIFEST).is_file()
    ):
        return Checkpoint(step=0, directory=folder, with_optimizer=False)
    try:
        manifest = read_json(folder / MANIFEST)["manifest"]
        saved, state = structure(ModelSpec, manifest["model"]), manifest["state"]
    except (StoreError, KeyError, ConfigError) as error:
        raise wrong(
            f"{folder} is not a complete checkpoint ({error})",
            "name a folder like .../runs/<run>/checkpoints/<step>",
        ) from error
    for what, ours, theirs in (
        ("base model", model.name, saved.name),
        ("lora_rank", model.lora.rank, saved.lora.rank),
        ("lora_alpha", model.lora.alpha, saved.lora.alpha),
        ("target_modules", model.lora.targets, saved.lora.targets),
    ):
        if ours != theirs:
            raise wrong(
                f"the checkpoint was trained with {what} {theirs!r}, this run has {ours!r}",
                f"use the same {what}, or another checkpoint",
            )
    return Checkpoint(step=0, directory=folder, state=state, with_optimizer=key == "load_checkpoint_path")


def place_of(checkpoint: Checkpoint, run_dir: Path) -> str:
    """The folder of a checkpoint: relative to the run's if it is in there, else whole."""
    directory = checkpoint.directory
    return (directory.relative_to(run_dir) if directory.is_relative_to(run_dir) else directory).as_posix()
