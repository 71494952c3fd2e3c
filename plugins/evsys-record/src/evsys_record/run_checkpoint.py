"""The checkpoint that counts of a run on record, for commands that take a run in place of a checkpoint's folder."""

from __future__ import annotations

from pathlib import Path

from evsys.errors import ConfigError, StoreError
from evsys_record.experiment_names import experiment_called, run_called
from evsys_record.history import runs_of
from evsys_record.index import Index
from evsys_record.result_files import checkpoint_inside, read_run_result, run_folder

__all__ = ["checkpoint_named"]


def checkpoint_named(text: str, experiments: Path) -> Path | None:
    """The checkpoint that counts of the run that `text` names: by its folder, or as EXPERIMENT/RUN.

    Args:
        text: what was given.
        experiments: the folder of all experiments.

    Returns:
        None if `text` names no run: it may be a checkpoint's folder, or the name of a model.

    Raises:
        ConfigError: the experiment has no such run, or the run has no checkpoint.
        StoreError: the records can't be read.
    """
    if (Path(text) / "run.json").is_file():
        return _checkpoint_of(Path(text))
    return None if Path(text).exists() else _find_run(text, experiments)


def _checkpoint_of(folder: Path) -> Path:
    """The folder of a run's selected checkpoint, or of its last one if none was selected."""
    try:
        result = read_run_result(folder)
        place_of_run = run_folder(folder, result)
    except StoreError as error:
        raise ConfigError(
            f"{folder} has no result: {error.message}", hint="name one of its checkpoints"
        ) from error
    run = result.get("run") or {}
    place = (run.get("selected_checkpoint") or {}).get("checkpoint") or run.get("final_checkpoint")
    if place is None:
        raise ConfigError(f"the run in {folder} kept no checkpoint")
    return checkpoint_inside(place_of_run, str(place))


def _find_run(text: str, experiments: Path) -> Path | None:
    name, slash, named = text.partition("/")
    if not (slash and name and experiments.is_dir()):
        return None
    with Index(experiments) as index:
        index.refresh()
        try:
            experiment = experiment_called(name, index)
        except ConfigError:  # the name of something else, such as an API model
            return None
        runs = {run.run_id: run.folder for run in runs_of(index, experiment)}
        folder = runs[run_called(named, list(runs), experiment)]
    if folder is None:
        raise ConfigError(f"the run {text} hasn't begun")
    return _checkpoint_of(experiments / experiment / "runs" / folder)
