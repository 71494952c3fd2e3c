"""An environment is where an agent acts. It is made ready before a rollout and released after it, whatever happened in between;
being released twice does no harm.

## In an experiment file

The key is `environment`, of a benchmark entry. The engine [`harbor`](../harbor.md) runs `null`, `bwrap` and whatever is an
environment of Harbor's.
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
