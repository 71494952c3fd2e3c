"""A server as the target of records."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from evsys_dashboard.ingest.pieces import Held, Piece, pack
from evsys_dashboard.remote import Remote

__all__ = ["ServerTarget"]


class ServerTarget(Remote):
    """A team's server, which takes records with a key of the scope `write`. Not for threads at once."""

    def held(self, experiment: str) -> Sequence[Held]:
        """The part it has of each file of an experiment."""
        return _held_parts(self.ask("GET", self.of_project("experiments", experiment, "files")))

    def take(self, experiment: str, pieces: Sequence[Piece]) -> Sequence[Held]:
        """Send it a batch."""
        path = self.of_project("experiments", experiment, "batch")
        return _held_parts(self.ask("POST", path, pack(pieces)))


def _held_parts(answer: Any) -> list[Held]:
    return [Held(file=each["file"], size=each["size"], digest=each["digest"]) for each in answer["files"]]
