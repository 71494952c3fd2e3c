"""Rows as encoded lines: in memory while they are few, in one file with an index of offsets once they are many."""

from __future__ import annotations

import hashlib
import os
import tempfile
import weakref
from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from evsys.errors import StoreError

__all__ = ["MEMORY_LIMIT", "LineStore"]

MEMORY_LIMIT = 4 * 2**20
"""Bytes of encoded rows that stay in memory; beyond, a row costs its eight bytes of index."""


class LineStore:
    """Lines that are appended once and then read by number, in any order, from any thread.

    Append all, then `seal`, then read. The file is deleted when the store is collected, unless `keep` moved it.

    Args:
        folder: where the file goes if one is needed; None is the system's folder for temporary files.
        memory_limit: bytes that may stay in memory.
    """

    def __init__(self, folder: Path | None = None, *, memory_limit: int = MEMORY_LIMIT) -> None:
        self._folder = folder
        self._limit = memory_limit
        self._lines: list[bytes] = []
        self._offsets = array("Q", [0])
        self._writer: BinaryIO | None = None
        self._hash = hashlib.sha256()
        self._cleanup: weakref.finalize[[str], LineStore] | None = None
        self.path: Path | None = None

    def append(self, line: bytes) -> None:
        """Add a line that ends with its line feed.

        Raises:
            StoreError: it can't be written.
        """
        self._hash.update(line)
        self._offsets.append(self._offsets[-1] + len(line))
        if self._writer is not None:
            self._write(line)
        else:
            self._lines.append(line)
            if self._offsets[-1] > self._limit:
                self._spill()

    def seal(self) -> None:
        """All lines are there."""
        if self._writer is not None:
            writer, self._writer = self._writer, None
            try:
                writer.close()
            except OSError as exc:
                raise self._no_space(exc) from exc

    @property
    def fingerprint(self) -> str:
        """`sha256:...` of all lines, one after the other: the hash of the file that they make."""
        return f"sha256:{self._hash.hexdigest()}"

    def __len__(self) -> int:
        return len(self._offsets) - 1

    def __getitem__(self, index: int, /) -> bytes:
        count = len(self)
        if not -count <= index < count:
            raise IndexError(f"row {index} of {count}")
        index %= count
        if self.path is None:
            return self._lines[index]
        # A handle for each read: no lock between threads, nothing to close, nothing shared with a forked process.
        with self.path.open("rb") as stream:
            stream.seek(self._offsets[index])
            return stream.read(self._offsets[index + 1] - self._offsets[index])

    def __iter__(self) -> Iterator[bytes]:
        if self.path is None:
            yield from self._lines
        else:
            with self.path.open("rb") as stream:
                yield from stream

    def in_order(self, indices: array[int]) -> Iterator[bytes]:
        """Lines by number, with one handle for all."""
        if self.path is None:
            for index in indices:
                yield self._lines[index]
            return
        with self.path.open("rb") as stream:
            for index in indices:
                stream.seek(self._offsets[index])
                yield stream.read(self._offsets[index + 1] - self._offsets[index])

    def close(self) -> None:
        """Delete the file now."""
        self.seal()
        if self._cleanup is not None:
            self._cleanup()

    def _spill(self) -> None:
        try:
            if self._folder is not None:
                self._folder.mkdir(parents=True, exist_ok=True)
            handle, name = tempfile.mkstemp(prefix="rows-", suffix=".jsonl.part", dir=self._folder)
        except OSError as exc:
            raise StoreError(f"can't make a file for rows in {self._folder}: {exc.strerror or exc}") from exc
        self._writer = os.fdopen(handle, "wb", buffering=1 << 18)
        self.path = Path(name)
        self._cleanup = weakref.finalize(self, _unlink, name)
        for line in self._lines:
            self._write(line)
        self._lines = []

    def _write(self, line: bytes) -> None:
        assert self._writer is not None
        try:
            self._writer.write(line)
        except OSError as exc:
            raise self._no_space(exc) from exc

    def _no_space(self, exc: OSError) -> StoreError:
        return StoreError(
            f"can't write rows to {self.path}: {exc.strerror or exc}",
            hint="free space there, or choose another folder (TMPDIR for temporary files)",
        )


def _unlink(name: str) -> None:
    Path(name).unlink(missing_ok=True)
