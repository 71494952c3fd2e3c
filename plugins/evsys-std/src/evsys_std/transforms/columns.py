"""Reading columns: plain names, paths into nested columns, and values as text."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from evsys_runtime import RowProblem
from evsys_runtime.data.json_rows import canonical

__all__ = [
    "MISSING",
    "Row",
    "as_text",
    "content_of",
    "getter",
    "history_messages",
    "no_column",
    "system_messages",
    "with_input",
]

type Row = Mapping[str, Any]

MISSING: Any = object()
"""Represents a column that a row doesn't have; None is a value."""


def getter(column: str) -> Callable[[Row], Any]:
    """A function that reads `column`, or gives `MISSING`. A dot reaches into a nested column, unless a column has
    that very name.
    """
    if "." not in column:
        return lambda row: row.get(column, MISSING)
    parts = column.split(".")

    def nested(row: Row) -> Any:
        found: Any = row.get(column, MISSING)
        if found is not MISSING:
            return found
        found = row
        for part in parts:
            found = found.get(part, MISSING) if isinstance(found, Mapping) else MISSING
        return found

    return nested


def as_text(value: Any) -> str:
    """A column's value inside a text: text as it is, anything else as JSON writes it."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def content_of(value: Any) -> bytes:
    """Bytes equal for equal values, regardless of the order of columns inside; a text can't equal anything else.

    Raises:
        DataError: there is something inside that JSON can't hold.
    """
    return b"t" + value.encode("utf-8") if type(value) is str else b"j" + canonical({"": value})


def no_column(column: str, row: Row) -> RowProblem:
    """The problem of a row that lacks a column, or has null in it."""
    if row.get(column, MISSING) is None:
        return RowProblem(f"column {column!r} is null")
    return RowProblem(
        f"no column {column!r}", f"no column {column!r}; the row has {', '.join(map(str, row))}"
    )


def with_input(instruction: str, row: Row) -> str:
    """An instruction with what common datasets have next to it, `input` or `context`, below it."""
    return "\n\n".join((instruction, *(as_text(row[name]) for name in ("input", "context") if row.get(name))))


def system_messages(row: Row) -> list[Any]:
    """The system message of a row that has one in the column where datasets usually have it; none or one."""
    text = next((row[name] for name in ("system", "system_prompt") if row.get(name)), None)
    return [{"role": "system", "content": text}] if isinstance(text, str) and text.strip() else []


def history_messages(row: Row) -> list[Any]:
    """Earlier exchanges of a row: `history`, pairs of what the user and the assistant said.

    Raises:
        RowProblem: it holds anything else.
    """
    speakers = ("user", "assistant")
    pairs = row.get("history") or ()
    if not isinstance(pairs, list | tuple) or not all(
        isinstance(pair, list | tuple) and len(pair) == len(speakers) for pair in pairs
    ):
        raise RowProblem("column 'history' doesn't hold pairs of a user's and an assistant's message")
    return [
        {"role": role, "content": as_text(text)}
        for pair in pairs
        for role, text in zip(speakers, pair, strict=True)
    ]
