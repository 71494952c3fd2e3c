"""The limits of a process in the sandbox."""

from __future__ import annotations

import resource
from collections.abc import Mapping

__all__ = ["limit"]

_MOST_FILES = 64
_MOST_THREADS = 64


def limit(bounds: Mapping[str, int]) -> None:
    """Bound this process for good.

    Args:
        bounds: `memory` and `file` in bytes, `seconds` of the processor; `alone` is 1 where this sandbox counts its
            own processes and no other's.
    """
    limits = {
        resource.RLIMIT_AS: bounds["memory"],
        resource.RLIMIT_FSIZE: bounds["file"],
        resource.RLIMIT_CPU: bounds["seconds"],
        resource.RLIMIT_NOFILE: _MOST_FILES,
        resource.RLIMIT_CORE: 0,
    }
    if bounds["alone"]:
        limits[resource.RLIMIT_NPROC] = _MOST_THREADS
    for kind, bound in limits.items():
        _, hard = resource.getrlimit(kind)
        most = bound if hard == resource.RLIM_INFINITY else min(bound, hard)
        resource.setrlimit(kind, (most, most))
