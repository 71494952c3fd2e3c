"""How an experiment stands, as one line that many may ask for often."""

from __future__ import annotations

import os
import time
from typing import Any

from evsys_record.encoding import encode_record, now, utf8
from evsys_runtime.experiment.state.progress import RunProgress
from evsys_runtime.experiment.state.session import Session, run_id_of

__all__ = ["StatusLine", "status_of"]

FRESH_SECONDS = 0.1
"""How old a status may be. A change that a request makes shows at once."""


class StatusLine:
    """The reply to `status`, made again when it is read and no longer fresh. Read it in any thread."""

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
    """How an experiment stands. It reads only, and nothing that another thread may be in the middle of changing."""
    runs = []
    for arm in session.plan.arms:
        run_id = run_id_of(arm)
        facts = (session.progress.runs.get(run_id) or RunProgress()).facts()
        ended = session.results.get(run_id)
        if ended is not None:
            facts |= {"status": ended.status, "phase": None}
            facts["step"] = facts["step"] if ended.run is None else ended.run.steps
        runs.append({"run": run_id, "arm": arm.name, **facts})
    return {
        "experiment_id": session.record.experiment_id,
        "status": "running",
        "at": now(),
        "pid": os.getpid(),
        "max_concurrent_arms": session.plan.concurrent_arms,
        "budget": _budget(session),
        "runs": runs,
    }


def _budget(session: Session) -> dict[str, Any] | None:
    """What may be spent and is, of each limited amount."""
    budget = session.budget
    if budget is None:
        return None
    return {
        name: {"limit": getattr(budget.limits, name), "spent": budget.spending(name)}
        for name in budget.limited
    }
