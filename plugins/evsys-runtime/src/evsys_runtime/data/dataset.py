"""`MaterializedDataset`: the run's rows, read once, checked once, typed on access, in memory or not."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import attrs

from evsys.errors import DataError, StoreError
from evsys_runtime.data.column_use import ColumnUse
from evsys_runtime.data.json_rows import decode_row, encode_row
from evsys_runtime.data.parse import ParseReport, Shape, parse_row, parse_rows
from evsys_runtime.data.readers import OnBadRow
from evsys_runtime.data.spool import MEMORY_LIMIT, LineStore

__all__ = ["MaterializedDataset"]


@attrs.frozen(kw_only=True, eq=False)
class MaterializedDataset:
    """Typed rows by number: `ChatMessagesRow`, `PromptExample` or `HarborTask`.

    Rows are kept as the JSON lines that the last transform gave, and become typed when they are asked for, which
    costs some microseconds. `fingerprint` is the SHA-256 of these lines: `sha256sum` of the file that `save`
    writes.

    Attributes:
        shape: which type the rows have.
        dropped: how many rows were left out, by reason.
        not_read: how many rows a limit left unread; None if they weren't counted.
        lineage: the origin of the rows: the source, then each transform.
        warnings: for the result.
    """

    shape: Shape
    dropped: Mapping[str, int] = attrs.field(factory=dict)
    not_read: int | None = 0
    lineage: tuple[Mapping[str, Any], ...] = ()
    warnings: tuple[str, ...] = ()
    _lines: LineStore

    @classmethod
    def from_rows(
        cls,
        rows: Iterable[Mapping[str, Any]],
        shape: Shape,
        *,
        spool_dir: Path | None = None,
        on_bad_row: OnBadRow = "error",
        place: Callable[[], str | None] = lambda: None,
        report: ParseReport | None = None,
        columns: ColumnUse | None = None,
        memory_limit: int = MEMORY_LIMIT,
        **facts: Any,
    ) -> MaterializedDataset:
        """Check and keep all rows.

        Args:
            rows: mappings, read once.
            shape: `chat`, `pair`, `prompt` or `task`.
            spool_dir: where the file of a big dataset goes.
            on_bad_row: what to do with a row that lacks what the shape needs.
            place: where the current row came from, for messages.
            report: filled while parsing.
            columns: counts the columns that reach no message.
            memory_limit: bytes of rows that stay in memory.
            facts: `dropped`, `lineage` and `warnings`, where they are known already.

        Raises:
            DataError: rows can't be typed or can't be written as JSON.
            StoreError: no space for the rows.
        """
        store = LineStore(spool_dir, memory_limit=memory_limit)
        current: list[Mapping[str, Any]] = []
        with ExitStack() as undo:
            undo.callback(store.close)
            kept = parse_rows(
                _remember(rows, current), shape, on_bad_row=on_bad_row, report=report, place=place
            )
            for index, typed in enumerate(kept):
                if columns is not None:
                    columns.add(typed)
                try:
                    line = encode_row(current[0], what=f"row {index}")
                except DataError as exc:
                    where = f"{found}: " if (found := place()) else ""
                    raise DataError(where + exc.message, hint=exc.hint) from exc
                store.append(line)
            store.seal()
            undo.pop_all()
        return cls(shape=shape, lines=store, **facts)

    def __len__(self) -> int:
        return len(self._lines)

    def __getitem__(self, index: int, /) -> Any:
        line = self._lines[index]
        return parse_row(decode_row(line.rstrip(b"\n")), self.shape, index % len(self._lines))

    def __iter__(self) -> Iterator[Any]:
        for index, line in enumerate(self._lines):
            yield parse_row(decode_row(line.rstrip(b"\n")), self.shape, index)

    @property
    def fingerprint(self) -> str:
        """`sha256:...` of the rows' content, in their order."""
        return self._lines.fingerprint

    @property
    def in_memory(self) -> bool:
        """True when the rows needed no file."""
        return self._lines.path is None

    def rows(self) -> Iterator[dict[str, Any]]:
        """The rows as the last transform gave them."""
        for line in self._lines:
            yield decode_row(line.rstrip(b"\n"))

    def lines(self) -> Iterator[bytes]:
        """The rows as JSON lines, each with its line feed."""
        return iter(self._lines)

    def save(self, path: Path) -> None:
        """Write all rows as JSON Lines, whole or not at all; a spooled dataset is linked where that is possible.

        Raises:
            StoreError: it can't be written.
        """
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(prefix=f".{path.name}.", dir=path.parent) as folder:
                part = Path(folder) / "rows"
                if self._lines.path is None:
                    with part.open("wb") as stream:
                        stream.writelines(self._lines)
                else:
                    _link_or_copy(self._lines.path, part)
                part.replace(path)
        except OSError as exc:
            raise StoreError(f"can't write rows to {path}: {exc.strerror or exc}") from exc

    def close(self) -> None:
        """Delete the spooled file, if there is one; the dataset can't be read afterwards."""
        self._lines.close()


def _remember(
    rows: Iterable[Mapping[str, Any]], current: list[Mapping[str, Any]]
) -> Iterator[Mapping[str, Any]]:
    """Hand rows on and keep the last one: typing checks it, but the row itself is what is stored."""
    for row in rows:
        current[:] = (row,)
        yield row


def _link_or_copy(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except OSError:  # another file system, or one without links
        shutil.copyfile(source, target)
