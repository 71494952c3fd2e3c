"""Follows the records on this machine: what is written to them goes into the database of the dashboard at once."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Event, Thread
from typing import TYPE_CHECKING

from evsys.errors import EvsysError
from evsys_dashboard.ingest.ingest import Ingest
from evsys_dashboard.ingest.pieces import EXPERIMENT_NAME, Held, Piece
from evsys_dashboard.push.pusher import Pusher
from evsys_dashboard.store.summaries import Summaries
from evsys_record.changes import KnownExperiment, changes
from evsys_record.experiment_record import RUNNING, running_or_crashed

if TYPE_CHECKING:
    from evsys.protocols import Log

__all__ = ["Follower", "LocalTarget"]

LOOK_SECONDS = 0.5
"""How often running experiments are looked at."""

ALL_SECONDS = 5.0
"""How often all experiments are looked at; a new one is seen sooner."""


class LocalTarget:
    """The database of this process, for one project.

    Args:
        ingest: its way in.
        project: name of the project.
    """

    def __init__(self, ingest: Ingest, project: str) -> None:
        self._ingest = ingest
        self.project = project

    def held(self, experiment: str) -> Sequence[Held]:
        """The part it has of each file of an experiment."""
        return self._ingest.held(self.project, experiment)

    def take(self, experiment: str, pieces: Sequence[Piece]) -> Sequence[Held]:
        """Give it a batch."""
        return self._ingest.take(self.project, experiment, pieces).held

    def touch(self, experiment: str) -> None:
        """Its status may have changed, although its files didn't."""
        self._ingest.touch(self.project, experiment)


class Follower:
    """A thread that brings a database up to date with a folder of experiments, until it is closed.

    Args:
        experiments: the folder of all experiments; it need not exist.
        target: where they go.
        summaries: brought up to date after each batch.
        changed: called in the thread after each batch.
        log: gets a warning for each failure.
    """

    def __init__(
        self,
        experiments: Path,
        target: LocalTarget,
        summaries: Summaries,
        *,
        changed: Callable[[], object] = lambda: None,
        log: Log | None = None,
    ) -> None:
        self._experiments = experiments
        self._target = target
        self._summaries = summaries
        self._changed = changed
        self._log = log
        self._known: dict[str, KnownExperiment] = {}
        self._running: dict[str, Pusher] = {}
        self._failed: set[str] = set()
        self._closing = Event()
        self._thread = Thread(target=self._follow, name="evsys-dashboard", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def close(self) -> None:
        """End, and wait for it."""
        self._closing.set()
        if self._thread.is_alive():
            self._thread.join()

    def catch_up(self) -> None:
        """Bring the database up to date with everything on disk now."""
        found, gone = changes(self._experiments, self._known)
        for name in gone:
            self._known.pop(name, None)
            self._running.pop(name, None)
        for change in reversed(found):  # the newest first
            if self._closing.is_set():
                return
            before = self._known.get(change.folder)
            runs = {**({} if before is None or change.own else before.runs), **change.runs}
            self._known[change.folder] = KnownExperiment(
                mark=change.mark, runs={name: mark for name, mark in runs.items() if name not in change.gone}
            )
            if EXPERIMENT_NAME.fullmatch(change.folder) and change.folder not in self._running:
                pusher = Pusher(self._experiments / change.folder, self._target)
                if not self._push(pusher) or self._is_running(change.folder):
                    self._running[change.folder] = pusher

    def look(self) -> None:
        """Bring the database up to date with the experiments that run."""
        for name, pusher in list(self._running.items()):
            running = self._is_running(name)
            if self._push(pusher) and not running:
                del self._running[name]
        for name in self._summaries.running(self._target.project):
            if name not in self._running and not self._is_running(name):
                self._target.touch(name)
                self._summaries.refresh()
                self._changed()

    def _follow(self) -> None:
        passes = 0
        names: frozenset[str] | None = None
        while not self._closing.is_set():
            before, names = names, _names(self._experiments)
            if names != before or passes % round(ALL_SECONDS / LOOK_SECONDS) == 0:
                self.catch_up()
            self.look()
            passes += 1
            self._closing.wait(LOOK_SECONDS)

    def _push(self, pusher: Pusher) -> bool:
        """Whether the database has everything of an experiment."""
        name = pusher.files.directory.name
        try:
            while (sent := pusher.push()) and not self._closing.is_set():
                self._summaries.refresh()
                self._changed()
        except EvsysError as exc:
            if self._log is not None and name not in self._failed:
                self._log.warning("dashboard.follow_failed", experiment=name, error=str(exc))
            self._failed.add(name)
            return False
        return not sent

    def _is_running(self, name: str) -> bool:
        folder = self._experiments / name
        try:
            from evsys_record.files import read_json

            status = read_json(folder / "experiment.json")["status"]
        except (EvsysError, KeyError):
            return False
        return status == RUNNING and running_or_crashed(folder) == RUNNING


def _names(folder: Path) -> frozenset[str]:
    try:
        return frozenset(os.listdir(folder))  # noqa: PTH208 - of names, twice a second
    except FileNotFoundError:
        return frozenset()
