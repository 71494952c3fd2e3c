"""The scope of transforms and stores in a run: the project's folder, and the place for big files."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

import attrs

__all__ = ["DataScope", "current_scope", "use_scope"]


@attrs.frozen(kw_only=True)
class DataScope:
    """`project_root` is what relative paths start from, `spool_dir` where rows go that don't fit in memory.

    `spool_dir` None means the system's folder for temporary files.
    """

    project_root: Path = attrs.field(factory=Path.cwd)
    spool_dir: Path | None = None

    def resolve(self, path: str | Path) -> Path:
        """A path of the experiment file as an absolute one."""
        return self.project_root / Path(path).expanduser()


_current: ContextVar[DataScope | None] = ContextVar("evsys_data_scope", default=None)


def current_scope() -> DataScope:
    """The scope in use here; without one, relative paths start from the working directory."""
    return _current.get() or DataScope()


@contextmanager
def use_scope(scope: DataScope) -> Iterator[DataScope]:
    """Make `scope` the current one inside, for this task and those started from it."""
    token = _current.set(scope)
    try:
        yield scope
    finally:
        _current.reset(token)
