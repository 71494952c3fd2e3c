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

    def requested(self, *, at_once: bool = False) -> bool:
        """Whether the run is asked to hold, after its step or before its next rollout."""
        steering = self.session.steering
        return steering.pauses(self.run_id) and (steering.at_once or not at_once)

    async def hold(self) -> None:
        """Wait until the run may continue; its watchdog and, if all runs hold, the budget's clock stand still.

        A run may hold in several places at once: in its loop, and in its evaluations.
        """
        if not self.requested():
            return
        steering, began = self.session.steering, time.monotonic()
        with self.session.watched[self.run_id].pause(), steering.holding(self.run_id) as first:
            if first:
                self._begin()
            try:
                await steering.lifted(self.run_id)
            finally:
                if first:
                    self._end(time.monotonic() - began)

    def _begin(self) -> None:
        session, progress = self.session, self.session.progress.run(self.run_id)
        progress.status = "paused"
        self._note("run.paused", step=progress.step)
        if session.budget is not None and set(session.steering.held) >= set(session.watched):
            session.budget.pause()

    def _end(self, seconds: float) -> None:
        if self.session.budget is not None:
            self.session.budget.unpause()
        self.session.progress.run(self.run_id).resume_after(seconds)
        self._note("run.unpaused", seconds=round(seconds, 3))

    def _note(self, event: str, **facts: object) -> None:
        self.session.record.events.append(event, run=self.run_id, attempt=self.attempt, **facts)
