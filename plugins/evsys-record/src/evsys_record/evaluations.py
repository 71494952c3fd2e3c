"""The evaluations of a project, which `evsys eval` records: models scored without training, and on which tasks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import attrs

from evsys.errors import StoreError
from evsys_record.files import read_json
from evsys_record.history import Question
from evsys_record.past import History, PastEvaluation
from evsys_record.questions import ScoredEntry, scored_entries

__all__ = ["EvaluationOnRecord", "evaluations_beside", "evaluations_on_record", "with_evaluations"]


@attrs.frozen(kw_only=True)
class EvaluationOnRecord:
    """An evaluation with the benchmark entries that it scored; none in records of earlier versions."""

    past: PastEvaluation
    entries: tuple[ScoredEntry, ...]


def evaluations_beside(experiments: Path) -> Path:
    """The folder of evaluations of the project that a folder of experiments belongs to."""
    return experiments.parent / "evaluations"


def evaluations_on_record(folder: Path) -> Iterator[EvaluationOnRecord]:
    """The evaluations in a folder, the newest first; what isn't a record of one is left out.

    Args:
        folder: of all evaluations; it need not exist.
    """
    for path in sorted(folder.glob("*/experiment.json"), reverse=True):
        try:
            yield _evaluation(path.parent.name, read_json(path))
        except (StoreError, KeyError, TypeError, ValueError, AttributeError):
            continue


def with_evaluations(found: History, experiments: Path, question: Question) -> History:
    """A history with the evaluations of the project, the newest first, if the question asks for no certain experiments.

    Args:
        found: the history.
        experiments: the folder of the project's experiments.
        question: that the history answers.
    """
    if question != Question(limit=question.limit, since=question.since):
        return found
    past = (each.past for each in evaluations_on_record(evaluations_beside(experiments)))
    listed = [each for each in past if question.since is None or each.moment >= question.since]
    return attrs.evolve(found, evaluations=tuple(listed[: question.limit]))


def _evaluation(evaluation_id: str, facts: Mapping[str, Any]) -> EvaluationOnRecord:
    entries = tuple(scored_entries(facts))
    scores = {str(name): value for name, value in (facts.get("scores") or {}).items()}
    past = PastEvaluation(
        evaluation_id=evaluation_id,
        model=str(facts["model"]),
        moment=str(facts["created"]),
        status=str(facts["status"]),
        scores={name: None if value is None else float(value) for name, value in scores.items()},
        tests=tuple(entry.name for entry in entries if entry.split == "test"),
    )
    return EvaluationOnRecord(past=past, entries=entries)
