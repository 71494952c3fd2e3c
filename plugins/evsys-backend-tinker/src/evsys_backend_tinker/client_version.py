"""The package `tinker`: whether it is there, found out without importing it."""

from __future__ import annotations

import re
from importlib.metadata import PackageNotFoundError, version

from evsys.errors import PluginLoadError

__all__ = ["INSTALL", "TOP_LOGPROBS_SINCE", "installed_version", "require_tinker"]

INSTALL = "install it with: pip install 'evsys-backend-tinker[tinker]'"

_OLDEST, _BELOW = (0, 25), (0, 40)

TOP_LOGPROBS_SINCE = (0, 38)
"""Known to give the likeliest tokens of sampled positions; 0.25 doesn't."""


def installed_version() -> tuple[int, int] | None:
    """Major and minor version; None where the package is missing or its version isn't one."""
    try:
        found = version("tinker")
    except PackageNotFoundError:
        return None
    numbers = re.match(r"(\d+)\.(\d+)", found)
    return None if numbers is None else (int(numbers[1]), int(numbers[2]))


def require_tinker() -> None:
    """See that the client is there, in a version known to work.

    Raises:
        PluginLoadError: it isn't; says how to install it.
    """
    found = installed_version()
    if found is None:
        raise PluginLoadError("backend 'tinker' needs the package `tinker`", hint=INSTALL, kind="backend")
    if not _OLDEST <= found < _BELOW:
        raise PluginLoadError(
            f"backend 'tinker' works with tinker >=0.25,<0.40, and {version('tinker')} is installed",
            hint=INSTALL,
            kind="backend",
        )
