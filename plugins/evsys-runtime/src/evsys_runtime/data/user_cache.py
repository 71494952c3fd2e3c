"""The folder in which evsys keeps, for one user, what can be had again."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

__all__ = ["cache_root"]


def cache_root(environ: Mapping[str, str] | None = None) -> Path:
    """The cache folder of this user: `EVSYS_CACHE`, else `XDG_CACHE_HOME/evsys`, else `~/.cache/evsys`.

    Variables set but empty count as unset. The folder need not exist.
    """
    environ = os.environ if environ is None else environ
    if own := environ.get("EVSYS_CACHE"):
        return Path(own).expanduser()
    if shared := environ.get("XDG_CACHE_HOME"):
        return Path(shared).expanduser() / "evsys"
    return Path.home() / ".cache" / "evsys"
