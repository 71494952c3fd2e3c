"""The end of a file of JSON lines that another process is still writing."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from evsys.errors import StoreError
from evsys_record.files import TORN, open_to_read, storing

__all__ = ["Tail"]


class Tail:
    """Reads the lines of a growing file once each: whole lines only, so one being written waits for its line feed.

    Args:
        path: the file.
        at_end: begin behind the lines that are there.
    """

    def __init__(self, path: Path, *, at_end: bool = False) -> None:
        self._path = path
        self._offset = self._end() if at_end else 0

    def read(self) -> Iterator[dict[str, Any]]:
        """The lines that were completed since the last call.

        Raises:
            StoreError: the file can't be read, or a line isn't a JSON object.
        """
        with open_to_read(self._path) as stream, storing(self._path, "read"):
            stream.seek(self._offset)
            for line in stream:
                if not line.endswith(b"\n"):
                    return
                self._offset += len(line)
                if line.strip() and not line.endswith(TORN + b"\n"):
                    yield self._record(line)

    def _record(self, line: bytes) -> dict[str, Any]:
        try:
            record = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise StoreError(f"{self._path}: a line isn't JSON: {error}") from error
        if not isinstance(record, dict):
            raise StoreError(f"{self._path}: a line holds a JSON {type(record).__name__}, expected an object")
        return record

    def _end(self) -> int:
        with storing(self._path, "read"):
            return self._path.stat().st_size
