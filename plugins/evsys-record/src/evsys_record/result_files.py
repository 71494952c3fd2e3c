"""A run's result as it is on record, with the names in it checked: a record may come from someone else."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path, PurePath
from typing import Any

from evsys.errors import StoreError
from evsys_record.files import read_json

__all__ = ["RESULT", "checkpoint_inside", "read_run_result", "run_folder"]

RESULT = "run_result.json"


def read_run_result(folder: Path, *, hint: str | None = None) -> dict[str, Any]:
    """The result in a run's folder.

    Args:
        folder: the run's.
        hint: how to continue without a result that can't be read.

    Raises:
        StoreError: it can't be read, or it names a checkpoint that is neither in the folder nor a whole path or an address.
    """
    tree: dict[str, Any] = read_json(folder / RESULT, hint=hint)
    for name in _names(tree.get("run")):
        if not _is_absolute(name):
            checkpoint_inside(folder, name)
    return tree


def run_folder(folder: Path, result: Mapping[str, Any]) -> Path:
    """The folder of the run that a result was made in: of a reused one that of the other run, else the run's own.

    Args:
        folder: of the run whose result it is.
        result: as read from there.

    Raises:
        StoreError: it names a run that isn't in a record alongside this one.
    """
    reused = result.get("reused")
    if reused is None:
        return folder
    names = (str(reused["experiment_id"]), str(reused["folder"]))
    if any(len(PurePath(name).parts) != 1 or name in (".", "..") or "\0" in name for name in names):
        raise StoreError(
            f"{folder / RESULT} names {'/'.join(names)!r} as the run that it was reused from, which is not a run of a record",
            path=str(folder),
        )
    return folder.parents[2] / names[0] / "runs" / names[1]


def checkpoint_inside(folder: Path, name: str) -> Path:
    """The folder of a checkpoint that a result names.

    Raises:
        StoreError: it isn't inside the run's folder.
    """
    place = folder / name
    if "\0" in name or _is_absolute(name) or not place.resolve().is_relative_to(folder.resolve()):
        raise StoreError(
            f"{folder / RESULT} names the checkpoint {name!r}, which is not inside the run's folder",
            hint="name the checkpoint's folder yourself, if you trust it",
            path=str(folder),
        )
    return place


def _names(run: Any) -> Iterator[str]:
    if not isinstance(run, Mapping):
        return
    for key in ("final_checkpoint", "best_checkpoint", "selected_checkpoint"):
        found = run.get(key)
        name = found.get("checkpoint") if isinstance(found, Mapping) else found
        if isinstance(name, str):
            yield name


def _is_absolute(name: str) -> bool:
    """True for a whole path, or an address: those that a `train_fn` may give."""
    return "://" in name or PurePath(name).is_absolute()
