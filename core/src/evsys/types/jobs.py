"""Jobs: commands that a launcher runs in other processes, and what it knows of them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import attrs

__all__ = ["Job", "JobState"]


@attrs.frozen(kw_only=True)
class Job:
    """A command to run in a process of its own.

    Attributes:
        name: unique among all jobs, the same after a restart: a launcher can find a job by it.
        command: the program and its arguments.
        working_directory: the process starts there; every machine that may run it sees that path.
        folder: holds the job's files, its output among them; on a path that every machine sees.
        environment: variables in addition to those of the submitting process; values may be secret.
    """

    name: str
    command: tuple[str, ...]
    working_directory: Path
    folder: Path
    environment: Mapping[str, str] = attrs.field(factory=dict, repr=False)

    @property
    def output(self) -> Path:
        """The file with the standard output and the standard error of the process."""
        return self.folder / "output.log"


@attrs.frozen(kw_only=True)
class JobState:
    """How far a job is.

    Attributes:
        state: `queued`, `running`, or `ended`; a job that its launcher doesn't know has ended.
        exit_code: of an ended job; None where that isn't known.
        signal: the number of the signal that ended it.
        cause: why it ended, in words of the launcher: `out of memory`, `time limit`, `node failure`.
        preempted: it ended for a reason outside the job, so it may run again.
        place: the machine, and the process or device there.
    """

    state: Literal["queued", "running", "ended"]
    exit_code: int | None = None
    signal: int | None = None
    cause: str | None = None
    preempted: bool = False
    place: str | None = None
