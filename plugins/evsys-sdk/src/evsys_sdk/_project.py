"""`import src` in a script of a project that isn't installed."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType

__all__ = ["ProjectFinder"]


class ProjectFinder:
    """Finds the package `src` of the project that the running script is in, if nothing else on the path is called that.

    Python asks it last, and only for names that nothing else has. An installed project (`pip install -e .`) doesn't need it.
    """

    @classmethod
    def install(cls) -> None:
        """Have Python ask it; calling this again has no effect."""
        if not any(getattr(finder, "__qualname__", "") == cls.__qualname__ for finder in sys.meta_path):
            sys.meta_path.append(cls)

    @classmethod
    def find_spec(
        cls,
        name: str,
        path: Sequence[str] | None = None,  # noqa: ARG003 - as Python calls it
        target: ModuleType | None = None,  # noqa: ARG003 - as Python calls it
    ) -> ModuleSpec | None:
        """How to import `src`; None for other names, and outside of projects."""
        if name != "src":
            return None
        from evsys_runtime.config.project import spec_of_script

        return spec_of_script(getattr(sys.modules.get("__main__"), "__file__", None))
