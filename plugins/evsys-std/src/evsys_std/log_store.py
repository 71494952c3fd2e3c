"""The log store `local`: the record itself, and a file of all that happens if you name one."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import attrs

from evsys import option
from evsys_runtime.background import in_background
from evsys_runtime.data.scope import current_scope
from evsys_runtime.record.jsonl import JsonlWriter

__all__ = ["LocalLogStore"]


class LocalLogStore:
    """Keeps everything on this machine.

    The record in `output_dir` is written with any log store, so this one adds nothing unless it has a `path`: then each record is
    appended to that file, runs and experiments one after another.
    """

    name: ClassVar[str] = "local"
    conformance: ClassVar[Mapping[str, Any]] = {"params": {"path": "log.jsonl"}, "file": "log.jsonl"}

    @attrs.frozen(kw_only=True)
    class Config:
        """Parameters of `local`."""

        path: str | None = option(
            None, "file of JSON lines to append every record to, relative to the project root", min_len=1
        )

    def __init__(self, **fields: Any) -> None:
        self.config = self.Config(**fields)
        self._path = None if self.config.path is None else current_scope().resolve(self.config.path)

    async def write(self, record: Mapping[str, Any]) -> None:
        """Append a record, whole."""
        if self._path is not None:
            await in_background(_append, self._path, record)

    async def close(self) -> None:
        """Nothing is held back."""


def _append(path: Path, record: Mapping[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with JsonlWriter(path) as writer:
        writer.write(record)
