"""Endpoints: the commands on past experiments, by the same code, over the records that the server holds."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import attrs
from aiohttp import web

from evsys_dashboard.api.endpoints import Call, Endpoints
from evsys_dashboard.api.service import project_version
from evsys_record import Question, ask, moment_of, result_tree
from evsys_record.experiment_names import experiment_called
from evsys_record.index import Index
from evsys_record.show import compact, show_experiment
from evsys_runtime.commands import compact_json
from evsys_runtime.experiment.insight.next_steps import next_steps
from evsys_runtime.experiment.insight.why import explain

__all__ = ["endpoints"]

endpoints = Endpoints()


def _limit(default: int) -> Any:
    return attrs.field(default=default, validator=[attrs.validators.ge(1), attrs.validators.le(10_000)])


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
    limit: int = _limit(50)
    reverse: bool = False


@attrs.frozen(kw_only=True)
class ExperimentQuestion:
    """An experiment, named as for the command, and an arm or a run of it."""

    experiment: str = "last"
    part: str | None = None


@attrs.frozen(kw_only=True)
class NextQuestion:
    """The most suggestions."""

    limit: int = _limit(10)


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
    name = call["project"]
    await call.service.read(lambda connection: project_version(connection, name))

    def read() -> str:
        experiments = call.service.records.experiments(name)
        with Index(experiments) as index:
            index.refresh()
            tree = result_tree(ask_index(index))
        root = experiments.parent.parent if experiments.parent.name == ".evsys" else experiments
        return compact_json(_relative(tree, f"{root}/"))

    text = await asyncio.to_thread(read)
    return web.Response(text=text, content_type="application/json", headers={"Cache-Control": "no-store"})


def _relative(tree: Any, root: str) -> Any:
    if isinstance(tree, str):
        return tree.replace(root, "")
    if isinstance(tree, dict):
        return {key: _relative(value, root) for key, value in tree.items()}
    return [_relative(value, root) for value in tree] if isinstance(tree, list) else tree
