"""Messages between an experiment and the process of one of its arms: lines of two files in a folder that both see.

Each file has one writer, so a shared file system is enough, and a process that takes over can read what was said before.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from evsys_record import make_directory, slug
from evsys_record.jsonl import JsonlWriter
from evsys_record.secrets import Redactor
from evsys_record.tail import Tail

__all__ = ["JOBS", "SPEC", "Mailbox", "launch_folder"]

JOBS = "jobs"
"""The folder of an experiment's record for launched arms: `jobs/<run>/<launch>/`."""

SPEC = "job.json"
"""The content of a launch, and its job."""

_OF_ARM, _OF_EXPERIMENT = "from_arm.jsonl", "to_arm.jsonl"


class Mailbox:
    """One end of the exchange.

    Args:
        folder: of the launch.
        of_arm: this is the end of the arm.
        redactor: takes secrets out of what is written.
    """

    def __init__(self, folder: Path, *, of_arm: bool, redactor: Redactor) -> None:
        written, read = (_OF_ARM, _OF_EXPERIMENT) if of_arm else (_OF_EXPERIMENT, _OF_ARM)
        self._writer = JsonlWriter(folder / written, scrub=redactor.line)
        self._source = folder / read
        self._tail = Tail(self._source)

    def send(self, message: str, **facts: Any) -> None:
        """Append a message.

        Raises:
            StoreError: it can't be written.
        """
        self._writer.write({"message": message, **facts})

    def receive(self) -> Iterator[Mapping[str, Any]]:
        """The messages since the last call.

        Raises:
            StoreError: they can't be read.
        """
        if self._source.exists():
            yield from self._tail.read()

    def close(self) -> None:
        """Release the file."""
        self._writer.close()


def launch_folder(directory: Path, run_id: str) -> tuple[Path, int]:
    """Make the folder of the next launch of a run; its path and its number.

    Args:
        directory: the experiment's folder.
        run_id: the run.
    """
    runs = directory / JOBS / slug(run_id)
    number = 1 + max((int(path.name) for path in runs.glob("[0-9]*")), default=0)
    return make_directory(runs / str(number)), number
