"""Files to rows: JSON Lines, JSON and CSV, streamed in constant memory, every problem with its physical line.

Lines end at line feeds only: U+2028, U+2029 and U+0085 stay inside their row. Text is UTF-8, with or without a byte
order mark. Blank lines are passed over and counted.
"""

from __future__ import annotations

import codecs
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, Literal

import attrs

from evsys.errors import DataError
from evsys_runtime.data.csv_rows import csv_rows
from evsys_runtime.data.duplicate_keys import refuse_duplicate_keys
from evsys_runtime.data.json_array import json_values
from evsys_runtime.data.json_rows import BadRow, decode_row, not_an_object

__all__ = ["FORMATS", "OnBadRow", "ReadReport", "format_of", "read_rows"]

OnBadRow = Literal["error", "skip"]
_BUFFER = 1 << 18
_SKIP_HINT = "correct it, or set `on_bad_row: skip` to leave such rows out and count them"


@attrs.define(kw_only=True)
class ReadReport:
    """The report of reading, kept up to date row by row.

    `line` is the physical line, counted from 1, at which the row handed out last begins. `skipped` counts
    rows by the kind of their problem, and `problems` has the first `most_problems` of them: line, kind, message.
    """

    source: str = ""
    line: int | None = None
    rows: int = 0
    blank: int = 0
    skipped: Counter[str] = attrs.field(factory=Counter)
    problems: list[tuple[int, str, str]] = attrs.field(factory=list)
    most_problems: int = 10

    def place(self) -> str:
        """`file:line` of the row handed out last."""
        return f"{self.source}:{self.line}" if self.line is not None else self.source


def read_rows(
    path: str | Path,
    *,
    format: str | None = None,
    on_bad_row: OnBadRow = "error",
    report: ReadReport | None = None,
    delimiter: str | None = None,
) -> Iterator[dict[str, Any]]:
    """Stream the rows of one file.

    Args:
        path: the file.
        format: `jsonl`, `json` or `csv`; None goes by the file's suffix.
        on_bad_row: `error` ends at the first row that can't be read, `skip` leaves it out and counts it.
        report: filled while reading.
        delimiter: for CSV, what separates fields; None goes by the header.

    Raises:
        DataError: the file is missing, empty or of unknown format, or a row can't be read; names file and line.
    """
    path = Path(path)
    report = report if report is not None else ReadReport()
    report.source = report.source or str(path)
    name = format or format_of(path)
    if name not in _READERS:
        raise DataError(f"no format {name!r}", source=str(path), hint=f"known are {', '.join(_READERS)}")
    read = _READERS[name]
    if read is _read_csv and (delimiter is None and path.suffix.lower() == ".tsv"):
        delimiter = "\t"
    return _read_checked(path, read, report, on_bad_row, delimiter)


def format_of(path: Path) -> str:
    """The format that a file's suffix names.

    Raises:
        DataError: no known suffix.
    """
    found = FORMATS.get(path.suffix.lower())
    if found is None:
        raise DataError(
            f"no format is known for the suffix {path.suffix!r}", source=str(path), hint=suffix_hint(path)
        )
    return found


def suffix_hint(path: Path) -> str:
    """The remedy for a file whose suffix names no format."""
    unpack = _UNPACK.get(path.suffix.lower())
    if unpack is not None:
        return f"unpack it first, with `{unpack} {path.name}`, and name the unpacked file"
    return f"known are {', '.join(sorted(FORMATS))}; or name the format with 'source_kind'"


def _read_checked(
    path: Path, read: _Reader, report: ReadReport, on_bad_row: OnBadRow, delimiter: str | None
) -> Iterator[dict[str, Any]]:
    if not path.is_file():
        raise missing_file(path)
    try:
        with path.open("rb", buffering=_BUFFER) as stream:
            head = stream.read(4)
            if head == codecs.BOM_UTF8:
                raise DataError("is empty but for a byte order mark", source=report.source)
            stream.seek(0)
            _check_head(head, report.source)
            yield from read(stream, report, on_bad_row, delimiter)
    except OSError as exc:
        raise DataError(f"can't be read: {exc.strerror or exc}", source=report.source) from exc
    if not report.rows:
        _nothing_read(report, bool(head))


_UNPACK = {".gz": "gunzip -k", ".bz2": "bunzip2 -k", ".xz": "unxz -k", ".zst": "unzstd", ".zip": "unzip"}


