"""Endpoints: the commands on past experiments, by the same code, over the records that the server holds.

Of a project they are about its experiments, of the project `-` about those of all projects that the key may read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from pathlib import PurePosixPath
from typing import Any, Literal

import attrs
from aiohttp import web

from evsys import current_registry
from evsys.errors import ConfigError, EvsysError
from evsys_dashboard.api.endpoints import EVERY, Call, Endpoints, limit
from evsys_dashboard.api.errors import RefusedError
from evsys_dashboard.api.service import project_version, read_projects
from evsys_record import Question, ask, moment_of, result_tree
from evsys_record.evaluations import with_evaluations
from evsys_record.experiment_names import experiment_called
from evsys_record.files import open_to_read, project_of, storing
from evsys_record.history import Sort
from evsys_record.index import Index
from evsys_record.past import RecordFile
from evsys_record.show import compact, show_experiment
from evsys_runtime.central import RecordListing
from evsys_runtime.commands import compact_json
from evsys_runtime.experiment.estimate.compare import Subject
from evsys_runtime.experiment.estimate.compare import compare as compared
from evsys_runtime.experiment.insight.context import context_of
from evsys_runtime.experiment.insight.markdown import context_markdown
from evsys_runtime.experiment.insight.next_steps import next_steps
from evsys_runtime.experiment.insight.similar_configs import similar_experiments
from evsys_runtime.experiment.insight.text_budget import fit
from evsys_runtime.experiment.insight.why import explain
from evsys_runtime.tools.caps import compact_text

__all__ = ["ask_index", "endpoints"]

endpoints = Endpoints()

_MEMORY = "/projects/{project}/memory"
_MOST_ARMS = 8 << 20
"""Bytes of a body with the configs of arms."""

_PLOTTED = (
    *("experiment.json", "conclusion.json", "resolved.json", "retractions.jsonl", "audit.json"),
    *(
        "runs/*/run.json",
        "runs/*/run_result.json",
        "runs/*/evaluations.jsonl",
        "runs/*/training/metrics.jsonl",
    ),
)
"""The files that plots are made of."""

type Arms = Mapping[str, Mapping[str, str]]


@attrs.frozen(kw_only=True)
class ContextQuestion:
    """The length of the summary: at most `tokens` of 4 bytes, counted as JSON or as Markdown; the most useful comes first."""

    tokens: int = limit(4000, least=300, most=1_000_000)
    form: Literal["json", "markdown"] = "json"


@attrs.frozen(kw_only=True)
class HistoryQuestion:
    """The options of `evsys history`; `limit` 0 lists as many as there may be, 10,000."""

    status: tuple[str, ...] = ()
    outcome: tuple[str, ...] = ()
    tag: tuple[str, ...] = ()
    algorithm: tuple[str, ...] = ()
    model: tuple[str, ...] = ()
    since: str | None = None
    text: str | None = None
    parent: str | None = None
    runs: bool = False
    limit: int = limit(50, least=0, most=10_000)
    sort: Sort = "started"
    reverse: bool = False


@attrs.frozen(kw_only=True)
class NearQuestion(HistoryQuestion):
    """The options of `evsys history --near`, and the arms of its file: by name their values, as JSON texts by path."""

    arms: Arms


@attrs.frozen(kw_only=True)
class ExperimentQuestion:
    """An experiment, named as for the command, and an arm or a run of it."""

    experiment: str = "last"
    part: str | None = None


@attrs.frozen(kw_only=True)
class ShowQuestion(ExperimentQuestion):
    """An experiment, named as for the command, and a run of it. `whole` also gives the results of all runs."""

    whole: bool = False


@attrs.frozen(kw_only=True)
class NextQuestion:
    """The most suggestions; 0 gives all."""

    limit: int = limit(10, least=0, most=10_000)


@attrs.frozen(kw_only=True)
class CompareQuestion:
    """Two experiments, named as for the command, or two runs as EXPERIMENT/RUN."""

    one: str
    other: str


@attrs.frozen(kw_only=True)
class RecordQuestion:
    """An experiment, named as for the command."""

    experiment: str


@attrs.frozen(kw_only=True)
class RecordFileQuestion(RecordQuestion):
    """A file of an experiment, and at most `size` bytes of it from the byte `place` on."""

    file: str
    place: int = attrs.field(default=0, validator=attrs.validators.ge(0))
    size: int = limit(8 << 20, most=8 << 20)


@endpoints.get(f"{_MEMORY}/context", across=True)
async def context(call: Call, query: ContextQuestion) -> web.StreamResponse:
    """The knowledge from all experiments, as `evsys context --json` prints it."""

    def answer(index: Index) -> Any:
        whole = context_of(index, project_of(index.experiments))
        whole = attrs.evolve(whole, head=attrs.evolve(whole.head, project=_shown_project(call)))
        return fit(
            whole,
            query.tokens,
            context_markdown if query.form == "markdown" else lambda found: compact_text(result_tree(found)),
        )

    return await _answer(call, answer)


@endpoints.get(f"{_MEMORY}/history", across=True)
async def history(call: Call, query: HistoryQuestion) -> web.StreamResponse:
    """Past experiments or runs, as `evsys history --json` prints them."""

    def answer(index: Index) -> Any:
        question = _question(query, index)
        return with_evaluations(ask(index, question), index.experiments, question)

    return await _answer(call, answer)


@endpoints.post(f"{_MEMORY}/near", scope="read", across=True, most_body=_MOST_ARMS)
async def near(call: Call, body: NearQuestion) -> web.StreamResponse:
    """Experiments with arms like some, the nearest first, as `evsys history --near CONFIG --json` prints them."""
    return await _answer(call, lambda index: similar_experiments(body.arms, index, _question(body, index)))


@endpoints.get(f"{_MEMORY}/show", across=True)
async def show(call: Call, query: ShowQuestion) -> web.StreamResponse:
    """An experiment, or a run of it, as `evsys show --json` prints it."""

    def answer(index: Index) -> Any:
        found = show_experiment(index, experiment_called(query.experiment, index), query.part)
        return found if query.whole or query.part is not None else compact(found)

    return await _answer(call, answer)


@endpoints.get(f"{_MEMORY}/why", across=True)
async def why(call: Call, query: ExperimentQuestion) -> web.StreamResponse:
    """Why an experiment, or an arm of it, ended as it did, as `evsys why --json` prints it."""
    return await _answer(
        call, lambda index: explain(index, experiment_called(query.experiment, index), query.part)
    )


@endpoints.get(f"{_MEMORY}/next", across=True)
async def suggestions(call: Call, query: NextQuestion) -> web.StreamResponse:
    """The cheapest next experiments, as `evsys next --json` prints them."""
    return await _answer(call, lambda index: next_steps(index, limit=query.limit or None))


@endpoints.get(f"{_MEMORY}/compare", across=True)
async def compare(call: Call, query: CompareQuestion) -> web.StreamResponse:
    """Two experiments, or two arms or runs, as `evsys compare --json` prints them. Only metrics of plugins installed here have intervals."""

    def answer(index: Index) -> Any:
        def side(text: str) -> Subject:
            name, _, run = text.partition("/")
            return Subject(index=index, experiment_id=experiment_called(name, index), part=run or None)

        return compared(side(query.one), side(query.other), current_registry())

    return await _answer(call, answer)


@endpoints.get(f"{_MEMORY}/record", across=True)
async def record(call: Call, query: RecordQuestion) -> web.StreamResponse:
    """The files of an experiment that its plots are made of."""

    def answer(index: Index) -> Any:
        experiment_id = experiment_called(query.experiment, index)
        folder = index.experiments / experiment_id
        files = (
            RecordFile(path=path.relative_to(folder).as_posix(), bytes=path.stat().st_size)
            for pattern in _PLOTTED
            for path in sorted(folder.glob(pattern))
            if path.is_file() and not path.is_symlink()
        )
        return RecordListing(experiment_id=experiment_id, files=tuple(files))

    return await _answer(call, answer)


@endpoints.get(f"{_MEMORY}/record/file", across=True)
async def record_file(call: Call, query: RecordFileQuestion) -> web.StreamResponse:
    """A part of such a file, from the byte `place` on."""

    def read(index: Index) -> bytes:
        folder = index.experiments / experiment_called(query.experiment, index)
        path = PurePosixPath(query.file)
        if ".." in path.parts or not any(
            len(path.parts) == pattern.count("/") + 1 and path.match(pattern) for pattern in _PLOTTED
        ):
            raise ConfigError(f"{query.file!r} is not a file that plots are made of")
        with open_to_read(folder / path) as stream, storing(folder / path, "read"):
            stream.seek(query.place)
            return stream.read(query.size)

    data = await ask_index(call, read)
    return web.Response(
        body=data, content_type="application/octet-stream", headers={"Cache-Control": "no-store"}
    )


def _question(given: HistoryQuestion, index: Index) -> Question:
    return Question(
        statuses=given.status,
        outcomes=given.outcome,
        tags=given.tag,
        algorithms=given.algorithm,
        models=given.model,
        since=None if given.since is None else moment_of(given.since),
        words=given.text,
        parent=None if given.parent is None else experiment_called(given.parent, index),
        runs=given.runs,
        limit=given.limit or 10_000,
        sort=given.sort,
        reverse=given.reverse,
    )


async def _answer(call: Call, question: Callable[[Index], Any]) -> web.StreamResponse:
    """The document of a command; a path of this server is one from the project's folder."""
    text = await ask_index(
        call,
        lambda index: compact_json(
            _relative(result_tree(question(index)), f"{project_of(index.experiments)}/")
        ),
    )
    response = web.Response(text=text, content_type="application/json", headers={"Cache-Control": "no-store"})
    response.enable_compression()
    return response


