"""The contract of a data store: the same reference gives the same rows."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar

import pytest

from evsys_conformance.checks.plugin import PluginConformance
from evsys_conformance.declare import check
from evsys_conformance.findings import breach, require, require_equal, short_text
from evsys_conformance.running import run

__all__ = ["DataStoreConformance"]


class DataStoreConformance(PluginConformance):
    """Checks of the kind `data_store`. Override `ref` for rows that it has, `rows` for what they are."""

    kind: ClassVar[str | None] = "data_store"
    words: ClassVar[Mapping[str, str]] = {
        "refs": "references that it can pull",
        "rows": "the rows behind the first of `refs`, regardless of their letters",
        "damaged": "references to data that are there, but torn or half written",
    }

    @pytest.fixture
    def ref(self, facts: Mapping[str, Any]) -> str:
        """A reference that it can pull."""
        refs = facts.get("refs") or pytest.skip(
            "says no reference to pull: conformance = {'refs': [...], 'files': {path: text}}"
        )
        return str(refs[0])

    @pytest.fixture
    def rows(self, facts: Mapping[str, Any]) -> list[dict[str, Any]] | None:
        """The rows behind `ref`; None where they aren't known."""
        known = facts.get("rows")
        return None if known is None else [dict(row) for row in known]

    @pytest.fixture
    def damaged(self, facts: Mapping[str, Any]) -> list[str]:
        """References to existing data, torn or half written."""
        return [str(ref) for ref in facts.get("damaged", ())]

    @check()
    def test_gives_rows(self, plugin: Any, ref: str, home: Path) -> None:
        """Pulled rows are JSON mappings, and there is at least one."""
        rows = run(_pull(plugin, ref))
        require(rows, f"it gives no row of {ref!r}", seen=rows, wanted="the rows of the reference")
        for row in rows:
            require(
                isinstance(row, Mapping),
                f"what it gives of {ref!r} is not a row",
                seen=row,
                wanted="a mapping",
            )
            try:
                json.dumps(dict(row), allow_nan=False)
            except (TypeError, ValueError) as exc:
                breach(f"a row can't be written as JSON: {exc}", seen=row, wanted="values that JSON has")

    @check()
    def test_rows_come_as_they_are(
        self, plugin: Any, ref: str, rows: list[dict[str, Any]] | None, home: Path
    ) -> None:
        """Every row comes, in order, with each letter of any script."""
        if rows is None:
            pytest.skip("says no rows: conformance = {'rows': [...]}")
        found = run(_pull(plugin, ref))
        for row, known in zip(found, rows, strict=False):
            require_equal(row, known, f"a row of {ref!r} isn't as it was stored")
        require_equal(len(found), len(rows), f"the number of rows of {ref!r} is another")

    @check()
    def test_same_reference_gives_the_same_bytes(
        self, plugin: Any, make: Callable[[], Any], ref: str, home: Path
    ) -> None:
        """Pulled again, by this object or another, and after the first rows were changed by their owner, rows are the same."""
        first = run(_pull(plugin, ref))
        before = _bytes(first)
        for row in first:
            if isinstance(row, dict):
                row["evsys_changed"] = True
        wanted = f"the very same rows as before: {short_text(before)}"
        again = _bytes(run(_pull(plugin, ref)))
        require(
            again == before,
            "pulled again, after the first rows were changed by their reader, the rows are others",
            seen=again,
            wanted=wanted,
        )
        other = _bytes(run(_pull(make(), ref)))
        require(other == before, "another object made alike gives other rows", seen=other, wanted=wanted)

    @check()
    def test_pulls_at_once_do_not_disturb_each_other(self, plugin: Any, ref: str, home: Path) -> None:
        """Several pulls at the same time give what one gives."""

        async def together() -> list[list[Any]]:
            return await asyncio.gather(*(_pull(plugin, ref) for _ in range(4)))

        alone = run(_pull(plugin, ref))
        for rows in run(together()):
            require_equal(
                rows, alone, "one of four pulls at the same time gives other rows than a pull alone"
            )

    @check()
    def test_unknown_reference_is_an_error(self, plugin: Any, ref: str, home: Path) -> None:
        """A reference to nothing fails, and isn't an empty dataset. Of a store that is only known to fail this says nothing."""
        _must_fail(plugin, "evsys-there-is-no-such-dataset", "an unknown reference gives rows")

    @check()
    def test_half_written_data_are_an_error(self, plugin: Any, damaged: list[str], home: Path) -> None:
        """Torn or half-written data fail, and aren't a shorter dataset."""
        if not damaged:
            pytest.skip(
                "says no reference to damaged data: conformance = {'damaged': [...], 'files': {path: text}}"
            )
        for ref in damaged:
            _must_fail(plugin, ref, f"{ref!r}, whose data are half written, gives rows")


def _must_fail(store: Any, ref: str, wrong: str) -> None:
    try:
        rows = run(_pull(store, ref))
    except Exception:  # a store may fail in its own words
        return
    breach(wrong, seen=rows, wanted="an exception, such as evsys.errors.StoreError")


async def _pull(store: Any, ref: str) -> list[Any]:
    return list(await store.pull(ref))


def _bytes(rows: list[Any]) -> str:
    return json.dumps(rows, default=repr)
