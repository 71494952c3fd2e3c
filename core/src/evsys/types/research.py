"""Automated research: the state that a researcher sees, and its answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import attrs

from evsys.types.search import SearchAxis

__all__ = ["Proposal", "ResearchState", "Round", "Stop"]


@attrs.frozen(kw_only=True)
class Proposal:
    """The next experiment of a researcher.

    `config` is a whole experiment file as JSON values: that of `ResearchState.start`, changed under the levers only. `files` are
    new texts of files under the levers, by their path in the project. `expected_effect` is the expected difference to the start in
    units of the metric, positive for better. `builds_on` are the numbers of the rounds that it follows from.

    With `repeats`, the number of a scored round, that round's arm is measured again with a fresh seed; `config` and `files` are then
    ignored. With `tasks` only so many validation tasks are scored: cheaper, and never enough to win.
    """

    hypothesis: str
    expected_effect: float
    config: Mapping[str, Any] = attrs.field(factory=dict)
    files: Mapping[str, str] = attrs.field(factory=dict)
    builds_on: tuple[int, ...] = ()
    repeats: int | None = None
    tasks: int | None = None


@attrs.frozen(kw_only=True)
class Stop:
    """No further experiment; the reason goes into the report."""

    reason: str


@attrs.frozen(kw_only=True)
class Round:
    """One round of research on record.

    `changes` are the values that differ from the start's file, by path, `files` the changed files with the hashes of their texts.
    `score` is the metric's value with its interval at 95 % over `tasks` validation tasks, None without one. `effect` is the
    difference to the start on the same tasks, positive for better. A `cheap` round scored only some of the tasks. A `failed` round was run and has no score; a `lost` one broke a
    rule, crashed, or took too long, and was not run. `reason` says why.
    """

    number: int
    status: Literal["scored", "failed", "lost"]
    hypothesis: str = ""
    expected_effect: float | None = None
    changes: Mapping[str, Any] = attrs.field(factory=dict)
    files: Mapping[str, str] = attrs.field(factory=dict)
    builds_on: tuple[int, ...] = ()
    repeats: int | None = None
    score: float | None = None
    low: float | None = None
    high: float | None = None
    effect: float | None = None
    tasks: int = 0
    cheap: bool = False
    experiment: str | None = None
    reason: str | None = None


@attrs.frozen(kw_only=True)
class ResearchState:
    """Everything that a researcher may know before it proposes an experiment.

    `start` is the experiment file to improve on, and `start_score` its score. `levers` are the paths in that file, and the patterns
    of files, that a proposal may change; `space` has the axes under them that can be searched, with paths in the file. `rounds` are
    the rounds so far. `left` is what is left of each limit of the budget: `experiments`, `seconds`, `money` in US dollars; a missing
    one is unlimited. `context` is what `evsys context` knows. `directory` has a copy of the files under the levers, `records` the
    folder of experiments on record; both are None where there are none to see. The same state and `seed` give the same proposal.
    """

    goal: str
    metric: str
    direction: Literal["max", "min"] = "max"
    minimum_effect: float = 0.0
    start: Mapping[str, Any] = attrs.field(factory=dict)
    start_score: float | None = None
    levers: Sequence[str] = ()
    space: Sequence[SearchAxis] = ()
    rounds: Sequence[Round] = ()
    left: Mapping[str, float] = attrs.field(factory=dict)
    context: Mapping[str, Any] = attrs.field(factory=dict)
    directory: Path | None = None
    records: Path | None = None
    seed: int = 0
