"""The result of waiting for an experiment."""

from __future__ import annotations

from typing import Literal

import attrs

from evsys_record.events import Event

__all__ = ["Waited"]


@attrs.frozen(kw_only=True)
class Waited:
    """Why `evsys wait` returned.

    Attributes:
        experiment_id: the experiment.
        status: its status then; `running` unless it ended.
        reason: `end`, `event` or `timeout`.
        cursor: the number of the last event seen.
        exit_code: the exit code of the command.
        event: the awaited event.
    """

    experiment_id: str
    status: str
    reason: Literal["end", "event", "timeout"]
    cursor: int
    exit_code: int
    event: Event | None = None
