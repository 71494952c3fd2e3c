"""Hashes of the files that a conclusion rests on, taken when it is written, so that an audit finds what was changed later."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from evsys_record.hashing import file_digest

__all__ = ["evidence_hashes", "hashes_of_run"]

_OF_THE_EXPERIMENT = ("config.yaml", "resolved.json", "proposals.jsonl")
_ROLLOUTS = "rollouts.jsonl"
_OF_A_RUN = (
    "run_result.json",
    "evaluations.jsonl",
    f"validation/{_ROLLOUTS}",
    f"test/{_ROLLOUTS}",
)


def evidence_hashes(directory: Path) -> dict[str, str]:
    """The hash of each of these files of an experiment that is there, by its path in the experiment's folder.

    Raises:
        StoreError: a file can't be read.
    """
    return {path.relative_to(directory).as_posix(): file_digest(path) for path in _evidence(directory)}


def hashes_of_run(directory: Path, folder: str) -> dict[str, str]:
    """The same of the files that one run rests on: its own, and the rollouts of others, since runs share the scores of untrained weights.

    Args:
        directory: of the experiment.
        folder: of the run.

    Raises:
        StoreError: a file can't be read.
    """
    own = f"runs/{folder}/"
    names = ((path, path.relative_to(directory).as_posix()) for path in _evidence(directory))
    return {name: file_digest(path) for path, name in names if name.startswith(own) or path.name == _ROLLOUTS}


def _evidence(directory: Path) -> Iterator[Path]:
    paths = [directory / name for name in _OF_THE_EXPERIMENT]
    paths += [run / name for run in sorted(directory.glob("runs/*")) for name in _OF_A_RUN]
    return (path for path in paths if path.is_file())
