"""A deployer takes a checkpoint to its place of use, and returns that place.

## In an experiment file

The key is `deploy`.
"""

import asyncio
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs

from evsys import option, register_deployer
from evsys.types import Checkpoint


@register_deployer("copies")
class Copies:
    """Copies the checkpoint's folder."""

    @attrs.frozen(kw_only=True)
    class Config:
        """Params of `copies`."""

        path: Path = option(Path("deployed"), "Where the copies lie, one a step.")

    def __init__(self, path: Path) -> None:
        self.path = path

    async def deploy(self, checkpoint: Checkpoint) -> Mapping[str, Any]:
        target = self.path / f"step-{checkpoint.step}"
        await asyncio.to_thread(shutil.copytree, checkpoint.directory, target, dirs_exist_ok=True)
        return {"path": str(target)}
