"""Columns whose words never reach the model: what no transform made a message of."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Set
from typing import Any

import attrs

from evsys.types import HarborTask
from evsys_runtime.data.row_texts import row_texts, texts_in
from evsys_runtime.data.words import fold

__all__ = ["PROMPT_COLUMNS", "ColumnUse", "unused_in_tasks", "unused_warnings"]

PROMPT_COLUMNS = frozenset(
    {"context", "history", "input", "instruction", "prompt", "question", "system", "system_prompt"}
)
"""Columns that belong to what is asked in common datasets. Others of a task may be meant for its verifier or environment."""

_LOOKED_AT = 1_000
"""Rows after which a column that every one of them used is not looked at any more."""


@attrs.define
class ColumnUse:
    """Counts rows by columns that hold words, at least two of them in one text.

    A column is used if one of its texts is in a message, tool or expected answer, apart from case, accents and white space. Columns of
    numbers and of single words such as labels and ids aren't looked at.

    Attributes:
        unused: in how many rows the words of a column reached no message.
        used: columns used in some row.
    """

    unused: Counter[str] = attrs.field(factory=Counter)
    used: set[str] = attrs.field(factory=set)
    _rows: int = 0
    _settled: frozenset[str] = frozenset()

    def add(self, row: Any, trained: Set[str] = frozenset()) -> None:
        """Look at a typed row. Of a task only `PROMPT_COLUMNS` count, and the columns in `trained`."""
        metadata: Mapping[str, Any] = row.metadata
        self._rows += 1
        if self._rows == _LOOKED_AT:
            self._settled = frozenset(self.used - self.unused.keys())
        if metadata.keys() <= self._settled:
            return
        said = ""
        for column, value in metadata.items():
            if column in self._settled:
                continue
            if isinstance(row, HarborTask) and column not in PROMPT_COLUMNS and column not in trained:
                continue
            texts = [text for text in texts_in(value) if len(text.split(None, 2)) > 1]
            if not texts:
                continue
            said = said or _plain("\n".join([*(text for _, text in row_texts(row)), *texts_in(row.tools)]))
            if any(_plain(text) in said for text in texts):
                self.used.add(column)
            else:
                self.unused[column] += 1

    def warnings(self, source: str, rows: int) -> tuple[str, ...]:
        """One warning that names the unused columns of training rows; none if there are none."""
        return unused_warnings(source, self.unused, rows)


def unused_in_tasks(tasks: Iterable[HarborTask], trained: Set[str]) -> dict[str, int]:
    """In how many tasks the words of a column are not asked: of `PROMPT_COLUMNS`, and of those in `trained`, which training rows use."""
    use = ColumnUse()
    for task in tasks:
        use.add(task, trained)
    return dict(use.unused)


def unused_warnings(source: str, unused: Mapping[str, int], rows: int) -> tuple[str, ...]:
    """See `ColumnUse.warnings`."""
    if not unused:
        return ()
    columns = ", ".join(
        f"{column!r} ({count:,} of {rows:,} rows)" for column, count in sorted(unused.items())
    )
    return (f"{source or 'rows'}: columns that reach no message, so the model never sees them: {columns}",)


def _plain(text: str) -> str:
    return " ".join(fold(text).split())
