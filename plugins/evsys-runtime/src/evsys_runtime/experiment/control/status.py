"""The status of an experiment, as one line for many frequent readers."""

from __future__ import annotations

import os
import time
from typing import Any

from evsys_record.control import FRESH_SECONDS
from evsys_record.encoding import encode_record, now, utf8
from evsys_runtime.experiment.state.progress import RunProgress
from evsys_runtime.experiment.state.session import Session, run_id_of

__all__ = ["StatusLine", "status_of"]


class StatusLine:
    """The reply to `status`, made again when it is read and no longer fresh; `renew` has it made again at once. Read it
    in any thread.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._line = b""
        self._until = 0.0

    def read(self) -> bytes:
        """The line."""
        if time.monotonic() >= self._until:
            self._until = time.monotonic() + FRESH_SECONDS
            self._line = utf8(encode_record({"ok": True, **status_of(self._session)}) + "\n")
        return self._line

    def renew(self) -> None:
        """Have it made again when it is read next."""
        self._until = 0.0


def status_of(session: Session) -> dict[str, Any]:
    """The status of an experiment. Reads only, and nothing in the middle of a change by another thread."""
    runs, steering = [], session.steering
    for arm in session.plan.arms:
        run_id = run_id_of(arm)
        facts = (session.progress.runs.get(run_id) or RunProgress()).facts()
        ended = session.results.get(run_id)
        if ended is not None:
            facts |= {"status": ended.status, "phase": None}
            facts["step"] = facts["step"] if ended.run is None else ended.run.steps
        if steering.stop_of(run_id) is not None and facts["status"] in ("running", "waiting"):
            facts["status"] = "stopping"
        elif steering.pauses(run_id) and facts["status"] == "running":
            facts["status"] = "pausing"
        runs.append({"run": run_id, "arm": arm.name, **facts})
    return {
        "experiment_id": session.record.experiment_id,
        "status": _status(session),
        "at": now(),
        "pid": os.getpid(),
        "max_concurrent_arms": session.concurrent_arms,
        "budget": _budget(session),
        "runs": runs,
    }


def _status(session: Session) -> str:
    """What the experiment is about: `pausing` until the last run under way holds."""
    steering = session.steering
    if steering.stop is not None:
        return "stopping"
    if steering.paused:
        return "paused" if set(steering.held) >= set(session.watched) else "pausing"
    return "running"


def _budget(session: Session) -> dict[str, Any] | None:
    """What may be spent and is, of each limited amount."""
    budget = session.budget
    if budget is None:
        return None
    return {
        name: {"limit": getattr(budget.limits, name), "spent": budget.spending(name)}
        for name in budget.limited
    }
