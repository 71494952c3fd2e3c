"""The contract of a transform: rows in, rows out, and no side effects."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar

import pytest

from evsys.errors import PLUGIN_FAILURES
from evsys_conformance.checks.plugin import PluginConformance
from evsys_conformance.declare import check
from evsys_conformance.findings import Words, breach, require, require_equal
from evsys_conformance.places import describe_error

__all__ = ["TransformConformance"]

_ROWS = [
    {
        "id": f"row-{i}",
        "prompt": f"What is {word}?",
        "completion": f"It is {word}.",
        "text": word,
        "expected": word,
        "number": i,
        "tags": [word, {"deep": [i]}],
    }
    for i, word in enumerate(("one", "dos", "tři", "四", "пять", "one"))
]
_MARK = "evsys_other_column"


class TransformConformance(PluginConformance):
    """Checks of the kind `transform`. Override `rows` for rows with the columns that it needs."""

    kind: ClassVar[str | None] = "transform"
    words: ClassVar[Mapping[str, str]] = {
        "rows": "rows to transform; by default some with `id`, `prompt`, `completion`, `text`, `expected`, `number`, `tags`",
        "adds_rows": "true when it adds rows of its own, which have no other columns",
    }

    @pytest.fixture
    def rows(self, facts: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Rows that it can handle, each with a column that it doesn't know."""
        return [
            {**copy.deepcopy(dict(row)), _MARK: f"mark {i}"} for i, row in enumerate(facts.get("rows", _ROWS))
        ]

    @pytest.fixture
    def works(self, plugin: Any, rows: list[dict[str, Any]]) -> None:
        """Skips what can't be seen of a transform that fails."""
        try:
            list(plugin(iter(copy.deepcopy(rows))))
        except Exception as exc:
            pytest.skip(f"after test_gives_mappings: it fails: {describe_error(exc)}")

    @check()
    def test_rows_are_left_as_they_were(self, plugin: Any, rows: list[dict[str, Any]], works: None) -> None:
        """The rows that it was given are the same afterwards, their nested values included."""
        before = copy.deepcopy(rows)
        _out(plugin, rows)
        for row, was in zip(rows, before, strict=True):
            require(
                row == was,
                "it changed a row that it was given",
                seen=row,
                wanted=f"a new row: {{**row, ...}}; this one was {was}",
            )

    @check()
    def test_same_rows_twice_give_the_same(
        self, plugin: Any, make: Callable[[], Any], rows: list[dict[str, Any]], works: None
    ) -> None:
        """A second call gives what the first gave, and so does another object made alike."""
        first = _copied(plugin, rows)
        require_equal(_copied(plugin, rows), first, "called a second time, it gives other rows")
        require_equal(
            _copied(make(), rows), first, "another object made from the same params gives other rows"
        )

    @check()
    def test_no_rows_are_fine(self, plugin: Any, works: None) -> None:
        """Without rows it gives rows, or none, and doesn't fail."""
        try:
            list(plugin(iter([])))
        except Exception as exc:
            breach(f"without rows it fails: {describe_error(exc)}", wanted="no rows, or rows of its own")

    @check()
    def test_gives_mappings(self, plugin: Any, make: Callable[[], Any], rows: list[dict[str, Any]]) -> None:
        """Rows that it can handle go through it, one by one, and everything that comes out is a row."""
        out = _out(plugin, rows)
        if not out and _given_a_list(make(), rows):
            breach(
                "given rows one by one it gives none, and given a list it gives some",
                seen=out,
                wanted="rows are read once; a transform that has to read them again begins with rows = list(rows)",
            )
        for row in out:
            require(
                isinstance(row, Mapping),
                "what it gives is not a row",
                seen=row,
                wanted="a mapping, such as a dict",
            )

    @check()
    def test_other_columns_are_kept(
        self, plugin: Any, rows: list[dict[str, Any]], facts: Mapping[str, Any], works: None
    ) -> None:
        """A column that it doesn't know comes out as it went in. Rows of its own, which `adds_rows` reports, have none."""
        out = [row for row in _out(plugin, rows) if isinstance(row, Mapping)]
        marks = [row[_MARK] for row in out if _MARK in row]
        known = {row[_MARK] for row in rows}
        for mark in marks:
            require(
                mark in known,
                f"it changed the column {_MARK!r}, which it doesn't know",
                seen=mark,
                wanted=rows[0][_MARK],
            )
        lost = [row for row in out if _MARK not in row]
        if lost and not (marks and facts.get("adds_rows")):
            breach(
                f"a row lost the column {_MARK!r}, which it doesn't know",
                seen=lost[0],
                wanted="all other columns as they were; for rows of its own, conformance = {'adds_rows': True}",
            )


def _out(transform: Any, rows: list[dict[str, Any]]) -> list[Any]:
    """The resulting rows. An exception of the transform is a finding, with the columns of the given rows."""
    try:
        out = transform(iter(rows))  # as a run gives them, one by one
        if not isinstance(out, Iterable):
            breach("what it gives is nothing to iterate over", seen=out, wanted="rows: a list or a generator")
        return list(out)
    except Exception as exc:
        columns = ", ".join(dict.fromkeys(name for row in rows for name in row if name != _MARK))
        breach(
            f"given rows with the columns {columns}, it fails: {describe_error(exc)}",
            seen=rows[0] if rows else Words("no rows"),
            wanted="rows, of rows that come one by one; a transform that needs others says which: conformance = {'rows': [{...}]}, and a subclass of the "
            "suite's by its fixture `rows`",
        )


def _given_a_list(transform: Any, rows: list[dict[str, Any]]) -> bool:
    """Whether it gives anything of rows that can be read more than once."""
    try:
        return any(True for _ in transform(rows))
    except PLUGIN_FAILURES:
        return False


def _copied(transform: Any, rows: list[dict[str, Any]]) -> list[Any]:
    return [copy.deepcopy(row) for row in _out(transform, copy.deepcopy(rows))]
