"""The record of experiments on disk: files appended to or atomically replaced, and how they are read.

`open(path)` gives the experiments of a project to read; see `reader`. `ask` queries all of them by an index.
`files` and `jsonl` are the two ways of writing, `experiment_record` and `run_record` the tree under `.evsys/`. Nothing there
is a database: the index is built from the files.

Public is what `__all__` lists; the names resolve lazily, so importing this costs nothing.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from evsys_record.control import Control, ControlError, send_request
    from evsys_record.files import make_directory, refuse_links, write_atomic
    from evsys_record.history import Question, ask, moment_of
    from evsys_record.past import History, PastExperiment, PastRun
    from evsys_record.proofs import is_proof
    from evsys_record.questions import BASE_MODEL
    from evsys_record.reader import Experiment, Experiments, Line, RecordedRollout, Run, find_experiment
    from evsys_record.result_trees import result_tree
    from evsys_record.scorings import final_scoring, mean_over_repeats, metric_of, untrained_scoring
    from evsys_record.slugs import slug

__all__ = [
    "BASE_MODEL",
    "Control",
    "ControlError",
    "Experiment",
    "Experiments",
    "History",
    "Line",
    "PastExperiment",
    "PastRun",
    "Question",
    "RecordedRollout",
    "Run",
    "ask",
    "final_scoring",
    "find_experiment",
    "is_proof",
    "make_directory",
    "mean_over_repeats",
    "metric_of",
    "moment_of",
    "open",
    "refuse_links",
    "result_tree",
    "send_request",
    "slug",
    "untrained_scoring",
    "write_atomic",
]

_HOME = {
    **dict.fromkeys(("Control", "ControlError", "send_request"), ".control"),
    **dict.fromkeys(("Question", "ask", "moment_of"), ".history"),
    **dict.fromkeys(("History", "PastExperiment", "PastRun"), ".past"),
    **dict.fromkeys(
        ("Experiment", "Experiments", "Line", "RecordedRollout", "Run", "find_experiment"), ".reader"
    ),
    **dict.fromkeys(("final_scoring", "mean_over_repeats", "metric_of", "untrained_scoring"), ".scorings"),
    **dict.fromkeys(("make_directory", "refuse_links", "write_atomic"), ".files"),
    "BASE_MODEL": ".questions",
    "is_proof": ".proofs",
    "result_tree": ".result_trees",
    "slug": ".slugs",
}


def open(path: str | Path = ".") -> Experiments:  # noqa: A001 - evsys_record.open reads as intended
    """The experiments of a project, its `.evsys`, the folder of its experiments, or the folder of one experiment.

    Raises:
        StoreError: there is no such folder.
    """
    from evsys_record.reader import open_experiments

    return open_experiments(path)


if not TYPE_CHECKING:  # a type checker would take it as saying that every name is there, and is Any

    def __getattr__(name: str) -> object:
        # As `lazy_names` of evsys, which `evsys --help` may not import.
        if name not in _HOME:
            raise AttributeError(f"module 'evsys_record' has no attribute {name!r}")
        from importlib import import_module

        return globals().setdefault(name, getattr(import_module(_HOME[name], __name__), name))


def __dir__() -> list[str]:
    return sorted(__all__)
