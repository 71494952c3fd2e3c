"""The tools of one project: `Toolbox`."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path
from threading import Lock
from typing import Any

import attrs

from evsys import Registry, option
from evsys._plugins.refusals import closest
from evsys.errors import ConfigError
from evsys_record import Question, moment_of, result_tree
from evsys_record.history import OUTCOMES, SORTS
from evsys_runtime.config.project import import_project_code, project_registry
from evsys_runtime.experiment.insight.results import Context
from evsys_runtime.tools import acting, reading
from evsys_runtime.tools.caps import compact_text
from evsys_runtime.tools.describing import describe
from evsys_runtime.tools.lab import Lab
from evsys_runtime.tools.tool import Answer, Arguments, Tool

__all__ = ["Toolbox"]

LONGEST_WAIT = 45.0
"""Seconds that `wait` waits at most: many clients give up after 60."""

_MOST_TOKENS_KEPT = 64
"""Tokens of plans that wait to be used; older ones are forgotten."""

_EXPERIMENT = (
    "An experiment: its ID or a unique beginning of it, a unique name, `last`, or -2 for the second to last."
)


@attrs.frozen(kw_only=True)
class ContextArguments(Arguments):
    """Arguments of `context`."""


@attrs.frozen(kw_only=True)
class HistoryArguments(Arguments):
    """Arguments of `history`."""

    text: str | None = option(
        None, "Words, or beginnings of words, that must all occur in the record's text."
    )
    status: list[str] = option(
        attrs.Factory(list), "Status: completed, partial, failed, crashed, running, ..."
    )
    outcome: list[str] = option(
        attrs.Factory(list), "Verdict or outcome of an arm, such as supported, win or loss."
    )
    tag: list[str] = option(attrs.Factory(list), "Tags, all required.")
    algorithm: list[str] = option(attrs.Factory(list), "Algorithms; * matches anything.")
    model: list[str] = option(attrs.Factory(list), "Base models; * matches anything.")
    since: str | None = option(None, "Started after this time (UTC), or within the last 30m, 12h, 7d, 2w.")
    parent: str | None = option(None, "Only children of this experiment.")
    near: str | None = option(
        None, "An experiment file: list experiments with similar arms, the nearest first."
    )
    runs: bool = option(False, "List runs instead of experiments.")
    sort: str = option("started", "What to sort by.", choices=SORTS)
    reverse: bool = option(False, "Reverse the order.")
    limit: int = option(10, "Most results.", ge=1)


@attrs.frozen(kw_only=True)
class ExperimentArguments(Arguments):
    """Arguments of tools about one experiment."""

    experiment: str = option("last", _EXPERIMENT)


@attrs.frozen(kw_only=True)
class ShowArguments(ExperimentArguments):
    """Arguments of `show`."""

    run: str | None = option(None, "One run of it, with its files.")


@attrs.frozen(kw_only=True)
class WhyArguments(ExperimentArguments):
    """Arguments of `why`."""

    arm: str | None = option(None, "One arm, or run, of it.")


@attrs.frozen(kw_only=True)
class NextArguments(Arguments):
    """Arguments of `next`."""

    limit: int = option(3, "Most suggestions.", ge=1)


@attrs.frozen(kw_only=True)
class CompareArguments(Arguments):
    """Arguments of `compare`."""

    one: str = option(..., "An experiment, or EXPERIMENT/ARM or EXPERIMENT/RUN.")
    other: str = option(..., "The one to compare it with.")


@attrs.frozen(kw_only=True)
class WaitArguments(ExperimentArguments):
    """Arguments of `wait`."""

    seconds: float = option(LONGEST_WAIT, "Longest wait.", ge=0, le=LONGEST_WAIT)
    event: str | None = option(None, "Return at this event, such as evaluation.finished.")
    cursor: int = option(0, "The `cursor` of the answer before: events up to it are ignored.", ge=0)


@attrs.frozen(kw_only=True)
class PlanArguments(Arguments):
    """Arguments of `plan`."""

    config: str = option(..., "The experiment file, by its path in the project.")
    set: list[str] = option(attrs.Factory(list), "Values to override, each as PATH=VALUE.")


@attrs.frozen(kw_only=True)
class RunArguments(Arguments):
    """Arguments of `run`."""

    token: str = option(
        ..., "The `token` of a plan, for the same file and values. It can be used once.", min_len=1
    )


@attrs.frozen(kw_only=True)
class RequestArguments(Arguments):
    """Arguments of tools that steer an experiment."""

    experiment: str = option(..., _EXPERIMENT, min_len=1)
    reason: str = option(..., "Why, for the record.", min_len=1)


@attrs.frozen(kw_only=True)
class StopArguments(RequestArguments):
    """Arguments of `stop`."""

    arm: str | None = option(None, "One arm, or run; all by default.")


@attrs.frozen(kw_only=True)
class PauseArguments(StopArguments):
    """Arguments of `pause`."""

    unpause: bool = option(False, "Continue what was paused.")
    now: bool = option(False, "Also hold in the middle of a step, before its next rollout.")


@attrs.frozen(kw_only=True)
class ExtendArguments(RequestArguments):
    """Arguments of `extend`."""

    steps: int | None = option(None, "Optimiser steps to add.", ge=1)
    seconds: float | None = option(None, "Seconds to add.", gt=0)
    money: float | None = option(None, "US dollars to add.", gt=0)
    tokens: int | None = option(None, "Tokens to add.", ge=1)


@attrs.frozen(kw_only=True)
class RetractArguments(RequestArguments):
    """Arguments of `retract`."""

    withdraw: bool = option(False, "Withdraw an earlier retraction: the conclusion holds after all.")


@attrs.frozen(kw_only=True)
class SchemaArguments(Arguments):
    """Arguments of `schema`."""

    kind: str | None = option(None, "A kind of plugin, `experiment` for the file, or `result` for an answer.")
    name: str | None = option(None, "The plugin, or the answer.")
    full: bool = option(False, "The JSON Schema instead of the outline.")


@attrs.frozen(kw_only=True)
class PreviewArguments(PlanArguments):
    """Arguments of `preview`."""

    arm: str | None = option(None, "The arm; the first by default.")
    rows: int = option(1, "Number of rows.", ge=1)


class Toolbox:
    """The tools of the project that a folder is in. Calls block, and may be made in any thread.

    Args:
        folder: in the project, or the project itself.
        by: who asks, for the record of requests.
    """

    def __init__(self, folder: str | Path = ".", *, by: str = "agent") -> None:
        self.lab = Lab.of_project(Path(folder))
        self.tools: Mapping[str, Tool] = {tool.name: tool for tool in self._table()}
        self._by = by
        self._plans: dict[str, tuple[Path, tuple[str, ...], str]] = {}
        self._lock = Lock()

    def call(self, name: str, arguments: Mapping[str, Any] | None = None) -> Answer:
        """Carry a tool out.

        Args:
            name: of the tool.
            arguments: JSON values.

        Raises:
            ConfigError: there is no such tool or argument; names the nearest.
            EvsysError: it can't be done; says why.
        """
        if name not in self.tools:
            hint = closest(name, self.tools) or f"tools: {', '.join(self.tools)}"
            raise ConfigError(f"there is no tool {name!r}", hint=hint)
        return self.tools[name].call(self.lab, arguments or {})

    # --- what each of them does -----------------------------------------------------------------------------------

    def _plan(self, lab: Lab, given: PlanArguments) -> Any:
        config, overrides = lab.file(given.config), tuple(given.set)
        found = acting.plan(lab, config, overrides)
        token = secrets.token_urlsafe(9)
        with self._lock:
            self._plans[token] = (config, overrides, _digest(config))
            while len(self._plans) > _MOST_TOKENS_KEPT:
                del self._plans[next(iter(self._plans))]
        return attrs.evolve(found, token=token)

    def _run(self, lab: Lab, given: RunArguments) -> Any:
        with self._lock:
            planned = self._plans.pop(given.token, None)
        if planned is None:
            raise ConfigError("this token was used before, or is of no plan", hint="call `plan` again")
        config, overrides, digest = planned
        if _digest(config) != digest:
            raise ConfigError(f"{config} has changed since it was planned", hint="call `plan` again")
        return acting.launch(lab, config, overrides)

    def _request(self, lab: Lab, given: RequestArguments, asked: Mapping[str, Any]) -> Any:
        return acting.request(lab, given.experiment, asked, by=self._by, reason=given.reason)

    def _pause(self, lab: Lab, given: PauseArguments) -> Any:
        if given.unpause:
            return self._request(lab, given, {"request": "unpause", "arm": given.arm})
        return self._request(lab, given, {"request": "pause", "arm": given.arm, "now": given.now})

    def _stop(self, lab: Lab, given: StopArguments) -> Any:
        return self._request(lab, given, {"request": "stop", "arm": given.arm})

    def _extend(self, lab: Lab, given: ExtendArguments) -> Any:
        amounts = {name: getattr(given, name) for name in ("steps", "seconds", "money", "tokens")}
        return self._request(lab, given, {"request": "extend", **amounts})

    def _table(self) -> Sequence[Tool]:
        return (
            Tool(
                name="context",
                title="What is known",
                description="Read first: what worked and how certain that is, open questions, failures, running experiments, costs and the budget left.",
                arguments=ContextArguments,
                result="context",
                act=_context,
            ),
            Tool(
                name="next",
                title="Suggest experiments",
                description="The cheapest next experiments: winners to confirm, questions to settle, runs to finish, values to try.",
                arguments=NextArguments,
                result="next",
                act=lambda lab, given: reading.next_steps(lab, limit=given.limit),
            ),
            Tool(
                name="plan",
                title="Plan an experiment",
                description="Check an experiment file, and estimate its cost and the smallest effect that it can detect. Nothing is spent. The answer has the token that `run` needs; every problem of the file is an error.",
                arguments=PlanArguments,
                result="plan",
                act=self._plan,
            ),
            Tool(
                name="run",
                title="Run a planned experiment",
                description="Start the experiment of a plan in the background. Returns at once with its ID; use `wait` for its end.",
                arguments=RunArguments,
                result="launch",
                act=self._run,
                read_only=False,
            ),
            Tool(
                name="status",
                title="Status of an experiment",
                description="How far an experiment and its runs are, with scores so far and the budget.",
                arguments=ExperimentArguments,
                result="status",
                act=lambda lab, given: reading.status(lab, given.experiment),
            ),
            Tool(
                name="wait",
                title="Wait for an experiment",
                description="Wait until an experiment ends, for 45 seconds at most. If `reason` is `timeout`, call it again with the `cursor` of the answer.",
                arguments=WaitArguments,
                result="wait",
                act=_wait,
            ),
            Tool(
                name="show",
                title="Show an experiment",
                description="An experiment, or one run of it: hypothesis, conclusion, scores by arm, failures, cost, files. Has no text of the models under test.",
                arguments=ShowArguments,
                result="show",
                act=lambda lab, given: reading.Showing.of(lab, given.experiment, given.run).short,
            ),
            Tool(
                name="why",
                title="Explain an outcome",
                description="Why an experiment, or an arm, ended as it did: the numbers behind the verdict, weaknesses, failures, and what would settle it.",
                arguments=WhyArguments,
                result="why",
                act=lambda lab, given: reading.explain(lab, given.experiment, given.arm),
            ),
            Tool(
                name="compare",
                title="Compare two experiments",
                description="Two experiments or runs side by side: configs, metrics on the tasks they share, cost.",
                arguments=CompareArguments,
                result="compare",
                act=_compare,
            ),
            Tool(
                name="history",
                title="List experiments",
                description="Past experiments, the newest first, with verdict and effect; with `near`, those like an experiment file.",
                arguments=HistoryArguments,
                result="history",
                act=_history,
            ),
            Tool(
                name="schema",
                title="Describe files, plugins and answers",
                description="Keys, types and defaults of the experiment file (kind `experiment`), of a plugin (kind and name), or of an answer (kind `result`). With a kind alone, its names.",
                arguments=SchemaArguments,
                result="schema",
                act=_describe,
            ),
            Tool(
                name="preview",
                title="Preview training rows",
                description="The first training rows of an experiment file as the model sees them, with the trained parts marked.",
                arguments=PreviewArguments,
                result="preview",
                act=_preview,
            ),
            Tool(
                name="pause",
                title="Pause an experiment",
                description="Hold a running experiment, or one arm, after its step; with `unpause`, continue it.",
                arguments=PauseArguments,
                result="request",
                act=self._pause,
                read_only=False,
            ),
            Tool(
                name="stop",
                title="Stop an experiment",
                description="End a running experiment, or one arm, early, and conclude from the results so far. This is final.",
                arguments=StopArguments,
                result="request",
                act=self._stop,
                read_only=False,
                destructive=True,
            ),
            Tool(
                name="extend",
                title="Extend a budget",
                description="Raise limits of the budget of a running experiment by the given amounts.",
                arguments=ExtendArguments,
                result="request",
                act=self._extend,
                read_only=False,
            ),
            Tool(
                name="retract",
                title="Retract a conclusion",
                description="Mark the conclusion of an experiment as invalid, with everything that rests on it.",
                arguments=RetractArguments,
                result="retract",
                act=lambda lab, given: acting.retract(
                    lab, given.experiment, reason=given.reason, withdraw=given.withdraw
                ),
                read_only=False,
                destructive=True,
            ),
        )


def _digest(config: Path) -> str:
    return hashlib.sha256(config.read_bytes()).hexdigest()


def _registry(lab: Lab) -> Registry:
    """The installed plugins and the project's own."""
    registry = project_registry()
    import_project_code(lab.root, registry)
    return registry


