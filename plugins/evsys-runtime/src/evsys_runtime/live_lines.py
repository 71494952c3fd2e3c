"""Lines at the bottom of a terminal drawn again in place, one for each thing under way; what stays goes above them."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from contextlib import suppress
from contextvars import ContextVar

from evsys_record.text import visible

__all__ = ["LiveLines", "current_live_lines", "leave_live_lines", "use_live_lines"]


class LiveLines:
    """A table on standard error: a name and what is to say of it in each line.

    Who writes anything else meanwhile uses `above`, so that the lines stay whole.

    Args:
        names: those that may come, in the order of their lines; others come below.
    """

    def __init__(self, names: Sequence[str] = ()) -> None:
        self._places = {name: place for place, name in enumerate(names)}
        self._texts: dict[str, str] = {}
        self._height = 0

    def show(self, name: str, text: str) -> None:
        """Draw the line of `name` again, or a new one."""
        self._texts[name] = visible(text).replace("\n", " ")
        self._draw()

    def remove(self, *names: str) -> None:
        """Take lines away, all of them where none is named."""
        for name in names or tuple(self._texts):
            self._texts.pop(name, None)
        self._draw()

    def above(self, text: str) -> None:
        """Write a line that stays."""
        self._draw(f"{visible(text, styles=True)}\n")

    def end(self) -> None:
        """Leave the lines where they are, so that what is written next comes below; works where no one looks any more."""
        if self._height:
            self._texts.clear()
            self._height = 0
            with suppress(OSError, ValueError):
                self._write("\n")

    def _draw(self, staying: str = "") -> None:
        lines = self._lines()
        up = f"\x1b[{self._height - 1}A" if self._height > 1 else ""
        self._height = len(lines)
        self._write(f"{up}\r\x1b[J{staying}{'\n'.join(lines)}")

    def _write(self, text: str) -> None:
        if sys.stderr is not None:  # a process may have been started without
            sys.stderr.write(text)
            sys.stderr.flush()

    def _lines(self) -> list[str]:
        """As many as the terminal has room for, none longer than it is wide: a line that breaks is two to go up."""
        size = shutil.get_terminal_size()
        width = max(map(len, self._texts), default=0)
        ordered = sorted(self._texts, key=lambda name: self._places.get(name, len(self._places)))
        lines = [f"{name:<{width}}  {self._texts[name]}" for name in ordered]
        room = max(1, size.lines - 1)
        if len(lines) > room:
            lines = [*lines[: room - 1], f"and {len(lines) - room + 1} more"]
        return [line[: size.columns - 1] for line in lines]


_current: ContextVar[LiveLines | None] = ContextVar("evsys_live_lines", default=None)


def current_live_lines() -> LiveLines | None:
    """The table of this context; None where there is none."""
    return _current.get()


def use_live_lines(table: LiveLines | None) -> None:
    """Make a table that of this context, and of the tasks started from it."""
    _current.set(table)


def leave_live_lines() -> None:
    """Have no table in this context any more; what is written next comes below what it shows."""
    table = _current.get()
    if table is not None:
        table.end()
    _current.set(None)