async def ask_index[T](call: Call, question: Callable[[Index], T]) -> T:
    """The answer of a function of the index of the experiments asked about, brought up to date, in a thread.

    Raises:
        RefusedError: there is no such project, or the question can't be answered; the message has no path of this server.
    """
    names = await call.service.read(lambda connection: _projects(call, connection))

    def read() -> T:
        records = call.service.records
        experiments = (
            records.experiments(call["project"]) if call["project"] != EVERY else records.across(names)
        )
        with Index(experiments) as index:
            index.refresh()
            try:
                return question(index)
            except EvsysError as exc:
                status = 400 if exc.exit_code == 2 else 500
                message = exc.message.replace(str(experiments), _shown_project(call))
                raise RefusedError(status, message, hint=exc.hint) from exc

    return await asyncio.to_thread(read)


def _projects(call: Call, connection: Any) -> list[str]:
    if call["project"] == EVERY:
        return [name for name in read_projects(connection) if call.access.may("read", name)]
    project_version(connection, call["project"])
    return [call["project"]]


def _shown_project(call: Call) -> str:
    """The project of an answer as texts name it; several have none."""
    local = call.service.local
    named = call["project"] if call["project"] != EVERY else local or call.access.project
    return named or "all projects"


def _relative(tree: Any, root: str) -> Any:
    if isinstance(tree, str):
        return tree.replace(root, "")
    if isinstance(tree, dict):
        return {key: _relative(value, root) for key, value in tree.items()}
    return [_relative(value, root) for value in tree] if isinstance(tree, list) else tree
