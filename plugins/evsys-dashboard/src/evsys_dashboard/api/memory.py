"""Endpoint: the knowledge from a project's experiments, for the page."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import attrs

from evsys_dashboard.api.commands import ask_index
from evsys_dashboard.api.endpoints import Call, Endpoints, limit
from evsys_dashboard.api.service import project_version
from evsys_record import result_tree
from evsys_record.files import project_of
from evsys_record.index import Index
from evsys_record.looks import entries_on_record
from evsys_runtime.commands import compact_json
from evsys_runtime.experiment.insight.context import context_of
from evsys_runtime.experiment.insight.text_budget import fit

__all__ = ["endpoints"]

endpoints = Endpoints()


@attrs.frozen(kw_only=True)
class MemoryQuestion:
    """The length of the summary: at most `tokens` of 4 bytes, the most useful first."""

    tokens: int = limit(20_000, least=300, most=200_000)


@attrs.frozen(kw_only=True)
class FinalTest:
    """A benchmark entry with the split `test`, and the experiments scored on its tasks under any name."""

    name: str
    experiments: tuple[str, ...]


@attrs.frozen(kw_only=True)
class MemoryAnswer:
    """`context` is what `evsys context --json` prints. `tests` has the final tests and who looked at them, `test_reads` how often the
    rows of each test set among the benchmarks here were read.
    """

    version: int
    context: Mapping[str, Any]
    tests: tuple[FinalTest, ...]
    test_reads: Mapping[str, int]


@endpoints.get("/projects/{project}/memory")
async def memory(call: Call, query: MemoryQuestion) -> MemoryAnswer:
    """Claims that held and their certainty, open questions, failures, costs, and the exposure of final tests."""
    version = await call.service.read(lambda connection: project_version(connection, call["project"]))

    reads = await asyncio.to_thread(call.service.data.reads_of_tests, call["project"])

    def answer(index: Index) -> MemoryAnswer:
        whole = context_of(index, project_of(index.experiments))
        found = fit(whole, query.tokens, lambda context: compact_json(result_tree(context)))
        return MemoryAnswer(
            version=version, context=result_tree(found), tests=_final_tests(index), test_reads=reads
        )

    return await ask_index(call, answer)


def _final_tests(index: Index) -> tuple[FinalTest, ...]:
    """Each final test once, with every experiment scored on the same tasks."""
    scored = list(entries_on_record(index))
    found = []
    for _, entry in (each for each in scored if each[1].split == "test"):
        same = {owner for owner, other in scored if other.entry_hash == entry.entry_hash}
        found.append(FinalTest(name=entry.name, experiments=tuple(sorted(same))))
    return tuple(found)
