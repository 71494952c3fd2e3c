"""CSV to rows: a header, then one row a record. Every value is text; `map` casts."""

from __future__ import annotations

import codecs
import csv
from collections.abc import Iterable, Iterator
from typing import Any

from evsys_runtime.data.json_rows import BadRow, bad_json

__all__ = ["csv_rows"]

_DELIMITERS = ",;\t|"
_LONGEST_FIELD = 2**31 - 1


def csv_rows(
    lines: Iterable[bytes], delimiter: str | None = None
) -> Iterator[tuple[int, dict[str, Any] | BadRow | None]]:
    """`(physical line, row)` for each record; a bad record comes as `BadRow`, an empty one as None.

    Spreadsheet habits are understood: a byte order mark, a first line `sep=;`, a semicolon or tab between fields,
    trailing records without any value, and line ends inside quotes.

    Args:
        lines: the file's lines, split at line feeds only, with their ends.
        delimiter: what separates fields; None takes what the header shows.

    Raises:
        BadRow: the header itself is unusable.
    """
    csv.field_size_limit(
        max(csv.field_size_limit(), _LONGEST_FIELD)
    )  # the module's default refuses long texts
    source = _Lines(lines)
    header_text = source.header()
    if not header_text:
        return
    if delimiter is None:
        delimiter = source.declared_delimiter or _guess_delimiter(header_text)
    reader = csv.reader(source, delimiter=delimiter, strict=True)
    try:
        header = next(reader, [])
    except (csv.Error, ValueError) as exc:
        raise _bad_csv(exc) from exc
    while header and not header[-1].strip():  # a spreadsheet writes the columns that it only coloured
        header.pop()
    _check_header(header)
    width = len(header)
    while True:
        line = source.number + 1
        try:
            fields = next(reader)
        except StopIteration:
            return
        except (csv.Error, ValueError) as exc:
            yield line, _bad_csv(exc)
            continue
        if len(fields) == width:
            yield line, dict(zip(header, fields, strict=True)) if any(fields) else None
        elif not any(fields):
            yield line, None
        elif len(fields) > width and not any(fields[width:]):
            yield line, dict(zip(header, fields[:width], strict=True))
        else:
            yield (
                line,
                BadRow(
                    "wrong number of fields",
                    f"{len(fields)} fields where the header has {width}; does a value hold {delimiter!r} without quotes?",
                ),
            )


class _Lines:
    """Decoded lines for the csv module, counted; the first one is looked at before it is handed out."""

    def __init__(self, lines: Iterable[bytes]) -> None:
        self._lines = iter(lines)
        self._first: str | None = None
        self.number = 0
        self.declared_delimiter: str | None = None

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        if self._first is not None:
            line, self._first = self._first, None
            return line
        self.number += 1
        try:
            return next(self._lines).decode("utf-8")
        except StopIteration:
            self.number -= 1
            raise

    def header(self) -> str:
        """The header's first line, without byte order mark, after `sep=` and blank lines."""
        while True:
            try:
                raw = next(self._lines)
            except StopIteration:
                return ""
            self.number += 1
            if self.number == 1:
                raw = raw.removeprefix(codecs.BOM_UTF8)
            try:
                text = raw.decode("utf-8")
            except UnicodeDecodeError as exc:
                raise bad_json(exc) from exc
            if text[:4].lower() == "sep=" and len(text.strip()) == 5:
                self.declared_delimiter = text[4]
            elif text.strip():
                self._first = text
                return text


def _guess_delimiter(header: str) -> str:
    """The most frequent separator outside quotes in the header; a comma if there is none."""
    outside = "".join(header.split('"')[::2])
    return max(_DELIMITERS, key=outside.count)


def _check_header(header: list[str]) -> None:
    unnamed = [number for number, name in enumerate(header, start=1) if not name.strip()]
    if unnamed:
        raise BadRow("bad header", f"column {unnamed[0]} of the header has no name")
    twice = sorted({name for name in header if header.count(name) > 1})
    if twice:
        raise BadRow("bad header", f"the header names a column twice: {', '.join(twice)}")


def _bad_csv(exc: Exception) -> BadRow:
    if isinstance(exc, UnicodeDecodeError):
        return bad_json(exc)
    text = str(exc)
    if "unexpected end of data" in text:
        text = "a quote that opens here is never closed"
    elif "new-line character" in text:
        text = "a carriage return alone ends a line (old Mac files); save with LF or CRLF line ends"
    return BadRow("not valid CSV", f"not valid CSV: {text}")
