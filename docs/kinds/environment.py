"""An environment is the place in which an agent acts, such as a sandbox. It is prepared before a rollout and always released
after it; releasing it twice is safe.

## In an experiment file

The key is `environment`, of a benchmark entry. The engine [`harbor`](../harbor.md) runs `null`, `bwrap` and all
environments of Harbor.
"""

import asyncio
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp

from evsys import register_environment


@register_environment("scratch")
class Scratch:
    """An empty folder that is gone afterwards."""

    def __init__(self) -> None:
        self.folder: Path | None = None

    async def start(self) -> None:
        self.folder = Path(await asyncio.to_thread(mkdtemp))

    async def stop(self) -> None:
        folder, self.folder = self.folder, None
        if folder is not None:
            await asyncio.to_thread(rmtree, folder)
