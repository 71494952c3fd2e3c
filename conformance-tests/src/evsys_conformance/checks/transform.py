"""What a transform keeps: rows in, rows out, and nothing else happens."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import pytest

from evsys_conformance.checks.plugin import PluginConformance
from evsys_conformance.declare import check

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

    @pytest.fixture
    def rows(self, facts: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Rows that it can handle, each with a column that it doesn't know."""
        return [
            {**copy.deepcopy(dict(row)), _MARK: f"mark {i}"} for i, row in enumerate(facts.get("rows", _ROWS))
        ]

    @check()
    def test_rows_are_left_as_they_were(self, plugin: Any, rows: list[dict[str, Any]]) -> None:
        """The rows that it was given are the same afterwards, their nested values included."""
        before = copy.deepcopy(rows)
        for row in plugin(rows):
            assert row is not None
        assert rows == before

    @check()
    def test_same_rows_twice_give_the_same(
        self, plugin: Any, make: Callable[[], Any], rows: list[dict[str, Any]]
    ) -> None:
        """A second call gives what the first gave, and so does another object made alike."""
        first = _out(plugin, rows)
        assert _out(plugin, rows) == first
        assert _out(make(), rows) == first

    @check()
    def test_no_rows_are_fine(self, plugin: Any) -> None:
        """Without rows it gives rows, or none, and doesn't fail."""
        list(plugin([]))

    @check()
    def test_gives_mappings(self, plugin: Any, rows: list[dict[str, Any]]) -> None:
        """Everything that comes out is a row."""
        wrong = [type(row).__name__ for row in plugin(rows) if not isinstance(row, Mapping)]
        assert wrong == []

    @check()
    def test_other_columns_are_kept(
        self, plugin: Any, rows: list[dict[str, Any]], facts: Mapping[str, Any]
    ) -> None:
        """A column that it doesn't know comes out as it went in. Rows of its own, which `adds_rows` tells of, have none."""
        out = [row for row in plugin(rows) if isinstance(row, Mapping)]
        marks = [row[_MARK] for row in out if _MARK in row]
        assert set(marks) <= {row[_MARK] for row in rows}
        assert marks or not out, "the column is lost"
        if not facts.get("adds_rows"):
            assert len(marks) == len(out), "some rows have lost the column"


def _out(transform: Any, rows: list[dict[str, Any]]) -> list[Any]:
    return [copy.deepcopy(row) for row in transform(copy.deepcopy(rows))]
