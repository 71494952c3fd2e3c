"""Libraries that come with an extra."""

from __future__ import annotations

from importlib.util import find_spec

from evsys.errors import PluginLoadError

__all__ = ["require"]


def require(*modules: str, logger: str) -> None:
    """See that what a logger writes with is installed, without importing it.

    Raises:
        PluginLoadError: it isn't; says how to install it.
    """
    missing = [module for module in modules if find_spec(module) is None]
    if missing:
        raise PluginLoadError(
            f"logger {logger!r} needs the package {', '.join(f'`{module}`' for module in missing)}",
            hint=f"pip install 'evsys-loggers[{logger}]'",
            kind="callback",
        )
