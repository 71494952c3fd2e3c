"""A run that holds between two steps, for as long as that is requested."""

from __future__ import annotations

import time

import attrs

from evsys_runtime.experiment.state.session import Session

__all__ = ["ArmPause"]


@attrs.frozen(kw_only=True)
class ArmPause:
    """A core `Pause` of one attempt at a run."""

    session: Session
    run_id: str
    attempt: int

    @property
    def requested(self) -> bool:
        """Whether the run is asked to hold."""
        return self.session.steering.pauses(self.run_id)

    async def hold(self) -> None:
        """Wait until the run may continue; its watchdog and, where all runs hold, the budget's clock stand still."""
        if not self.requested:
            return
        session, progress = self.session, self.session.progress.run(self.run_id)
        self._note("run.paused", step=progress.step)
        began, progress.status = time.monotonic(), "paused"
        try:
            with session.watched[self.run_id].pause(), session.steering.holding(self.run_id):
                self._stop_clock()
                await session.steering.lifted(self.run_id)
        finally:
            if session.budget is not None:
                session.budget.unpause()
            seconds = time.monotonic() - began
            session.progress.run(self.run_id).resume_after(seconds)
        self._note("run.unpaused", seconds=round(seconds, 3))

    def _note(self, event: str, **facts: object) -> None:
        self.session.record.events.append(event, run=self.run_id, attempt=self.attempt, **facts)

    def _stop_clock(self) -> None:
        session = self.session
        if session.budget is not None and session.steering.held >= session.watched.keys():
            session.budget.pause()
