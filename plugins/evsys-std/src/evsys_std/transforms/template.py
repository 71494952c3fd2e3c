"""`template`: a new column from a text with columns in it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, ClassVar, Literal

import attrs

from evsys import option
from evsys_runtime import RowProblem
from evsys_std.transforms.columns import Row
from evsys_std.transforms.template_text import compile_template

__all__ = ["Template"]


class Template:
    """Writes a column from a template such as `Question: {question}`.

    Only names of columns are in braces (`{a.b}` reaches into a nested one); literal braces are `{{` and `}}`.
    """

    name: ClassVar[str] = "template"
    conformance: ClassVar[Mapping[str, Any]] = {
        "params": {"template": "{prompt} {completion}", "column": "both"}
    }
    streaming: ClassVar[bool] = True

    @attrs.frozen(kw_only=True)
    class Config:
        """Parameters of `template`."""

        template: str = option(..., "the text, with {column} where a value goes")
        column: str = option(..., "the column to write; one of that name is replaced", min_len=1)
        missing: Literal["error", "drop", "empty"] = option(
            "error", "a row that lacks a value: fail, leave it out, or write nothing there"
        )

    def __init__(self, **fields: Any) -> None:
        self.config = self.Config(**fields)
        self.dropped: Counter[str] = Counter()
        self._template = compile_template(self.config.template)

    def __call__(self, rows: Iterable[Row]) -> Iterator[Row]:
        self.dropped = Counter()
        column, missing = self.config.column, self.config.missing
        render, if_missing = self._template.render, "" if missing == "empty" else None
        for row in rows:
            try:
                text = render(row, if_missing=if_missing)
            except RowProblem as exc:
                if missing == "error":
                    raise
                self.dropped[exc.kind] += 1
            else:
                yield {**row, column: text}
