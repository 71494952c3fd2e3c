"""How much memory is free here, and a refusal in time where that isn't enough."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

from evsys.errors import BackendError

_MEMINFO = Path("/proc/meminfo")
_CGROUP = Path("/sys/fs/cgroup")


class NotEnoughMemoryError(BackendError):
    """The request doesn't fit into this machine's memory. ``needed`` and ``available`` are bytes."""

    def __init__(self, message: str, *, needed: int, available: int, hint: str | None = None) -> None:
        super().__init__(message, hint=hint, needed=needed, available=available)


def available_bytes() -> int | None:
    """Bytes that this process can still get; None if the system doesn't report them.

    On Linux the kernel's available memory, or the rest of a container's limit if that is less. Elsewhere on Unix
    all memory of the machine, which at least catches what can never fit.
    """
    bounds = [bound for bound in (_from_meminfo(_MEMINFO), _left_in_cgroup(_CGROUP)) if bound is not None]
    if bounds:
        return min(bounds)
    return _physical()


def require_memory(
    needed: int, what: str, *, hint: str, free: Callable[[], int | None] | None = None
) -> None:
    """Raise :class:`NotEnoughMemoryError` if ``needed`` bytes for ``what`` are more than are free, by default here."""
    available = (free or available_bytes)()
    if available is not None and needed > available:
        raise NotEnoughMemoryError(
            f"{what} need {needed / 1e9:.1f} GB of memory, {available / 1e9:.1f} GB are free",
            hint=hint,
            needed=needed,
            available=available,
        )


def _from_meminfo(path: Path) -> int | None:
    if not path.is_file():
        return None
    for line in path.read_text(encoding="ascii").splitlines():
        name, _, value = line.partition(":")
        if name == "MemAvailable":
            return int(value.split()[0]) * 1024
    return None


def _left_in_cgroup(folder: Path) -> int | None:
    """The limit of this process's control group (version 2) less what is used and can't be dropped."""
    try:
        limit = (folder / "memory.max").read_text(encoding="ascii").strip()
        used = int((folder / "memory.current").read_text(encoding="ascii"))
        stat = (folder / "memory.stat").read_text(encoding="ascii")
    except OSError:
        return None  # no control group, or not this version: the machine's own figure decides
    if not limit.isdecimal():
        return None
    droppable = sum(int(line.split()[1]) for line in stat.splitlines() if line.startswith("inactive_file "))
    return max(0, int(limit) - used + droppable)


def _physical() -> int | None:
    if sys.platform == "win32":
        return None
    import os

    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
