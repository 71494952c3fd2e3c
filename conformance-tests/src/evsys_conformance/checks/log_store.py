"""The contract of a log store: it stores every record, whole, once and unchanged."""

from __future__ import annotations

import asyncio
import copy
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar

import pytest

from evsys_conformance.checks.plugin import PluginConformance
from evsys_conformance.declare import check
from evsys_conformance.findings import Words, breach, require, require_equal
from evsys_conformance.places import describe_error
from evsys_conformance.running import run

__all__ = ["LogStoreConformance"]

type ReadBack = Callable[[], list[dict[str, Any]]]

_WRITERS, _EACH = 8, 5


class LogStoreConformance(PluginConformance):
    """Checks of the kind `log_store`. Override `read_back` for a store that isn't one file of JSON lines."""

    kind: ClassVar[str | None] = "log_store"
    words: ClassVar[Mapping[str, str]] = {
        "file": "a file of JSON lines in the working directory that holds what was written, one record a line"
    }

    @pytest.fixture
    def read_back(self, facts: Mapping[str, Any], home: Path) -> ReadBack:
        """A function that gives the records which can be seen now, in the order in which they were written."""
        name = facts.get("file") or pytest.skip(
            "says nothing of where its records are: conformance = {'file': 'log.jsonl'}, or the fixture `read_back`"
        )
        return lambda: _lines(home / name)

    @check()
    def test_takes_records_of_all_kinds(self, plugin: Any, home: Path) -> None:
        """A record holds any JSON value, and is left as it was."""
        records = _records()
        before = copy.deepcopy(records)
        run(_write(plugin, records))
        require_equal(records, before, "it changed a record that it was given")

    @check()
    def test_closes_without_a_record(self, plugin: Any, home: Path) -> None:
        """An experiment that ended before anything was written can close it."""
        try:
            run(plugin.close())
        except Exception as exc:
            breach(
                f"closed before a record was written, it fails: {describe_error(exc)}",
                wanted="`close` flushes and releases what there is, and returns",
            )

    @check()
    def test_records_come_back_as_they_were(self, plugin: Any, read_back: ReadBack, home: Path) -> None:
        """After `close` every record is there, in order, with each letter of any script."""
        records = _records()
        run(_write(plugin, records))
        found = read_back()
        for record, written in zip(found, records, strict=False):
            require_equal(record, written, "a record isn't as it was written")
        require_equal(len(found), len(records), "the number of records isn't that of the written ones")

    @check()
    def test_concurrent_writes_do_not_interleave(self, plugin: Any, read_back: ReadBack, home: Path) -> None:
        """Records written at the same time are all there, each of them whole and once."""
        batches = [[_long(writer, i) for i in range(_EACH)] for writer in range(_WRITERS)]

        async def together() -> None:
            async def one(records: list[dict[str, Any]]) -> None:
                for record in records:
                    await plugin.write(record)

            await asyncio.gather(*(one(batch) for batch in batches))
            await plugin.close()

        run(together())
        written = [record for batch in batches for record in batch]
        _same_records(read_back(), written, f"{_WRITERS} writers wrote at the same time")

    @check()
    def test_readers_see_whole_records_that_stay(self, plugin: Any, read_back: ReadBack, home: Path) -> None:
        """A reader during writes sees whole records alone, and what was seen stays."""
        written = [_long(0, i) for i in range(_EACH)]

        async def watched() -> None:
            writing = asyncio.create_task(_write(plugin, written))
            seen = 0
            while not writing.done():
                found = read_back()
                for record in found:
                    require(
                        record in written,
                        "while it was writing, a reader saw what isn't one of the written records",
                        seen=record,
                        wanted="whole records: one write for each, its end of line included",
                    )
                require(
                    len(found) >= seen,
                    "while it was writing, records that a reader had seen are gone",
                    seen=Words(f"{len(found)} records"),
                    wanted=f"{seen}, or more: append, or replace the file atomically",
                )
                seen = len(found)
                await asyncio.sleep(0)
            await writing

        run(watched())

    @check()
    def test_another_object_goes_on(
        self, plugin: Any, make: Callable[[], Any], facts: Mapping[str, Any], read_back: ReadBack, home: Path
    ) -> None:
        """A second object, as of a resumed experiment, adds to what is there."""
        if "file" not in facts:
            pytest.skip("doesn't say that its records are in a file: conformance = {'file': 'log.jsonl'}")
        first, second = [_long(0, i) for i in range(2)], [_long(1, i) for i in range(2)]
        run(_write(plugin, first))
        run(_write(make(), second))
        _same_records(read_back(), [*first, *second], "a second object wrote after the first was closed")


def _records() -> list[dict[str, Any]]:
    whole = {"time": 1.5, "experiment": "e", "run": None, "arm": None, "repeat": None, "attempt": None}
    of_run = {"time": 2.5, "experiment": "e", "run": "a-s0", "arm": "a", "repeat": 0, "attempt": 1}
    return [
        {"event": "experiment_started", **whole, "directory": "records/e", "runs": ["a-s0"]},
        {"event": "metrics", **of_run, "step": 1, "group": "training", "values": {"loss": 0.125}},
        {"event": "checkpoint", **of_run, "step": 1, "path": "records/e/runs/a-s0/checkpoints/1"},
        {
            "event": "noted",
            **of_run,
            "ok": True,
            "text": 'žluťoučký 四十二 🙂\u2028\n\ttab "quoted"',
            "nested": {"list": [1, [2.5, {}]]},
        },
    ]


def _long(writer: int, number: int) -> dict[str, Any]:
    return {"writer": writer, "number": number, "text": f"{writer}" * 20_000}


def _lines(path: Path) -> list[dict[str, Any]]:
    """The records of a file. A line of invalid JSON is returned as a string, so it differs from the written records; a last line
    without its end that is none is still being written, and readers of JSON lines pass over it.
    """
    if not path.exists():
        return []
    *lines, last = path.read_bytes().split(b"\n")
    found: list[Any] = []
    for line in (*lines, last):
        try:
            found += [json.loads(line)] if line else []
        except ValueError:
            found += [] if line is last else [line.decode("utf-8", "replace")]
    return found


def _same_records(found: list[Any], written: list[dict[str, Any]], when: str) -> None:
    for record in found:
        require(
            record in written, f"{when}, and a record is torn", seen=record, wanted="one of those written"
        )
    for record in written:
        count = found.count(record)
        require(
            count == 1,
            f"{when}, and a record is {f'there {count} times' if count else 'missing'}",
            seen={**record, "text": "..."},
            wanted="each record once",
        )


async def _write(store: Any, records: list[dict[str, Any]]) -> None:
    for record in records:
        await store.write(record)
    await store.close()
