"""Shared by the commands on past experiments: the index of the chosen records."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from evsys_cli.output import telling
from evsys_cli.progress import Progress
from evsys_runtime import echo, records_folder

if TYPE_CHECKING:
    from evsys_record.index import Index
    from evsys_runtime.tools.lab import Lab

__all__ = ["experiment_meant", "lab_of", "open_index"]


@contextmanager
def open_index(experiments: Path, *, anew: bool = False) -> Iterator[Index]:
    """The index of a folder of experiments, brought up to date. Its progress and warnings go to standard error."""
    from evsys_record.index import Index

    progress = Progress()

    def tell(line: str) -> None:
        with telling():
            echo(line, err=True)

    def advanced(done: int, count: int) -> None:
        progress.tell(f"read {done} of {count} experiments")

    with Index(experiments, tell=tell, advanced=advanced) as index:
        try:
            index.refresh(anew=anew)
        finally:
            progress.end()
        yield index


def lab_of(records: Path | None) -> Lab:
    """Where a command looks for experiments: the chosen records, or those of the current folder's project."""
    from evsys_runtime.tools.lab import Lab

    return Lab(root=Path.cwd(), experiments=records_folder(records), opened=open_index)


def experiment_meant(
    text: str, records: Path | None
) -> AbstractContextManager[tuple[Index, str, str | None]]:
    """The index, and the experiment ID and the run (or other text after a `/`) that `text` names."""
    return lab_of(records).experiment(text)
