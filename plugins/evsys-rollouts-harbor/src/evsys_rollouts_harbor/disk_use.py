"""How much a sandbox holds on this machine's disk: looked at while it runs, so that no agent fills the disk."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path

__all__ = ["LOOK_SECONDS", "bytes_taken", "watch_disk_use"]

LOOK_SECONDS = 1.0
_PARTS = 8
"""The folder is measured when the free room of its disk fell by this part of the bound, and now and then."""
_MEASURED_AFTER = 60
"""Looks after which it is measured anyway: others may have made room meanwhile."""


async def watch_disk_use(folder: Path, most: int, exceeded: Callable[[], Awaitable[None]]) -> None:
    """Call `exceeded` once a folder takes more than `most` bytes of its disk, and return; else look on until cancelled.

    Free room is asked for each second, which costs nothing; the folder is measured when that fell.
    """
    before, looks = _free(folder), 0
    while True:
        await asyncio.sleep(LOOK_SECONDS)
        free, looks = _free(folder), looks + 1
        if before - free < most // _PARTS and looks < _MEASURED_AFTER:
            before = max(before, free)
            continue
        before, looks = free, 0
        if await asyncio.to_thread(bytes_taken, folder) > most:
            await exceeded()
            return


def _free(folder: Path) -> int:
    return shutil.disk_usage(folder).free


def bytes_taken(folder: Path) -> int:
    """Bytes on disk below a folder, links not followed; what vanishes or can't be read meanwhile is left out."""
    total = 0
    for _, _, names, descriptor in os.fwalk(folder, follow_symlinks=False):
        for name in names:
            try:
                total += 512 * os.stat(name, dir_fd=descriptor, follow_symlinks=False).st_blocks
            except OSError:
                continue
    return total