def _check_head(head: bytes, source: str) -> None:
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise DataError(
            "is UTF-16", source=source, hint="save it as UTF-8 (a spreadsheet calls this `CSV UTF-8`)"
        )
    if head.startswith(b"\x1f\x8b"):
        raise DataError("is compressed with gzip", source=source, hint="unpack it first")
    if head.startswith(b"PK\x03\x04"):
        raise DataError(
            "is a zip archive or a spreadsheet", source=source, hint="export the rows as CSV or JSON Lines"
        )


def _nothing_read(report: ReadReport, has_bytes: bool) -> None:
    if report.skipped:
        counts = ", ".join(f"{kind}: {count}" for kind, count in report.skipped.most_common())
        line, _, problem = report.problems[0]
        raise DataError(
            f"no row can be read ({counts}); the first: {problem}", source=report.source, line=line
        )
    raise DataError("holds no rows" if has_bytes else "is empty", source=report.source)


def missing_file(path: Path) -> DataError:
    """The error for a path that is not a file, with what lies nearby."""
    if path.is_dir():
        found = sorted(entry.name for entry in path.iterdir() if entry.suffix.lower() in FORMATS)
        hint = f"name one of its files: {', '.join(found[:8])}" if found else "name a file"
        return DataError("is a folder, not a file of rows", source=str(path), hint=hint)
    near = (
        sorted(entry.name for entry in path.parent.iterdir() if entry.is_file())
        if path.parent.is_dir()
        else []
    )
    similar = [name for name in near if Path(name).stem == path.stem or Path(name).suffix == path.suffix]
    hint = f"the folder has {', '.join(similar[:8])}" if similar else "paths are relative to the project root"
    return DataError("no such file", source=str(path), hint=hint)


def _read_jsonl(
    stream: BinaryIO, report: ReadReport, on_bad_row: OnBadRow, _delimiter: str | None
) -> Iterator[dict[str, Any]]:
    number = 0
    for raw in stream:
        number += 1
        line = raw.strip()
        if not line:
            report.blank += 1
            continue
        try:
            row = decode_row(line)
            refuse_duplicate_keys(line, row)
        except BadRow as exc:
            _bad_row(report, number, exc, on_bad_row, _array_hint(number, line))
            continue
        report.line = number
        report.rows += 1
        yield row


def _array_hint(number: int, line: bytes) -> str | None:
    if number == 1 and line.startswith(b"[") and line != b"[]":
        return "a file that holds one array of rows is `.json`, or `source_kind: json`"
    return None


def _read_json(
    stream: BinaryIO, report: ReadReport, on_bad_row: OnBadRow, _delimiter: str | None
) -> Iterator[dict[str, Any]]:
    try:
        for line, value in json_values(stream):
            if type(value) is dict:
                report.line = line
                report.rows += 1
                yield value
            else:
                problem = value if isinstance(value, BadRow) else not_an_object(value)
                _bad_row(report, line, problem, on_bad_row)
    except BadRow as exc:
        raise DataError(str(exc), source=report.source, line=exc.line) from exc


def _read_csv(
    stream: BinaryIO, report: ReadReport, on_bad_row: OnBadRow, delimiter: str | None
) -> Iterator[dict[str, Any]]:
    try:
        for line, row in csv_rows(stream, delimiter):
            if row is None:
                report.blank += 1
            elif isinstance(row, BadRow):
                _bad_row(report, line, row, on_bad_row)
            else:
                report.line = line
                report.rows += 1
                yield row
    except BadRow as exc:
        raise DataError(str(exc), source=report.source, line=1) from exc


def _bad_row(
    report: ReadReport, line: int, problem: BadRow, on_bad_row: OnBadRow, hint: str | None = None
) -> None:
    if on_bad_row == "error":
        raise DataError(str(problem), source=report.source, line=line, hint=hint or _SKIP_HINT) from problem
    report.skipped[problem.kind] += 1
    if len(report.problems) < report.most_problems:
        report.problems.append((line, problem.kind, str(problem)))


type _Reader = Callable[[BinaryIO, ReadReport, OnBadRow, str | None], Iterator[dict[str, Any]]]

_READERS: dict[str, _Reader] = {"jsonl": _read_jsonl, "json": _read_json, "csv": _read_csv}

FORMATS = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "json",
    ".csv": "csv",
    ".tsv": "csv",
}
"""Which format a suffix represents."""