def _context(lab: Lab, given: ContextArguments) -> Context:
    return reading.context(
        lab, tokens=given.max_tokens, written=lambda found: compact_text(result_tree(found))
    )


def _wait(lab: Lab, given: WaitArguments) -> Any:
    return reading.wait(lab, given.experiment, event=given.event, after=given.cursor, timeout=given.seconds)


def _compare(lab: Lab, given: CompareArguments) -> Any:
    return reading.compare(lab, given.one, given.other, _registry(lab))


def _describe(lab: Lab, given: SchemaArguments) -> Any:
    return describe(given.kind, given.name, _registry(lab), full=given.full)


def _history(lab: Lab, given: HistoryArguments) -> Any:
    moment = None if given.since is None else moment_of(given.since)
    unknown = next((each for each in given.outcome if each.lower() not in OUTCOMES), None)
    if unknown is not None:
        raise ConfigError(f"no outcome is called {unknown!r}", hint=f"known: {', '.join(OUTCOMES)}")
    question = Question(
        statuses=tuple(given.status),
        outcomes=tuple(given.outcome),
        tags=tuple(given.tag),
        algorithms=tuple(given.algorithm),
        models=tuple(given.model),
        since=moment,
        words=given.text,
        runs=given.runs,
        sort=given.sort,  # type: ignore[arg-type]  # one of SORTS, as its option says
        reverse=given.reverse,
        limit=given.limit,
    )
    near = None if given.near is None else lab.file(given.near)
    return reading.history(lab, question, parent=given.parent, near=near)


def _preview(lab: Lab, given: PreviewArguments) -> Any:
    return acting.preview(lab.file(given.config), given.set, arm=given.arm, rows=given.rows)
