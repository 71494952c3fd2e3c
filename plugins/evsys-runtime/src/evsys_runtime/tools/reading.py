"""Questions about the experiments on record. Each function is what the command of its name answers."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import attrs

from evsys_record import ControlError, Experiment, History, Question, ask, send_request
from evsys_record.evaluations import with_evaluations
from evsys_record.experiment_names import experiment_called, folder_called
from evsys_record.past import Shown
from evsys_record.show import compact, show_experiment
from evsys_record.wait_result import Waited
from evsys_runtime.config.validate import load_experiment
from evsys_runtime.experiment.command_results import AmountState, RunState, Status
from evsys_runtime.experiment.estimate.compare import Subject
from evsys_runtime.experiment.estimate.compare import compare as compare_subjects
from evsys_runtime.experiment.estimate.results import Comparing
from evsys_runtime.experiment.insight.context import context_of
from evsys_runtime.experiment.insight.next_steps import next_steps as find_next_steps
from evsys_runtime.experiment.insight.results import Context, Next, Why
from evsys_runtime.experiment.insight.similar_configs import similar_experiments
from evsys_runtime.experiment.insight.text_budget import fit
from evsys_runtime.experiment.insight.why import explain as explain_outcome
from evsys_runtime.experiment.state.plan_secrets import refuse_secrets
from evsys_runtime.experiment.state.resolved_tree import planned_leaves
from evsys_runtime.tools.lab import Lab

if TYPE_CHECKING:
    from evsys import Registry
    from evsys_record.index import Index

__all__ = [
    "Showing",
    "compare",
    "context",
    "explain",
    "history",
    "next_steps",
    "status",
    "wait",
    "wait_for",
]

TIMED_OUT = 124
"""The exit code of a wait that came to its timeout, as of `timeout(1)`."""

POLL_SECONDS = 0.5

_STATUS_SECONDS = 10.0


def context(lab: Lab, *, tokens: int, written: Callable[[Context], str]) -> Context:
    """The knowledge from all experiments, fitted to `tokens` of the text that `written` makes of it."""
    with lab.index() as index:
        whole = context_of(index, lab.project)
    return fit(whole, tokens, written)


def history(lab: Lab, question: Question, *, parent: str | None = None, near: Path | None = None) -> History:
    """Past experiments, the newest first; with `near`, those like the arms of that file, the nearest first.

    Raises:
        ConfigError: no experiment is called `parent`, or the file isn't valid.
    """
    planned = None
    if near is not None:
        plan = load_experiment(near, records=False)
        refuse_secrets(plan)
        planned = planned_leaves(plan)
    with lab.index() as index:
        if parent is not None:
            question = attrs.evolve(question, parent=experiment_called(parent, index))
        if planned is not None:
            return similar_experiments(planned, index, question)
        return with_evaluations(ask(index, question), index.experiments, question)


@attrs.frozen(kw_only=True)
class Showing:
    """One experiment in full, or one `run` of it."""

    whole: Shown
    run: str | None

    @classmethod
    def of(cls, lab: Lab, experiment: str, run: str | None = None) -> Self:
        """The experiment, and the run, that are named.

        Raises:
            ConfigError: there is none, or several, of this name.
        """
        with lab.experiment(experiment) as (index, wanted, named):
            run = run or named
            return cls(whole=show_experiment(index, wanted, run), run=run)

    @property
    def short(self) -> Shown:
        """A run in full, or an experiment without the scores of every task, as documents have it."""
        return self.whole if self.run is not None else compact(self.whole)


def explain(lab: Lab, experiment: str, arm: str | None = None) -> Why:
    """How an experiment, or an arm of it, ended, and why."""
    with lab.experiment(experiment) as (index, wanted, named):
        return explain_outcome(index, wanted, arm or named)


def next_steps(lab: Lab, *, limit: int | None) -> Next:
    """The cheapest next experiments."""
    with lab.index() as index:
        return find_next_steps(index, limit=limit)


def compare(lab: Lab, one: str, other: str, registry: Registry) -> Comparing:
    """Two experiments or runs side by side."""
    with ExitStack() as stack:
        opened: dict[Path, Index] = {}
        first, second = (_subject(lab, text, opened, stack) for text in (one, other))
        return compare_subjects(first, second, registry)


def _subject(lab: Lab, text: str, opened: dict[Path, Index], stack: ExitStack) -> Subject:
    """Resolve a name; the index of each folder is opened once."""
    place = None if lab.confined else folder_called(text)
    experiments = lab.experiments if place is None else place[0].parent
    if experiments not in opened:
        opened[experiments] = stack.enter_context(lab.opened(experiments))
    index = opened[experiments]
    if place is not None:
        return Subject(index=index, experiment_id=place[0].name, part=place[1])
    name, _, part = text.partition("/")
    return Subject(index=index, experiment_id=experiment_called(name, index), part=part or None)


def status(lab: Lab, experiment: str) -> Status:
    """How far an experiment is: asked of its process, or read from the record where none runs."""
    with lab.experiment(experiment) as (index, wanted, _):
        found = Experiment(index.experiments / wanted)
        shown = show_experiment(index, wanted)
    cursor = max((event.seq for event in found.events()), default=0)
    with suppress(ControlError):
        reply = send_request(found.directory, {"request": "status"}, seconds=_STATUS_SECONDS)
        if reply.get("ok"):
            return _live_status(reply, cursor)
    past = shown.experiment
    return Status(
        experiment_id=found.id,
        status=past.status,
        cursor=cursor,
        runs=tuple(
            RunState(run=run.past.run_id, arm=run.past.arm, status=run.past.status, step=run.past.steps)
            for run in shown.runs
        ),
        verdict=found.verdict if past.finished is not None else None,
        exit_code=found.facts.get("exit_code"),
    )


def _live_status(reply: dict[str, Any], cursor: int) -> Status:
    budget = {name: AmountState(**amount) for name, amount in (reply["budget"] or {}).items()}
    return Status(
        experiment_id=reply["experiment_id"],
        status=reply["status"],
        cursor=cursor,
        pid=reply["pid"],
        max_concurrent_arms=reply["max_concurrent_arms"],
        budget=budget,
        runs=tuple(RunState(**run) for run in reply["runs"]),
    )


def wait(
    lab: Lab, experiment: str, *, event: str | None = None, after: int = 0, timeout: float | None = None
) -> Waited:
    """Wait for the end of an experiment, an event, or a timeout; see `wait_for`."""
    with lab.experiment(experiment) as (index, wanted, _):
        folder = index.experiments / wanted
    return wait_for(Experiment(folder), event=event, after=after, timeout=timeout)


def wait_for(experiment: Experiment, *, event: str | None, after: int, timeout: float | None) -> Waited:
    """Wait for the end of an experiment, an event, or a timeout, whichever comes first.

    Args:
        experiment: on record.
        event: the name of an event to return at; None waits for the end.
        after: the number of the last event that the caller has seen.
        timeout: seconds; None waits as long as it takes.
    """
    deadline = None if timeout is None else time.monotonic() + timeout
    last, events = after, experiment.new_events()
    while True:
        ended, status = (
            experiment.ended,
            experiment.status,
        )  # before the events: later ones are read next time
        for one in events():
            if one.seq <= after:
                continue
            last = one.seq
            if one.event == event:
                return _wait_result(experiment, status, "event", last, 0, event=one)
        if ended:
            code = experiment.facts.get("exit_code")
            code = 1 if code is None or status == "crashed" else int(code)
            return _wait_result(experiment, status, "end", last, code)
        left = POLL_SECONDS if deadline is None else deadline - time.monotonic()
        if left <= 0:
            return _wait_result(experiment, status, "timeout", last, TIMED_OUT)
        time.sleep(min(POLL_SECONDS, left))


def _wait_result(
    experiment: Experiment, status: str, reason: Any, cursor: int, code: int, **event: Any
) -> Waited:
    return Waited(
        experiment_id=experiment.id, status=status, reason=reason, cursor=cursor, exit_code=code, **event
    )
