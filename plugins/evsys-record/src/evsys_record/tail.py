"""The end of a file of JSON lines that another process is still writing."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from evsys.errors import StoreError
from evsys_record.files import TORN, open_to_read, storing

__all__ = ["Tail"]

_BLOCK = 1 << 16


class Tail:
    """Reads the lines of a growing file once each: whole lines only, so one being written waits for its line feed.

    Args:
        path: the file.
        offset: bytes read before; None begins behind the existing lines.
    """

    def __init__(self, path: Path, *, offset: int | None = 0) -> None:
        self._path = path
        self.offset = self._end() if offset is None else offset

    def read(self) -> Iterator[dict[str, Any]]:
        """The lines completed since the last call.

        Raises:
            StoreError: the file can't be read, or a line isn't a JSON object.
        """
        with open_to_read(self._path) as stream, storing(self._path, "read"):
            stream.seek(self.offset)
            for line in stream:
                if not line.endswith(b"\n"):
                    return
                self.offset += len(line)
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
        """Behind the last whole line: one that is being written is still to come."""
        with open_to_read(self._path) as stream, storing(self._path, "read"):
            size = stream.seek(0, 2)
            while size:
                start = max(0, size - _BLOCK)
                stream.seek(start)
                found = stream.read(size - start).rfind(b"\n")
                if found >= 0:
                    return start + found + 1
                size = start
            return 0
