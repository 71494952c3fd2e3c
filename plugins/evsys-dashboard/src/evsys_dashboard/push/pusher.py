"""Sends what the other side lacks of a record, however often either side begins again."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from evsys_dashboard.ingest.pieces import Held, Piece
from evsys_dashboard.push.record_files import RecordFiles

__all__ = ["BATCH_BYTES", "Pusher", "Target"]

BATCH_BYTES = 4 << 20
"""Bytes of a batch, before compression."""


class Target(Protocol):
    """Where records go: a server, or a database of this process."""

    def held(self, experiment: str) -> Sequence[Held]:
        """The part it has of each file of an experiment."""

    def take(self, experiment: str, pieces: Sequence[Piece]) -> Sequence[Held]:
        """Give it a batch; what it has now of each file in it."""


class Pusher:
    """Brings a target up to date with one experiment.

    Args:
        directory: the experiment's folder.
        target: where it goes.
    """

    def __init__(self, directory: Path, target: Target) -> None:
        self.files = RecordFiles(directory)
        self._name = directory.name
        self._target = target
        self._begun = False

    def push(self) -> int:
        """Send one batch; the number of bytes in it, 0 where the target has everything.

        Raises:
            StoreError: a file can't be read, or the target can't be reached; call it again later.
        """
        begun, self._begun = self._begun, False  # after a failure what arrived isn't known
        if not begun:
            self.files.forget()
            self.files.note(self._target.held(self._name))
        pieces = list(self.files.pieces(BATCH_BYTES))
        if pieces:
            self.files.note(self._target.take(self._name, pieces))
        self._begun = True
        return sum(len(piece.data) or 1 for piece in pieces)
