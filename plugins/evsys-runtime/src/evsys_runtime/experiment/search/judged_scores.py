"""The scores in training that a search was asked about, and its answer to each, on record."""

from __future__ import annotations

import attrs

from evsys_record.experiment_record import ExperimentRecord
from evsys_record.jsonl import read_jsonl

__all__ = ["JUDGED", "JudgedScore", "judged_scores"]

JUDGED = "search.jsonl"
"""The scores in training that a search was asked about, in the order in which it was, each with its answer."""


@attrs.frozen(kw_only=True)
class JudgedScore:
    """A score in the training of arm `n`, of which more is better, None where it is not a number; and whether the arm continued."""

    n: int
    run_id: str
    repeat: int
    step: int
    score: float | None
    keep: bool


def judged_scores(record: ExperimentRecord, repeat: int) -> dict[int, list[JudgedScore]]:
    """The recorded scores of one repeat of each arm, by the arm's number.

    Raises:
        StoreError: it can't be read.
    """
    found: dict[int, list[JudgedScore]] = {}
    for line in read_jsonl(record.directory / JUDGED, missing_ok=True):
        fields = {field.name: line[field.name] for field in attrs.fields(JudgedScore)}
        judged = JudgedScore(**fields)
        if judged.repeat == repeat:
            found.setdefault(judged.n, []).append(judged)
    return found
