"""Text for people: on terminals that may be narrow, and in pipes whose reader may have gone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress

__all__ = ["folded", "for_terminal", "on_terminal", "table_lines", "table_width", "telling", "terminal_width"]

WIDTH = 100
"""Columns of output that isn't written to a terminal."""

_GAP = "  "
_SHORTEST_LABEL = 12


@contextmanager
def telling() -> Iterator[None]:
    """For messages about past events: a closed pipe changes neither the events nor the exit code."""
    with suppress(OSError):
        yield


def terminal_width() -> int:
    """Columns of the terminal."""
    import shutil

    return shutil.get_terminal_size(fallback=(WIDTH, 24)).columns


def on_terminal() -> bool:
    """Whether results go to a terminal; a process may have been started without standard output."""
    import sys

    return sys.stdout is not None and sys.stdout.isatty()


def for_terminal(lines: Iterable[str]) -> str:
    """Lines as they are printed: folded on a terminal, and whole in files and pipes, so that they can be searched."""
    if not on_terminal():
        return "\n".join(lines)
    return "\n".join(folded(lines, terminal_width()))


def folded(lines: Iterable[str], width: int) -> Iterator[str]:
    """Lines of at most `width` columns, broken between words; what follows a break is indented. A long word stays whole."""
    from textwrap import wrap

    for line in (part for text in lines for part in text.split("\n")):
        if len(line) <= width:
            yield line
            continue
        indent = " " * (len(line) - len(line.lstrip())) + _GAP
        yield from wrap(line, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def table_lines(
    title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], *, width: int
) -> list[str]:
    """A table for a terminal, one line per row; if that is too wide, the other columns go below the first.

    Args:
        title: the heading of the first column.
        columns: names of the other columns.
        rows: texts, one more than there are columns.
        width: of the terminal.
    """
    widths = _widths(columns, rows)
    room = width - sum(widths) - len(_GAP) * len(widths)
    labels = _shortened([row[0] for row in rows], room - len(_GAP))
    if labels is None or len(title) > room:
        return [title, *(line for row in rows for line in _stacked(columns, row, width))]
    shown = [(title, *columns), *((_GAP + label, *row[1:]) for label, row in zip(labels, rows, strict=True))]
    longest = max(len(row[0]) for row in shown)
    return [
        _GAP.join(
            [row[0].ljust(longest), *(c.ljust(w) for c, w in zip(row[1:], widths, strict=True))]
        ).rstrip()
        for row in shown
    ]


def table_width(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> int:
    """Characters that each line of such a table has where nothing of it is cut."""
    labels = max(len(title), *(len(_GAP) + len(row[0]) for row in rows))
    return labels + sum(len(_GAP) + width for width in _widths(columns, rows))


def _widths(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> list[int]:
    return [max(len(name), *(len(row[i]) for row in rows)) for i, name in enumerate(columns, start=1)]


def _shortened(labels: Sequence[str], length: int) -> list[str] | None:
    """Labels of at most `length`, cut in the middle; None if too little is left to distinguish them."""
    if all(len(label) <= length for label in labels):
        return list(labels)
    if length < _SHORTEST_LABEL:
        return None
    head, tail = (length - 1) // 2, (length - 2) // 2
    cut = [
        label if len(label) <= length else f"{label[:head]}..{label[len(label) - tail :]}" for label in labels
    ]
    return cut if len(set(cut)) == len(set(labels)) else None


def _stacked(columns: Sequence[str], row: Sequence[str], width: int) -> list[str]:
    """A row as a label with its columns below, as many side by side as fit."""
    lines = [_GAP + row[0]]
    for said in (f"{name} {text}" for name, text in zip(columns, row[1:], strict=True) if text):
        if len(lines) > 1 and len(lines[-1]) + len(_GAP) + len(said) <= width:
            lines[-1] += _GAP + said
        else:
            lines.append(_GAP * 2 + said)
    return lines
