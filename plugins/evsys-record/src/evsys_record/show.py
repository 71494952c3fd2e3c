"""One experiment, or one run of it, in full: what the index knows, and what the record's own files say besides."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import attrs

from evsys.errors import StoreError
from evsys.types import ArmResult, Conclusion, EvaluationResult
from evsys_record.experiment_names import run_called
from evsys_record.files import read_json
from evsys_record.history import past_experiment, runs_of
from evsys_record.index import Index
from evsys_record.past import PastExperiment, PastRun, RecordFile, Scored, Shown, ShownRun, Superseded
from evsys_record.result_trees import read_file_as
from evsys_record.run_record import RunRecord

__all__ = ["LEFT_OUT", "compact", "show_experiment"]

LEFT_OUT = "left_out.json"
"""In a copy of a record: the bytes of each file, or folder with a `/` at its end, that stayed where it was written."""


def show_experiment(index: Index, experiment_id: str, run: str | None = None) -> Shown:
    """An experiment with its runs, or with the one that is called `run` (or whose folder is), and then with that one's files.

    Raises:
        ConfigError: no run, or several, are called so.
        StoreError: the record can't be read, or isn't of the shape that results have.
    """
    past = past_experiment(index, experiment_id)
    if past is None:
        raise StoreError(f"no experiment in {index.experiments / experiment_id}")
    runs = runs_of(index, experiment_id)
    if run is not None:
        of_folder = [each.run_id for each in runs if each.folder == run]
        wanted = (of_folder or [run_called(run, [each.run_id for each in runs], experiment_id)])[0]
        runs = tuple(each for each in runs if each.run_id == wanted)
    folder = index.experiments / experiment_id
    listing = _Listing(folder)
    return Shown(
        directory=str(folder),
        experiment=past,
        conclusion=_conclusion(past, folder),
        superseded=tuple(_earlier_conclusions(past, folder)),
        ancestors=tuple(_ancestors(index, past)),
        children=tuple(_children(index, experiment_id)),
        runs=tuple(_run(folder, each, listing if run is not None else None) for each in runs),
        files=tuple(listing.files(folder)),
    )


def compact(found: Shown) -> Shown:
    """The same without the whole result of each run, whose scores of every task may be long."""
    return attrs.evolve(found, runs=tuple(attrs.evolve(run, result=None) for run in found.runs))


def _conclusion(past: PastExperiment, folder: Path) -> Conclusion | None:
    """None while an experiment continues, also where it had ended before."""
    if past.problem is not None or past.finished is None:
        return None
    path = folder / "conclusion.json"
    return (
        read_file_as(Conclusion, read_json(path), folder, what=f"what {folder} ended with")
        if path.exists()
        else None
    )


def _earlier_conclusions(past: PastExperiment, folder: Path) -> Iterator[Superseded]:
    """The conclusions alongside the one that holds."""
    for number in range(1, len(past.superseded) + 1):
        name = f"conclusion.{number}.json"
        tree = read_json(folder / name)
        yield Superseded(file=name, verdict=tree.get("verdict"), reason=str(tree.get("reason") or ""))


def _run(folder: Path, past: PastRun, listing: _Listing | None) -> ShownRun:
    if past.folder is None or past.problem is not None:
        return ShownRun(past=past)
    record = RunRecord(folder / "runs" / past.folder)
    tree = record.read_result()
    folder = record.directory
    what = f"what {folder} ended with"
    result = None if tree is None else read_file_as(ArmResult, tree, folder, what=what)
    return ShownRun(
        past=past,
        attempts=record.attempts,
        scores=() if result is None else tuple(_scores(result)),
        files=() if listing is None else tuple(listing.files(record.directory)),
        result=result,
    )


def _scores(result: ArmResult) -> Iterator[Scored]:
    """Of each benchmark entry the first scoring, of the weights that the run started from, and that of those that count."""
    selected = None if result.run is None else result.run.selected_checkpoint
    own: dict[str, list[EvaluationResult]] = {}
    for evaluation in result.evaluations:
        counts = selected is None or evaluation.step in (0, selected.step)
        if evaluation.model is None and evaluation.status == "completed" and counts:
            own.setdefault(evaluation.benchmark, []).append(evaluation)
    for evaluations in own.values():
        for evaluation in _ends(evaluations):
            for name, value in evaluation.metrics.items():
                yield Scored(
                    benchmark=evaluation.benchmark,
                    split=evaluation.split,
                    step=evaluation.step,
                    metric=name,
                    score=value,
                )


def _ends(evaluations: Sequence[EvaluationResult]) -> list[EvaluationResult]:
    ordered = sorted(evaluations, key=lambda evaluation: evaluation.step)
    return ordered[:1] if len(ordered) == 1 else [ordered[0], ordered[-1]]


def _ancestors(index: Index, past: PastExperiment) -> Iterator[str]:
    """The parent, its parent, ... as far as they are on record, and one name beyond."""
    seen = {past.experiment_id}
    parent = past.parent
    while parent is not None and parent not in seen:
        seen.add(parent)
        yield parent
        found = index.rows("SELECT parent FROM experiment WHERE folder = ?", (parent,))
        parent = found[0][0] if found else None


def _children(index: Index, experiment_id: str) -> Iterator[str]:
    query = "SELECT folder FROM experiment WHERE parent = ? AND NOT dry ORDER BY moment, folder"
    return (folder for (folder,) in index.rows(query, (experiment_id,)))


class _Listing:
    """The files of a record, with those that stayed elsewhere."""

    def __init__(self, experiment: Path) -> None:
        self._experiment = experiment
        path = experiment / LEFT_OUT
        found = read_json(path).get("bytes") if path.exists() else None
        listed = found.items() if isinstance(found, dict) else ()
        self._elsewhere = {name: size for name, size in listed if isinstance(size, int)}

    def files(self, folder: Path) -> Iterator[RecordFile]:
        """The files directly in a folder, by name; for a folder in it, the bytes of everything below."""
        prefix = "" if folder == self._experiment else f"{folder.relative_to(self._experiment).as_posix()}/"
        sizes: dict[str, int] = {}
        for path in folder.iterdir():
            if path.name.startswith(".") or (not prefix and path.name == LEFT_OUT):
                continue
            if path.is_dir():
                sizes[f"{path.name}/"] = _bytes_below(path)
            else:
                sizes[path.name] = path.lstat().st_size
        for name, size in self._elsewhere.items():
            if name.startswith(prefix):
                first, slash, _ = name.removeprefix(prefix).partition("/")
                sizes[first + slash] = sizes.get(first + slash, 0) + size
        for name in sorted(sizes, key=lambda name: name.rstrip("/")):
            yield RecordFile(path=name, bytes=sizes[name])


def _bytes_below(folder: Path) -> int:
    return sum((where / name).lstat().st_size for where, _, names in folder.walk() for name in names)
