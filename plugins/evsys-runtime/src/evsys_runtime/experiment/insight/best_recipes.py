"""The best recipe so far by each metric: what it is, how well it scores, what it costs, and where its checkpoint is."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from evsys.errors import StoreError
from evsys.types import Comparison
from evsys_record import PastExperiment, PastRun
from evsys_record.history import runs_of
from evsys_record.index import Index
from evsys_record.marks import disqualifying
from evsys_record.result_files import read_run_result, run_folder
from evsys_record.scorings import THROUGH
from evsys_runtime.experiment.insight.arm_index import ArmsOnRecord, positive
from evsys_runtime.experiment.insight.costs import TypicalRun
from evsys_runtime.experiment.insight.findings import winners_of
from evsys_runtime.experiment.insight.known_experiments import Known
from evsys_runtime.experiment.insight.results import BestRecipe

__all__ = ["best_recipes"]

_VERDICTS = ("SUPPORTED", "CANDIDATE")
_RATE = "algorithm.params.learning_rate"


def best_recipes(
    index: Index, known: Known, on_record: ArmsOnRecord, metrics: Sequence[str], project: Path
) -> Iterator[BestRecipe]:
    """The winner with the best score by each metric: a SUPPORTED one, else a CANDIDATE; none of an experiment with a disqualifying mark.

    Scores of one metric are compared as they are, though experiments may have scored other tasks under the same name.

    Args:
        index: of the experiments on record.
        known: the same experiments, and the configs of their arms.
        on_record: the values of these configs.
        metrics: the success metrics to look at, in order.
        project: the folder that the checkpoint's path begins from.
    """
    for metric in metrics:
        found = [
            (past, winner)
            for past in known.experiments
            if past.metric == metric and not disqualifying(past.marks)
            for winner in winners_of(past)
            if winner.after is not None
        ]
        if found:
            past, winner = min(found, key=_order)
            numbers = known.configs.get((past.experiment_id, winner.arm))
            config = {} if numbers is None else on_record.config(numbers)
            yield _recipe(index, past, winner, config, project)


def _order(found: tuple[PastExperiment, Comparison]) -> tuple[int, float, str]:
    """A supported winner first, then the best score, then the first experiment that had it."""
    past, winner = found
    score = winner.after or 0.0
    return _VERDICTS.index(past.verdict or ""), score if past.direction == "min" else -score, past.moment


def _recipe(
    index: Index, past: PastExperiment, winner: Comparison, config: Mapping[str, str], project: Path
) -> BestRecipe:
    runs = [run for run in runs_of(index, past.experiment_id) if run.arm == winner.arm]
    typical = TypicalRun.from_runs(runs)
    place = _checkpoint(index.experiments / past.experiment_id, runs, lower=past.direction == "min")
    return BestRecipe(
        metric=past.metric or "",
        score=winner.after or 0.0,
        name=f"{past.experiment_id}/{winner.arm}",
        verdict=past.verdict or "",
        subject=past.subject,
        marks=tuple(mark.kind for mark in past.marks),
        model=_text(config.get("model.name")) or next((run.model for run in runs if run.model), None),
        algorithm=_text(config.get("algorithm.kind"))
        or next((run.algorithm for run in runs if run.algorithm), None),
        rows=next((run.rows for run in runs if run.rows is not None), None),
        learning_rate=positive(config.get(_RATE)),
        runs=sum(run.status in THROUGH for run in runs),
        cost_usd=typical.cost_usd,
        seconds=typical.seconds,
        checkpoint=None if place is None else _starting_point(project, place),
    )


def _starting_point(project: Path, place: Path) -> str:
    inside = place.resolve().is_relative_to(project.resolve())
    return str(place.resolve().relative_to(project.resolve()) if inside else place)


def _text(leaf: str | None) -> str | None:
    return None if leaf is None else str(json.loads(leaf))


def _checkpoint(directory: Path, runs: Sequence[PastRun], *, lower: bool) -> Path | None:
    """The checkpoint of the run with the best score that is still there: the selected one, else the last."""
    scored = [run for run in runs if run.score is not None and run.folder is not None]
    for run in sorted(scored, key=lambda run: (run.score or 0.0) * (1 if lower else -1)):
        place = _saved_path(directory / "runs" / str(run.folder), run.selected_checkpoint)
        if place is not None and place.exists():
            return place
    return None


def _saved_path(folder: Path, selected: str | None) -> Path | None:
    """The selected or last checkpoint of a run, where it was made."""
    try:
        result = read_run_result(folder)
        name = selected or (result.get("run") or {}).get("final_checkpoint")
        return None if name is None else run_folder(folder, result) / str(name)
    except StoreError:
        return None
