"""JSON lines: one record a line, one write a line, split at line feeds only.

An acknowledged record (the call returned) is on file regardless of the process. A line that a killed
process or a full disk left half written was never acknowledged; readers skip it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from threading import Lock
from types import TracebackType
from typing import Any, Self

from evsys.errors import StoreError
from evsys_record.encoding import encode_record, utf8
from evsys_record.files import (
    TORN,
    open_for_append,
    open_to_read,
    store_error,
    storing,
    sync_directory,
    sync_file,
)

__all__ = ["JsonlWriter", "append_record", "read_jsonl"]

_BOM = b"\xef\xbb\xbf"


class JsonlWriter:
    """Appends records to one file, from any number of threads and processes.

    Each record is one `os.write` to a descriptor in append mode, so lines of different writers never mix. The file is
    opened by the first record and stays open until `close`.
    """

    def __init__(
        self, path: Path, *, scrub: Callable[[str], str] | None = None, durable: bool = False
    ) -> None:
        """Describe the file.

        Args:
            path: the file; its folder is made when needed.
            scrub: changes the text of a line before it is written, for taking secrets out.
            durable: sync each record to the disk (milliseconds each), for what must survive a power cut.
        """
        self.path = path
        self._scrub = scrub
        self._durable = durable
        self._descriptor: int | None = None
        self._unsynced = False
        self._listed = False
        self._lock = Lock()

    def write(self, record: Mapping[str, Any]) -> None:
        """Append one record.

        Raises:
            StoreError: the disk is full, the folder isn't writable, the record has no JSON form.
        """
        try:
            text = encode_record(record)
        except (TypeError, ValueError, RecursionError) as exc:
            raise StoreError(f"can't write to {self.path}: {exc}", path=str(self.path)) from exc
        self.write_text(text)

    def write_text(self, text: str) -> None:
        """Append a record that is JSON text already, without a line feed.

        Raises:
            StoreError: the disk is full, the folder isn't writable.
        """
        if self._scrub is not None:
            text = self._scrub(text)
        line = utf8(text + "\n")
        with self._lock:
            try:
                self._append(line)
            except OSError as exc:
                raise store_error(exc, self.path, "append to") from exc

    def _append(self, line: bytes) -> None:
        if self._descriptor is None:
            self._descriptor = open_for_append(self.path)
        self._unsynced = not self._durable
        written = os.write(self._descriptor, line)
        while written < len(line):
            written += self._continue(self._descriptor, line, written)
        if self._durable:
            os.fsync(self._descriptor)

    def _continue(self, descriptor: int, line: bytes, written: int) -> int:
        """Write on in a line. If that fails, take back its beginning, unless someone wrote behind it."""
        try:
            return os.write(descriptor, line[written:])
        except OSError:
            end = os.lseek(descriptor, 0, os.SEEK_CUR)
            if os.fstat(descriptor).st_size == end:
                os.ftruncate(descriptor, end - written)
            os.close(descriptor)
            self._descriptor = None  # the next record opens the file again, which closes off what is left
            raise

    def sync(self) -> None:
        """Make what was written so far survive a power cut, as far as it doesn't yet.

        Raises:
            StoreError: the disk is full, ...
        """
        with self._lock, storing(self.path, "sync"):
            if not self._unsynced:
                return
            if self._descriptor is None:  # closed since
                sync_file(self.path)
            else:
                os.fsync(self._descriptor)
            if not self._listed:
                sync_directory(self.path.parent)
            self._unsynced, self._listed = False, True

    def close(self) -> None:
        """Release the descriptor. Safe to call twice; a record written later opens the file again."""
        with self._lock:
            if self._descriptor is not None:
                os.close(self._descriptor)
                self._descriptor = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_descriptor", None) is not None:
            self.close()


def append_record(path: Path, record: Mapping[str, Any]) -> None:
    """Append one record durably, for files that grow by a line now and then."""
    with JsonlWriter(path, durable=True) as writer:
        writer.write(record)


def read_jsonl(path: Path, *, missing_ok: bool = False) -> Iterator[dict[str, Any]]:
    """Yield the records of a file, one at a time.

    Lines end at a line feed and nowhere else: other line separators may be inside text. Blank lines, a torn last
    line, and torn lines that a later writer closed off are skipped. A last line without a line feed counts when it is
    whole.

    Args:
        path: the file.
        missing_ok: yield nothing when there is no such file.

    Raises:
        StoreError: the file can't be opened, or a line isn't a JSON object; the message has the physical line.
    """
    if missing_ok and not path.exists():
        return
    with open_to_read(path) as stream:
        for number, line in enumerate(stream, start=1):
            if number == 1:
                line = line.removeprefix(_BOM)
            if line.endswith(TORN + b"\n") or not line.strip():
                continue
            try:
                record = json.loads(line.decode("utf-8"))
            except (ValueError, RecursionError) as exc:
                if not line.endswith(b"\n"):
                    return
                raise _unreadable(path, number, f"isn't JSON: {exc}") from exc
            if not isinstance(record, dict):
                raise _unreadable(path, number, f"holds a JSON {type(record).__name__}, expected an object")
            yield record


def _unreadable(path: Path, line: int, problem: str) -> StoreError:
    return StoreError(f"{path}:{line}: line {line} {problem}", hint="fix or remove this line", line=line)
