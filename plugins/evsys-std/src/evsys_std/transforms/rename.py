"""`identity` and `rename`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, ClassVar, Literal

import attrs

from evsys import option
from evsys_runtime import RowProblem
from evsys_std.transforms.columns import Row, no_column

__all__ = ["Identity", "Rename"]


class Identity:
    """Passes every row on as it is."""

    name: ClassVar[str] = "identity"
    streaming: ClassVar[bool] = True

    @attrs.frozen(kw_only=True)
    class Config:
        """It takes no parameters."""

    def __call__(self, rows: Iterable[Row]) -> Iterator[Row]:
        yield from rows


class Rename:
    """Gives columns other names; their place in the row stays."""

    name: ClassVar[str] = "rename"
    conformance: ClassVar[Mapping[str, Any]] = {"params": {"columns": {"prompt": "question"}}}
    streaming: ClassVar[bool] = True

    @attrs.frozen(kw_only=True)
    class Config:
        """Parameters of `rename`."""

        columns: dict[str, str] = option(..., "old name: new name", min_len=1)
        missing: Literal["error", "ignore"] = option(
            "error", "a row that lacks an old name: fail, or leave the others as they are"
        )
        overwrite: bool = option(False, "let a new name replace an existing column")

    def __init__(self, **fields: Any) -> None:
        self.config = self.Config(**fields)
        if len(set(self.config.columns.values())) < len(self.config.columns):
            raise ValueError("two columns get the same new name")

    def __call__(self, rows: Iterable[Row]) -> Iterator[Row]:
        for row in rows:
            yield self._renamed(row)

    def _renamed(self, row: Row) -> dict[str, Any]:
        new_names = self.config.columns
        if self.config.missing == "error":
            for old in new_names:
                if old not in row:
                    raise no_column(old, row)
        taken = {new for old, new in new_names.items() if old in row}
        lost = [column for column in row if column in taken and column not in new_names]
        if lost and not self.config.overwrite:
            raise RowProblem(
                f"a column {lost[0]!r} is there already",
                f"a column {lost[0]!r} is there already; `overwrite: true` replaces it",
            )
        return {
            new_names.get(column, column): value
            for column, value in row.items()
            if column in new_names or column not in taken
        }
