"""What a data store keeps: the same reference gives the same rows."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar

import pytest

from evsys_conformance.checks.plugin import PluginConformance
from evsys_conformance.declare import check
from evsys_conformance.running import run

__all__ = ["DataStoreConformance"]


class DataStoreConformance(PluginConformance):
    """Checks of the kind `data_store`. Override `ref` for rows that it has, and `rows` for what they are."""

    kind: ClassVar[str | None] = "data_store"

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

    @check()
    def test_gives_rows(self, plugin: Any, ref: str, home: Path) -> None:
        """What it pulls are mappings, at least one, as JSON can hold them."""
        rows = run(_pull(plugin, ref))
        assert rows
        assert [type(row).__name__ for row in rows if not isinstance(row, Mapping)] == []
        json.dumps(rows, allow_nan=False)

    @check()
    def test_rows_come_as_they_are(
        self, plugin: Any, ref: str, rows: list[dict[str, Any]] | None, home: Path
    ) -> None:
        """Every row comes, in order, with each letter of whatever script."""
        if rows is None:
            pytest.skip("says no rows: conformance = {'rows': [...]}")
        assert run(_pull(plugin, ref)) == rows

    @check()
    def test_same_reference_gives_the_same_bytes(
        self, plugin: Any, make: Callable[[], Any], ref: str, home: Path
    ) -> None:
        """Pulled again, by this object or another, and after somebody changed what he pulled, the rows are the same."""
        first = run(_pull(plugin, ref))
        before = json.dumps(first)
        for row in first:
            if isinstance(row, dict):
                row["evsys_changed"] = True
        assert json.dumps(run(_pull(plugin, ref))) == before
        assert json.dumps(run(_pull(make(), ref))) == before

    @check()
    def test_pulls_at_once_do_not_disturb_each_other(self, plugin: Any, ref: str, home: Path) -> None:
        """Several pulls at the same time give what one gives."""

        async def together() -> list[list[Any]]:
            return await asyncio.gather(*(_pull(plugin, ref) for _ in range(4)))

        alone = run(_pull(plugin, ref))
        assert run(together()) == [alone] * 4

    @check()
    def test_unknown_reference_is_an_error(self, plugin: Any, home: Path) -> None:
        """A reference to nothing fails, and isn't an empty dataset."""
        with pytest.raises(Exception):  # noqa: B017 - a store may fail in its own words
            run(_pull(plugin, "evsys-there-is-no-such-dataset"))


async def _pull(store: Any, ref: str) -> list[Any]:
    return list(await store.pull(ref))
