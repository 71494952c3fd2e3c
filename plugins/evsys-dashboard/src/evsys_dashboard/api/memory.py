"""Endpoints: the commands on past experiments, by the same code, over the records that the server holds."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

import attrs
from aiohttp import web

from evsys_dashboard.api.endpoints import Call, Endpoints, limit
from evsys_dashboard.api.service import project_version
from evsys_record import Question, ask, moment_of, result_tree
from evsys_record.experiment_names import experiment_called
from evsys_record.files import project_of
from evsys_record.index import Index
from evsys_record.looks import entries_on_record
from evsys_record.show import compact, show_experiment
from evsys_runtime.commands import compact_json
from evsys_runtime.experiment.insight.context import context_of
from evsys_runtime.experiment.insight.next_steps import next_steps
from evsys_runtime.experiment.insight.text_budget import fit
from evsys_runtime.experiment.insight.why import explain

__all__ = ["endpoints"]

endpoints = Endpoints()


@attrs.frozen(kw_only=True)
class HistoryQuestion:
    """The options of `evsys history`."""

    status: tuple[str, ...] = ()
    outcome: tuple[str, ...] = ()
    tag: tuple[str, ...] = ()
    algorithm: tuple[str, ...] = ()
    model: tuple[str, ...] = ()
    since: str | None = None
    text: str | None = None
    parent: str | None = None
    runs: bool = False
    limit: int = limit(50, most=10_000)
    reverse: bool = False


@attrs.frozen(kw_only=True)
class ExperimentQuestion:
    """An experiment, named as for the command, and an arm or a run of it."""

    experiment: str = "last"
    part: str | None = None


@attrs.frozen(kw_only=True)
class NextQuestion:
    """The most suggestions."""

    limit: int = limit(10, most=10_000)


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

    return await _ask_index(call, answer)


@endpoints.get("/projects/{project}/memory/history")
async def history(call: Call, query: HistoryQuestion) -> web.StreamResponse:
    """Past experiments or runs, as `evsys history --json` prints them."""

    def answer(index: Index) -> Any:
        question = Question(
            statuses=query.status,
            outcomes=query.outcome,
            tags=query.tag,
            algorithms=query.algorithm,
            models=query.model,
            since=None if query.since is None else moment_of(query.since),
            words=query.text,
            parent=None if query.parent is None else experiment_called(query.parent, index),
            runs=query.runs,
            limit=query.limit,
            reverse=query.reverse,
        )
        return ask(index, question)

    return await _answer(call, answer)


@endpoints.get("/projects/{project}/memory/show")
async def show(call: Call, query: ExperimentQuestion) -> web.StreamResponse:
    """An experiment, or a run of it, as `evsys show --json` prints it."""

    def answer(index: Index) -> Any:
        found = show_experiment(index, experiment_called(query.experiment, index), query.part)
        return compact(found) if query.part is None else found

    return await _answer(call, answer)


@endpoints.get("/projects/{project}/memory/why")
async def why(call: Call, query: ExperimentQuestion) -> web.StreamResponse:
    """Why an experiment, or an arm of it, ended as it did, as `evsys why --json` prints it."""
    return await _answer(
        call, lambda index: explain(index, experiment_called(query.experiment, index), query.part)
    )


@endpoints.get("/projects/{project}/memory/next")
async def suggestions(call: Call, query: NextQuestion) -> web.StreamResponse:
    """The cheapest next experiments, as `evsys next --json` prints them."""
    return await _answer(call, lambda index: next_steps(index, limit=query.limit))


async def _answer(call: Call, ask_index: Callable[[Index], Any]) -> web.StreamResponse:
    """The document of a command; a path of this server is one from the project's folder."""

    def document(index: Index) -> str:
        experiments = index.experiments
        root = experiments.parent.parent if experiments.parent.name == ".evsys" else experiments
        return compact_json(_relative(result_tree(ask_index(index)), f"{root}/"))

    await call.service.read(lambda connection: project_version(connection, call["project"]))
    text = await _ask_index(call, document)
    return web.Response(text=text, content_type="application/json", headers={"Cache-Control": "no-store"})


async def _ask_index[T](call: Call, question: Callable[[Index], T]) -> T:
    """The answer of a function of the project's index, brought up to date, in a thread."""

    def read() -> T:
        with Index(call.service.records.experiments(call["project"])) as index:
            index.refresh()
            return question(index)

    return await asyncio.to_thread(read)


def _final_tests(index: Index) -> tuple[FinalTest, ...]:
    """Each final test once, with every experiment scored on the same tasks."""
    scored = list(entries_on_record(index))
    found = []
    for _, entry in (each for each in scored if each[1].split == "test"):
        same = {owner for owner, other in scored if other.entry_hash == entry.entry_hash}
        found.append(FinalTest(name=entry.name, experiments=tuple(sorted(same))))
    return tuple(found)


def _relative(tree: Any, root: str) -> Any:
    if isinstance(tree, str):
        return tree.replace(root, "")
    if isinstance(tree, dict):
        return {key: _relative(value, root) for key, value in tree.items()}
    return [_relative(value, root) for value in tree] if isinstance(tree, list) else tree
