"""Requests in force in a running experiment: runs on hold, runs to end early, the number of runs at once."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Coroutine, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import attrs

from evsys.types import StopFlag

__all__ = ["STOPPED", "Steering", "reason_of", "requested_stops"]

STOPPED = "stopped on request"
"""How the reason of a stop requested from outside begins."""


@attrs.define(kw_only=True, eq=False)
class Steering:
    """The requests in force; used in the event loop of the experiment alone.

    Attributes:
        paused: all runs hold, and none begins.
        paused_runs: those that hold besides.
        at_once: the runs on hold don't wait for the end of their step.
        held: in how many places each run holds by now.
        stop: why all runs end early; None while they don't.
        stops: why runs end early, by run.
        flags: the stop flag of each run that may train.
        concurrent_arms: how many may run at once instead of as planned.
    """

    paused: bool = False
    paused_runs: set[str] = attrs.field(factory=set)
    at_once: bool = False
    held: Counter[str] = attrs.field(factory=Counter)
    stop: str | None = None
    stops: dict[str, str] = attrs.field(factory=dict)
    flags: dict[str, StopFlag] = attrs.field(factory=dict)
    concurrent_arms: int | None = None
    _changed: asyncio.Event = attrs.field(factory=asyncio.Event)

    # --- holding --------------------------------------------------------------------------------------------------

    def pauses(self, run_id: str) -> bool:
        """Whether a run is to hold; a stop overrides that."""
        return (self.paused or run_id in self.paused_runs) and self.stop_of(run_id) is None

    def pause(self, run_ids: Iterable[str] | None = None, *, at_once: bool = False) -> None:
        """Have runs hold after their step, or before their next rollout; all of them without names."""
        self.at_once = self.at_once or at_once
        if run_ids is None:
            self.paused = True
        else:
            self.paused_runs.update(run_ids)
        self.notify()

    def unpause(self, run_ids: Iterable[str] | None = None) -> None:
        """Have runs continue; all of them without names."""
        if run_ids is None:
            self.paused = False
            self.paused_runs.clear()
        else:
            self.paused_runs.difference_update(run_ids)
        self.at_once = self.at_once and bool(self.paused or self.paused_runs)
        self.notify()

    @contextmanager
    def holding(self, run_id: str) -> Iterator[bool]:
        """Inside, a run holds; True for the first of its places to do so."""
        self.held[run_id] += 1
        self.notify()
        try:
            yield self.held[run_id] == 1
        finally:
            self.held[run_id] -= 1
            self.held += Counter()  # without zeros
            self.notify()

    async def lifted(self, run_id: str) -> None:
        """Wait until a run may continue."""
        while self.pauses(run_id):
            await self.change()

    # --- ending early ---------------------------------------------------------------------------------------------

    def stop_of(self, run_id: str) -> str | None:
        """Why a run is to end early; None while it isn't."""
        return self.stop or self.stops.get(run_id)

    def end_early(self, reason: str, run_ids: Iterable[str] | None = None) -> None:
        """Have runs end after their step, and those that wait not begin; all of them without names."""
        if run_ids is None:
            self.stop = self.stop or reason
            ending: Iterable[str] = tuple(self.flags)
        else:
            ending = tuple(run_ids)
            self.stops.update({run_id: reason for run_id in ending if run_id not in self.stops})
        for run_id in ending:
            if (flag := self.flags.get(run_id)) is not None:
                flag.set(reason)
        self.notify()

    def flag(self, run_id: str, restored: str | None) -> StopFlag:
        """The stop flag of a run that begins, or begins again.

        Args:
            run_id: the run.
            restored: why it was asked to stop when its checkpoint was saved. A request that this experiment has not
                got, as after a fork, doesn't count.
        """
        if restored is not None and restored.startswith(STOPPED):
            restored = None
        found = self.flags[run_id] = StopFlag(reason=self.stop_of(run_id) or restored)
        return found

    # --- changes --------------------------------------------------------------------------------------------------

    def notify(self) -> None:
        """Wake up everyone who waits for a change."""
        self._changed.set()
        self._changed = asyncio.Event()

    def change(self) -> Coroutine[Any, Any, object]:
        """Wait for the next request, or for a run that holds or continues: the next one from this call on."""
        return self._changed.wait()


def reason_of(request: Mapping[str, Any]) -> str:
    """Why a run ends early, of a request on record: who asked, and what for."""
    why = f": {request['reason']}" if request.get("reason") else ""
    return f"{STOPPED} by {request['by']}{why}"


def requested_stops(requests: Iterable[Mapping[str, Any]]) -> Steering:
    """The stops among the requests on record, which a resumed experiment keeps to."""
    found = Steering()
    for request in requests:
        if request["request"] == "stop":
            found.end_early(reason_of(request), request["runs"])
    return found
