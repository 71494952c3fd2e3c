"""`import src` in a script of a project that isn't installed."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType

__all__ = ["ProjectFinder", "WorkingDirectoryFinder"]


class ProjectFinder:
    """Finds the package `src` of the project that the running script is in.

    Python asks it first: another project may be installed (`pip install -e .`), and its package is called `src` as well.
    """

    @classmethod
    def install(cls) -> None:
        """Have Python ask it, and `WorkingDirectoryFinder` last; calling this again has no effect."""
        if not any(getattr(finder, "__qualname__", "") == cls.__qualname__ for finder in sys.meta_path):
            sys.meta_path.insert(0, cls)
            sys.meta_path.append(WorkingDirectoryFinder)

    @classmethod
    def find_spec(
        cls,
        name: str,
        path: Sequence[str] | None = None,  # noqa: ARG003 - as Python calls it
        target: ModuleType | None = None,  # noqa: ARG003 - as Python calls it
    ) -> ModuleSpec | None:
        """How to import `src`; None for other names, and for a script outside projects."""
        script = getattr(sys.modules.get("__main__"), "__file__", None) if name == "src" else None
        return _spec(Path(script).resolve().parent) if script else None


class WorkingDirectoryFinder:
    """Finds the package `src` of the project of the working directory, if nothing else on the path is called that."""

    @classmethod
    def find_spec(
        cls,
        name: str,
        path: Sequence[str] | None = None,  # noqa: ARG003 - as Python calls it
        target: ModuleType | None = None,  # noqa: ARG003 - as Python calls it
    ) -> ModuleSpec | None:
        """How to import `src`; None for other names, and outside projects."""
        return _spec(Path.cwd()) if name == "src" else None


def _spec(folder: Path) -> ModuleSpec | None:
    from evsys_runtime.config.project import spec_of_folder

    return spec_of_folder(folder)
