"""The log store `local`: the record itself, and a file of all that happens if you name one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import attrs

from evsys import option
from evsys_record.jsonl import JsonlWriter
from evsys_runtime import current_scope, in_background

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
        path = self.config.path
        self._writer = None if path is None else JsonlWriter(current_scope().resolve(path))

    async def write(self, record: Mapping[str, Any]) -> None:
        """Append a record, whole."""
        if self._writer is not None:
            await in_background(self._writer.write, record)

    async def close(self) -> None:
        """Release the file; a record written later opens it again."""
        if self._writer is not None:
            self._writer.close()
