"""Asking a researcher: within its time; those of other distributions in a sandboxed process that can write an answer and nothing else."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs

from evsys.errors import RunError
from evsys.types import Proposal, ResearchState, Round, SearchAxis, Stop
from evsys_autoresearch.goal import Goal
from evsys_autoresearch.sandbox import Sandbox, run_program
from evsys_record import make_directory, result_tree
from evsys_record.files import read_json, write_json
from evsys_record.index import Index
from evsys_runtime.experiment.insight.context import context_of
from evsys_runtime.experiment.insight.text_budget import fit

if TYPE_CHECKING:
    from evsys.protocols import Researcher

__all__ = ["answer_of", "answer_tree", "ask", "context_known", "state_of"]

CONTEXT_TOKENS = 4000
"""The length of the context in a state."""

_OWN = "evsys-autoresearch"


async def ask(
    researcher: Researcher, state: ResearchState, goal: Goal, folder: Path, sandbox: Sandbox
) -> Proposal | Stop:
    """The answer of a researcher.

    Raises:
        RunError: no answer within the time limit, or one that is neither a proposal nor a stop.
    """
    seconds = goal.config.propose_seconds
    state = attrs.evolve(state, directory=_copy_levers(goal, folder))
    entry = goal.registry.find("researcher", goal.config.researcher.kind)
    if entry.distribution != _OWN:
        return await _ask_apart(state, goal, folder, sandbox)
    try:
        async with asyncio.timeout(seconds):
            answer = await researcher.propose(state)
    except TimeoutError as exc:
        raise RunError(f"no answer within {seconds:g} s") from exc
    return _check_answer(answer)


def _check_answer(answer: object) -> Proposal | Stop:
    if isinstance(answer, Stop):
        return answer
    if not isinstance(answer, Proposal):
        raise RunError(f"the answer is a {type(answer).__name__}, not a Proposal or a Stop")
    try:
        json.dumps(attrs.asdict(answer), allow_nan=False)
    except (TypeError, ValueError) as exc:
        raise RunError(f"the proposal can't be written as JSON: {exc}") from exc
    for name, kind in (
        ("hypothesis", str),
        ("expected_effect", int | float),
        ("config", Mapping),
        ("files", Mapping),
    ):
        if not isinstance(getattr(answer, name), kind) or isinstance(getattr(answer, name), bool):
            raise RunError(f"{name} of the proposal has the wrong type: {getattr(answer, name)!r}")
    if not all(isinstance(text, str) for text in (*answer.files, *answer.files.values())):
        raise RunError("the files of a proposal have to be texts")
    return answer


async def _ask_apart(state: ResearchState, goal: Goal, folder: Path, sandbox: Sandbox) -> Proposal | Stop:
    """Ask in a process of its own, which sees the project as it is, but no tasks and no sealed test, and writes to one folder."""
    place = make_directory((folder / "asked").absolute())
    write_json(
        place / "question.json",
        {
            "kind": goal.config.researcher.kind,
            "params": dict(goal.config.researcher.params),
            "project": str(goal.project_root),
            "state": json.loads(json.dumps(attrs.asdict(attrs.evolve(state, records=None)), default=str)),
        },
    )
    answer = place / "answer.json"
    answer.unlink(missing_ok=True)
    ended = await run_program(
        [sys.executable, "-m", "evsys_autoresearch.child", "propose", str(place)],
        sandbox=sandbox,
        directory=place,
        seconds=goal.config.propose_seconds,
    )
    if ended.timed_out or not answer.is_file():
        raise RunError(ended.tail or f"it ended with code {ended.code} and without an answer")
    return _check_answer(answer_of(read_json(answer)))


def answer_tree(answer: object) -> dict[str, Any]:
    """An answer as JSON values; another object as what it is."""
    if isinstance(answer, Proposal | Stop):
        return {type(answer).__name__.lower(): attrs.asdict(answer)}
    return {"odd": type(answer).__name__}


def answer_of(tree: Mapping[str, Any]) -> Proposal | Stop:
    """The answer that JSON values represent.

    Raises:
        RunError: they represent none.
    """
    try:
        if "proposal" in tree:
            fields = dict(tree["proposal"])
            return Proposal(**{**fields, "builds_on": tuple(fields.get("builds_on") or ())})
        if "stop" in tree:
            return Stop(**tree["stop"])
    except (TypeError, AttributeError) as exc:
        raise RunError(f"the answer is not a Proposal or a Stop: {exc}") from exc
    raise RunError(f"the answer is a {tree.get('odd')}, not a Proposal or a Stop")


def state_of(tree: Mapping[str, Any]) -> ResearchState:
    """The state that JSON values represent."""
    rounds = [Round(**{**each, "builds_on": tuple(each["builds_on"])}) for each in tree["rounds"]]
    axes = [SearchAxis(**{**each, "choices": tuple(each["choices"])}) for each in tree["space"]]
    directory = None if tree["directory"] is None else Path(tree["directory"])
    return ResearchState(**{**tree, "rounds": rounds, "space": axes, "directory": directory})


def _copy_levers(goal: Goal, folder: Path) -> Path | None:
    """A copy of the files under the levers; None without any."""
    files = goal.levers.files(goal.project_root) if goal.levers.patterns else {}
    for name, path in files.items():
        target = folder / "levers" / name
        make_directory(target.parent)
        target.write_bytes(path.read_bytes())
    return folder / "levers" if files else None


def context_known(experiments: Path, project: Path) -> Mapping[str, Any]:
    """The knowledge that `evsys context` prints."""
    with Index(experiments) as index:
        index.refresh()
        whole = context_of(index, project)
    found = fit(whole, CONTEXT_TOKENS, lambda each: json.dumps(result_tree(each)))
    return dict(result_tree(found))
