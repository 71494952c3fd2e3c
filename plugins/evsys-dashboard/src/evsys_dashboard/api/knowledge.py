"""Endpoint: the findings of a project's experiments, as `evsys context` has them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs

from evsys_dashboard.api.endpoints import Call, Endpoints
from evsys_dashboard.api.service import project_version
from evsys_record import result_tree
from evsys_record.index import Index
from evsys_record.looks import entries_on_record
from evsys_runtime.commands import compact_json
from evsys_runtime.experiment.insight.context import context_of
from evsys_runtime.experiment.insight.results import Context
from evsys_runtime.experiment.insight.text_budget import fit

__all__ = ["endpoints"]

endpoints = Endpoints()


@attrs.frozen(kw_only=True)
class MemoryQuestion:
    """The length of the summary: at most `tokens` of 4 bytes, the most useful first."""

    tokens: int = attrs.field(
        default=20_000, validator=[attrs.validators.ge(300), attrs.validators.le(200_000)]
    )


@attrs.frozen(kw_only=True)
class FinalTest:
    """A benchmark entry with the split `test`, and the experiments scored on its tasks under any name."""

    name: str
    experiments: tuple[str, ...]


@attrs.frozen(kw_only=True)
class MemoryAnswer:
    """`context` is what `evsys context --json` prints. `tests` has the final tests and who looked at them."""

    version: int
    context: Mapping[str, Any]
    tests: tuple[FinalTest, ...]


@endpoints.get("/projects/{project}/memory")
async def memory(call: Call, query: MemoryQuestion) -> MemoryAnswer:
    """Claims that held and their certainty, open questions, failures, costs, and the exposure of final tests."""
    name = call["project"]
    version = await call.service.read(lambda connection: project_version(connection, name))

    def read() -> MemoryAnswer:
        experiments = call.service.records.experiments(name)
        with Index(experiments) as index:
            index.refresh()
            found = fit(context_of(index, _project(experiments)), query.tokens, _document)
            return MemoryAnswer(version=version, context=result_tree(found), tests=_final_tests(index))

    return await asyncio.to_thread(read)


def _document(context: Context) -> str:
    return compact_json(result_tree(context))


def _project(experiments: Path) -> Path:
    return experiments.parent.parent if experiments.parent.name == ".evsys" else experiments.parent


def _final_tests(index: Index) -> tuple[FinalTest, ...]:
    """Each final test once, with every experiment scored on the same tasks."""
    scored = list(entries_on_record(index))
    found = []
    for _, entry in (each for each in scored if each[1].split == "test"):
        same = {owner for owner, other in scored if other.entry_hash == entry.entry_hash}
        found.append(FinalTest(name=entry.name, experiments=tuple(sorted(same))))
    return tuple(found)
