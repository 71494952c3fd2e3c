"""The project in which a command is called, and the installed plugins together with the project's own."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from evsys import Registry
    from evsys.errors import EvsysError

__all__ = ["Known", "project_plugins"]


class Known(NamedTuple):
    """The plugins that a command sees.

    `root` is the project's, None outside any; `error` why its own plugins aren't in the registry, which then holds the
    installed ones.
    """

    registry: Registry
    root: Path | None = None
    error: EvsysError | None = None


def project_plugins() -> Known:
    """The plugins that an experiment of the current folder can name. Only inside a project is its code imported."""
    from evsys import current_registry
    from evsys_runtime.config.root import enclosing_project

    try:
        root = enclosing_project(Path.cwd())
    except FileNotFoundError:  # the folder that the shell is in was removed
        root = None
    except ValueError as exc:  # what a ConfigError is, whose module costs more than this command
        from evsys.errors import EvsysError

        if not isinstance(exc, EvsysError):
            raise
        return Known(current_registry(), error=exc)
    if root is None:
        return Known(current_registry())
    from evsys.errors import EvsysError
    from evsys_runtime.config.project import import_project_code, project_registry

    registry = project_registry()
    try:
        import_project_code(root, registry)
    except EvsysError as exc:
        return Known(project_registry(), root, exc)
    return Known(registry, root)
