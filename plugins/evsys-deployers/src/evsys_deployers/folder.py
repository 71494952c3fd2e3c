"""The deployer `folder`: a directory that a server reads models from."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar
from uuid import uuid4

import attrs

from evsys import option
from evsys.errors import DeployError
from evsys.types import Checkpoint
from evsys_deployers.gate.scoring import TRAINING_FILES, checkpoint_digest
from evsys_record import make_directory, slug
from evsys_record.files import storing

__all__ = ["FolderDeployer"]


class FolderDeployer:
    """Copies the weights as they were saved to `<path>/<name>-<digest>`, and points the link `<path>/<name>` to them.

    Checkpoints of the backend `local` are folders of PEFT. Older copies stay, so that a rollback needs nothing else.
    """

    name: ClassVar[str] = "folder"

    @attrs.frozen(kw_only=True)
    class Config:
        """Parameters of `folder`."""

        path: Path = option(Path("deployed"), "directory of the models")
        name: str = option("model", "name of the link to the one in use", min_len=1)

    def __init__(self, **fields: Any) -> None:
        self.config = self.Config(**fields)
        if slug(self.config.name) != self.config.name:
            raise DeployError(
                f"{self.config.name!r} is not a name of a folder", hint=f"write {slug(self.config.name)!r}"
            )

    @property
    def _link(self) -> Path:
        return self.config.path / self.config.name

    async def deploy(self, checkpoint: Checkpoint) -> Mapping[str, Any]:
        """Copy the weights; a copy that is already there is used.

        Raises:
            DeployError: the checkpoint has no weights in files, or they aren't what its run saved.
            StoreError: they can't be copied.
        """
        return await asyncio.to_thread(self._copy, checkpoint.directory)

    def _copy(self, source: Path) -> Mapping[str, Any]:
        files = (
            [each for each in sorted(source.iterdir()) if not each.name.startswith(TRAINING_FILES)]
            if source.is_dir()
            else []
        )
        if not any(each.name != "manifest.json" for each in files):
            raise DeployError(
                f"{source} has no weights",
                hint="deploy a checkpoint whose backend saves files, such as local",
            )
        digest = checkpoint_digest(source)
        target = self.config.path / f"{self.config.name}-{digest.removeprefix('sha256:')[:12]}"
        if not target.exists():
            make_directory(self.config.path)
            partial = self.config.path / f".{target.name}-{uuid4().hex[:8]}"
            try:
                with storing(target, "copy to"):
                    partial.mkdir()
                    for file in files:
                        shutil.copy2(file, partial / file.name)
                    if not target.exists():  # another one may have been quicker
                        partial.rename(target)
            finally:
                shutil.rmtree(partial, ignore_errors=True)
        if checkpoint_digest(target) != digest:
            raise DeployError(f"{target} isn't a copy of {source}", hint="remove it, and deploy again")
        return {"path": str(target.resolve()), "link": str(self._link.absolute()), "digest": digest}

    async def active(self) -> Mapping[str, Any] | None:
        """The copy that the link points to."""
        if not self._link.is_symlink():
            return None
        target = self._link.resolve()
        return {"path": str(target), "link": str(self._link.absolute())}

    async def activate(self, place: Mapping[str, Any]) -> None:
        """Point the link to a copy; whoever opens it finds the old model or the new one.

        Raises:
            DeployError: the copy is gone, or something else has the name of the link.
        """
        await asyncio.to_thread(self._point, Path(place["path"]))

    def _point(self, target: Path) -> None:
        if not target.is_dir():
            raise DeployError(f"{target} is gone", hint="deploy the checkpoint again")
        if self._link.exists() and not self._link.is_symlink():
            raise DeployError(f"{self._link} is not a link", hint="choose another name, or move it away")
        fresh = self._link.with_name(f".{self.config.name}-{uuid4().hex[:8]}")
        with storing(self._link, "point the link"):
            fresh.symlink_to(target.name)
            fresh.replace(self._link)

    async def read_back(self, place: Mapping[str, Any]) -> Path:
        """The copy."""
        return Path(place["path"])
