"""The output of `evsys status`, `validate`, `schema`, `data preview`, of requests to a running experiment, and the launch line of `evsys run`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import attrs

from evsys_runtime.experiment.estimate.results import PlannedSearch

__all__ = [
    "AmountState",
    "ControlPlace",
    "Described",
    "Launched",
    "PreviewSpan",
    "Previewed",
    "PreviewedSequence",
    "Requested",
    "RunState",
    "Status",
    "Validated",
]


@attrs.frozen(kw_only=True)
class AmountState:
    """A limit of an experiment's budget, and what is spent of it."""

    limit: float
    spent: float


@attrs.frozen(kw_only=True)
class RunState:
    """A run: `step` of `total_steps`, its last loss and scores, the evaluation under way, and an estimate of the training time left."""

    run: str
    arm: str | None
    status: str
    phase: str | None = None
    step: int | None = None
    total_steps: int | None = None
    loss: float | None = None
    scores: Mapping[str, float | None] = attrs.field(factory=dict)
    evaluating: str | None = None
    seconds_left: float | None = None


@attrs.frozen(kw_only=True)
class Status:
    """The output of `evsys status --json`. `cursor` is the number of the last event, from which `evsys wait --after` continues; `verdict` and
    `exit_code` are there once the experiment has ended.
    """

    experiment_id: str
    status: str
    cursor: int
    pid: int | None = None
    max_concurrent_arms: int | None = None
    budget: Mapping[str, AmountState] = attrs.field(factory=dict)
    runs: tuple[RunState, ...] = ()
    verdict: str | None = None
    exit_code: int | None = None


@attrs.frozen(kw_only=True)
class Requested:
    """The output of `evsys pause`, `unpause`, `stop`, `extend` and `set` with `--json`: the `runs` that it is about, None for all; the new
    `limits`; the new `values`.
    """

    experiment_id: str
    ok: bool
    runs: tuple[str, ...] | None = None
    limits: Mapping[str, float] | None = None
    values: Mapping[str, Any] | None = None


@attrs.frozen(kw_only=True)
class Validated:
    """The output of `evsys validate --json`: the names of the arms, and how many runs they make."""

    valid: bool
    arms: tuple[str, ...]
    runs: int
    search: PlannedSearch | None = None
    warnings: tuple[str, ...] = ()


@attrs.frozen(kw_only=True)
class PreviewSpan:
    """Text of neighbouring tokens that are all trained, or all not."""

    text: str
    trained: bool
    tokens: int


@attrs.frozen(kw_only=True)
class PreviewedSequence:
    """One training sequence: its spans in order."""

    row_id: str
    tokens: int
    trained_tokens: int
    spans: tuple[PreviewSpan, ...]


@attrs.frozen(kw_only=True)
class Previewed:
    """The output of `evsys data preview --json`: rows as the model sees them, the rows left out by reason, how many
    follow (None if unknown), and warnings about columns.
    """

    rows: tuple[PreviewedSequence, ...]
    dropped: Mapping[str, int]
    not_read: int | None
    warnings: tuple[str, ...] = ()


@attrs.frozen(kw_only=True)
class ControlPlace:
    """The address at which an experiment listens for requests."""

    socket: str | None
    port: int | None


@attrs.frozen(kw_only=True)
class Launched:
    """The first line of `evsys run --json`."""

    event: Literal["launch"]
    experiment_id: str
    directory: str
    pid: int
    control: ControlPlace | None


@attrs.frozen(kw_only=True)
class Described:
    """The output of `evsys schema --json`: the `names` of a kind, or of the kinds; the JSON Schema of a plugin, the experiment file or a
    result; or its outline.
    """

    of: str
    names: tuple[str, ...] = ()
    schema: Mapping[str, Any] | None = None
    outline: str | None = None
