"""Shared by the commands on past experiments: the index of the chosen records."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from evsys_cli.output import telling
from evsys_cli.progress import Progress
from evsys_runtime import echo, records_folder

if TYPE_CHECKING:
    from evsys_record.index import Index

__all__ = ["experiment_meant", "open_index"]


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


@contextmanager
def experiment_meant(text: str, records: Path | None) -> Iterator[tuple[Index, str, str | None]]:
    """The index, and the experiment ID and the run (or other text after a `/`) that `text` names."""
    from evsys_record.experiment_names import experiment_called, folder_called

    place = folder_called(text)
    if place is None:
        name, _, named = text.partition("/")
        with open_index(records_folder(records)) as index:
            yield index, experiment_called(name, index), named or None
    else:
        folder, run = place
        with open_index(folder.parent) as index:
            yield index, folder.name, run
