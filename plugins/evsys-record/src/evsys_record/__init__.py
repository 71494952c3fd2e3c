"""The record of experiments on disk: files that are appended to or atomically replaced, and how they are read.

`open(path)` gives the experiments of a project to read; see `reader`. `files` and `jsonl` are the two ways of writing,
`experiment_record` and `run_record` the tree under `.evsys/`. Nothing there is a database: the `index`, which `history` and
`shown` query, is built from the files.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from evsys_record.reader import Experiments

__all__ = ["open"]


def open(path: str | Path = ".") -> Experiments:  # noqa: A001 - evsys_record.open reads as intended
    """The experiments of a project, its `.evsys`, the folder of its experiments, or the folder of one experiment.

    Raises:
        StoreError: there is no such folder.
    """
    from evsys_record.reader import open_experiments

    return open_experiments(path)
