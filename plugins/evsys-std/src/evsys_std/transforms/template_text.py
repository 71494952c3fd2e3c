"""Templates such as `Question: {question}`: columns by name and nothing else, so a template can't run code."""

from __future__ import annotations

from collections.abc import Callable
from string import Formatter
from typing import Any

import attrs

from evsys_std.transforms.columns import MISSING, Row, as_text, getter, no_column

__all__ = ["CompiledTemplate", "compile_template", "template_or_column"]


@attrs.frozen(kw_only=True)
class CompiledTemplate:
    """A template cut into texts and columns. `columns` are the names it needs."""

    columns: tuple[str, ...]
    _parts: tuple[tuple[str, Callable[[Row], Any] | None], ...]

    def render(self, row: Row, *, if_missing: str | None = None) -> str:
        """The template with the row's values; None counts as missing.

        Args:
            row: where values come from.
            if_missing: what represents a missing value; None refuses it.

        Raises:
            RowProblem: the row lacks a column.
        """
        pieces = []
        for text, get in self._parts:
            if get is None:
                pieces.append(text)
                continue
            value = get(row)
            if value is not MISSING and value is not None:
                pieces.append(as_text(value))
            elif if_missing is None:
                raise no_column(text, row)
            else:
                pieces.append(if_missing)
        return "".join(pieces)


def template_or_column(what: str, template: str | None, column: str | None) -> CompiledTemplate | None:
    """The template of a value that comes from `<what>_template` or `<what>_column`; None without a template.

    Raises:
        ValueError: both are given, or the template is wrong.
    """
    if template is not None and column is not None:
        raise ValueError(f"give either `{what}_column` or `{what}_template`")
    return None if template is None else compile_template(template)


def compile_template(template: str) -> CompiledTemplate:
    """Understand a template. `{column}` is a value, `{{` and `}}` are braces.

    Raises:
        ValueError: braces that don't match, or more inside them than a column's name.
    """
    parts: list[tuple[str, Callable[[Row], Any] | None]] = []
    columns: list[str] = []
    try:
        for text, column, spec, conversion in Formatter().parse(template):
            if text:
                parts.append((text, None))
            if column is None:
                continue
            if spec or conversion or "[" in column or not column.strip():
                raise ValueError(f"{{{column}}} must hold the name of a column and nothing else")
            columns.append(column)
            parts.append((column, getter(column)))
    except ValueError as exc:
        raise ValueError(f"template {template!r}: {exc}; literal braces are written {{{{ and }}}}") from exc
    return CompiledTemplate(columns=tuple(dict.fromkeys(columns)), parts=tuple(parts))
